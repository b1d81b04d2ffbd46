//! Reads the files of one side of a connection: a certificate, its key, and the CAs of the other ends; and checks what they
//! hold.
//!
//! Invariant: what is made of files was whole, and fitted together. Where CAs are given, nobody connects without a certificate.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use tokio_rustls::rustls::{
    CertificateError, Error, RootCertStore, ServerConfig,
    client::{verify_server_cert_signed_by_trust_anchor, verify_server_name},
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::{
        NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier, danger::ClientCertVerifier,
    },
    sign::{CertifiedKey, SingleCertAndKey},
};

use super::certificate_facts::CertificateFacts;
use crate::{
    node::{
        Config, FileRead,
        config::host_of,
        settings::{ClientTls, PeerTls},
    },
    sequence::NodeId,
};

/// The bits of a file's mode that let others than its user read it.
const READABLE_BY_OTHERS: u32 = 0o044;
/// A file of certificates has a few kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file, and the setting that names it.
#[derive(Debug, Clone)]
pub struct NamedFile {
    setting: &'static str,
    path: PathBuf,
}

impl NamedFile {
    fn of(setting: &'static str, path: &Option<PathBuf>) -> Option<NamedFile> {
        path.clone().map(|path| NamedFile { setting, path })
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        let failed = |error: io::Error| {
            self.told(&format!(
                "{error}; correct the setting, or put the file there for the node's user"
            ))
        };
        let bytes = fs::metadata(&self.path).map_err(failed)?.len();
        match bytes > FILE_BYTES_MAX {
            true => Err(self.told(&format!("it has {bytes} bytes; give a file in PEM"))),
            false => fs::read(&self.path).map_err(failed),
        }
    }

    /// The certificates in `bytes`, which were read.
    fn certificates(&self, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
        let read = read.map_err(|error| self.told(&pem_error(&error)))?;
        match read.is_empty() {
            true => Err(self.told(
                "it holds no certificate; give a file in PEM, with the line -----BEGIN CERTIFICATE-----",
            )),
            false => Ok(read),
        }
    }

    /// A text about the file.
    pub fn told(&self, why: &str) -> String {
        format!("{} {}: {why}", self.setting, self.path.display())
    }
}

fn pem_error(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => {
            "it breaks off: a BEGIN line has no END line; write it again, whole".to_owned()
        }
        // The line may be a part of a key.
        pem::Error::IllegalSectionStart { .. } => {
            "one of its BEGIN lines is malformed; write it again".to_owned()
        }
        other => format!("it is not in PEM: {other}; write it again"),
    }
}

/// The files of one side, and what its certificate must name.
#[derive(Debug, Clone)]
pub struct Files {
    pub certificate: NamedFile,
    key: NamedFile,
    /// The CAs of the other ends. Without it they show no certificate.
    ca: Option<NamedFile>,
    /// The node that the certificate must name, if it must name one, and its cluster.
    node: Option<(String, NodeId)>,
    /// The host by which clients reach this node, if they see the certificate.
    pub host: Option<String>,
}

impl Files {
    /// Those of the ports for clients; `None` if these speak no TLS.
    pub fn for_clients(config: &Config) -> Option<Files> {
        (config.tls != ClientTls::Off).then_some(())?;
        Some(Files {
            certificate: NamedFile::of("tls_cert", &config.tls_cert)?,
            key: NamedFile::of("tls_key", &config.tls_key)?,
            ca: NamedFile::of("tls_client_ca", &config.tls_client_ca),
            node: None,
            host: Some(clients_host(config)),
        })
    }

    /// Those for peers; `None` if no connection to or from a peer speaks TLS.
    pub fn for_peers(config: &Config) -> Option<Files> {
        (config.peer_tls != PeerTls::Off).then_some(())?;
        Some(Files {
            certificate: NamedFile::of("peer_tls_cert", &config.peer_tls_cert)?,
            key: NamedFile::of("peer_tls_key", &config.peer_tls_key)?,
            ca: Some(NamedFile::of("peer_tls_ca", &config.peer_tls_ca)?),
            node: Some((config.cluster.clone(), config.node_id)),
            host: None,
        })
    }

    /// The contents of all.
    ///
    /// # Errors
    /// A text if one cannot be read.
    pub fn contents(&self) -> Result<Contents, String> {
        Ok(Contents {
            certificate: self.certificate.read()?,
            key: self.key.read()?,
            ca: self.ca.as_ref().map(NamedFile::read).transpose()?,
        })
    }

    /// Each file, and whether it holds something else `now` than `before`.
    pub fn compared(&self, before: &Contents, now: &Contents) -> Vec<FileRead> {
        let read = |file: &NamedFile, changed| {
            let NamedFile { setting, path } = file.clone();
            FileRead { setting, path, changed }
        };
        let mut files = vec![
            read(&self.certificate, before.certificate != now.certificate),
            read(&self.key, before.key != now.key),
        ];
        files.extend(self.ca.as_ref().map(|ca| read(ca, before.ca != now.ca)));
        files
    }

    /// The contents of the files, and the material that is made of them.
    ///
    /// # Errors
    /// A text if one cannot be read, is not what it should be, or does not fit the others.
    pub fn material(&self) -> Result<(Contents, Material), String> {
        let contents = self.contents()?;
        let material = Material::of(self, &contents)?;
        Ok((contents, material))
    }

    /// Warns of a key that others can read. Orchestrators mount it so, so that it is no error.
    pub fn warn_of_readers(&self) {
        let mode = fs::metadata(&self.key.path).map(|file| file.permissions().mode());
        if mode.is_ok_and(|mode| mode & READABLE_BY_OTHERS != 0) {
            let (setting, path) = (self.key.setting, self.key.path.display());
            tracing::warn!("{setting} {path}: others than this user can read the key: chmod 600");
        }
    }
}

/// The host by which clients reach this node.
fn clients_host(config: &Config) -> String {
    match &config.advertise {
        Some(address) => host_of(address).to_owned(),
        None => config.listen.ip().to_string(),
    }
}

/// The contents of the files.
#[derive(PartialEq, Eq)]
pub struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    ca: Option<Vec<u8>>,
}

/// The material that was made of the files.
pub struct Material {
    /// The configuration of connections that come. Each port adds its ALPN protocol.
    pub server: ServerConfig,
    /// The certificate and the key that this side shows.
    pub shown: Arc<SingleCertAndKey>,
    /// The certificate itself, and those between it and its CA.
    pub chain: Vec<CertificateDer<'static>>,
    /// The CAs of the other ends. None if they show no certificate.
    pub roots: Arc<RootCertStore>,
    /// The facts in the certificate.
    pub facts: CertificateFacts,
}

/// Which algorithms there are.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

impl Material {
    /// The material that is made of `contents`.
    ///
    /// # Errors
    /// A text if a file is not what it should be, or does not fit the others.
    pub fn of(files: &Files, contents: &Contents) -> Result<Material, String> {
        let provider = provider();
        let chain = files.certificate.certificates(&contents.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|error| {
            files.key.told(&match error {
                pem::Error::NoItemsFound => {
                    "it holds no key that is not encrypted; give one in PEM, without a passphrase"
                        .to_owned()
                }
                other => pem_error(&other),
            })
        })?;
        let shown =
            CertifiedKey::from_der(chain.clone(), key, &provider).map_err(|error| match error {
                Error::InconsistentKeys(_) => files.key.told(&format!(
                    "it is not the key of {} {}; give both of one pair",
                    files.certificate.setting,
                    files.certificate.path.display()
                )),
                other => files.key.told(&format!("it cannot be used: {other}; make another one")),
            })?;
        let facts =
            CertificateFacts::read(&chain[0]).map_err(|why| files.certificate.told(&why))?;
        let roots = Arc::new(match (&files.ca, &contents.ca) {
            (Some(file), Some(bytes)) => roots(file, bytes)?,
            _ => RootCertStore::empty(),
        });
        let verifier = files.ca.as_ref().map(|file| verifier(file, &roots, &provider));
        let verifier = verifier.transpose()?;
        let shown = Arc::new(SingleCertAndKey::from(shown));
        let server = server_config(files, &provider, &shown, verifier.clone())?;
        let material = Material { server, shown, chain, roots, facts };
        if let (Some((cluster, node)), Some(verifier)) = (&files.node, verifier) {
            material.check_name(files, cluster, *node)?;
            material.check_authority(files, &provider, &*verifier)?;
        }
        Ok(material)
    }

    /// Why clients that reach this node by `host` refuse the certificate, if they do.
    pub fn host_refused(&self, host: &str) -> Option<String> {
        let name = ServerName::try_from(host).map_err(|error| error.to_string());
        let refused = name.and_then(|name| {
            let certificate = ParsedCertificate::try_from(&self.chain[0]);
            let verified = certificate.and_then(|parsed| verify_server_name(&parsed, &name));
            verified.map_err(|error| error.to_string())
        });
        refused.err()
    }

    /// Checks that the certificate names this node.
    fn check_name(&self, files: &Files, cluster: &str, node: NodeId) -> Result<(), String> {
        let why = match self.facts.node_of(cluster) {
            Ok(named) if named == node => return Ok(()),
            Ok(named) => {
                format!("it names node {named}, and this is node {node}; give that node's")
            }
            Err(why) => format!("{why}; `ratchet cert node` makes one"),
        };
        Err(files.certificate.told(&why))
    }

    /// Checks that peers with the same CAs take the certificate, as a server's and as a client's. Dates are told, and no error.
    fn check_authority(
        &self, files: &Files, provider: &CryptoProvider, as_clients: &dyn ClientCertVerifier,
    ) -> Result<(), String> {
        if self.facts.invalid_at(SystemTime::now()).is_some() {
            // No peer takes it. The CA cannot be looked at.
            return Ok(());
        }
        let (own, others, now) = (&self.chain[0], &self.chain[1..], UnixTime::now());
        let algorithms = provider.signature_verification_algorithms.all;
        let verified = ParsedCertificate::try_from(own).and_then(|parsed| {
            let roots = &self.roots;
            verify_server_cert_signed_by_trust_anchor(&parsed, roots, others, now, algorithms)?;
            as_clients.verify_client_cert(own, others, now)
        });
        match verified {
            Ok(_) => Ok(()),
            Err(Error::InvalidCertificate(why)) if is_of_time(&why) => {
                tracing::error!("{}", files.certificate.told(&format!("a CA above it: {why}")));
                Ok(())
            }
            Err(error) => {
                let ca = files.ca.as_ref().map(|ca| ca.path.display().to_string());
                Err(files.certificate.told(&format!(
                    "no peer would take it ({error}): a CA in {} has to sign it, for the usages serverAuth and clientAuth",
                    ca.unwrap_or_default()
                )))
            }
        }
    }
}

/// Whether a certificate is refused for its dates alone.
fn is_of_time(why: &CertificateError) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    matches!(why, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

fn roots(file: &NamedFile, bytes: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for (at, certificate) in file.certificates(bytes)?.into_iter().enumerate() {
        let ca = format!("certificate {} in it", at + 1);
        let refused = |why: String| {
            file.told(&format!("{ca} cannot be used: {why}; give the CA's own certificate, as ratchet cert ca writes it"))
        };
        let read = CertificateFacts::of_ca(&certificate).map_err(refused)?;
        if let Some(why) = read.invalid_at(SystemTime::now()) {
            // TLS does not look at the dates of a CA that it is told to believe.
            let why = format!(
                "{ca} {why}, and what it has signed is believed all the same: take it out, or renew it with ratchet cert ca"
            );
            tracing::error!("{}", file.told(&why));
        }
        roots.add(certificate).map_err(|error| refused(error.to_string()))?;
    }
    Ok(roots)
}

/// The CAs in the file that `setting` names, in PEM. All of them can be used.
///
/// # Errors
/// A text if the file cannot be read, or a certificate in it is no CA's.
pub fn cas(setting: &'static str, path: &Path) -> Result<Vec<u8>, String> {
    let file = NamedFile { setting, path: path.to_owned() };
    let bytes = file.read()?;
    roots(&file, &bytes)?;
    Ok(bytes)
}

/// The check of the certificates of those who connect. A connection without one is refused.
fn verifier(
    file: &NamedFile, roots: &Arc<RootCertStore>, provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
    verifier.build().map_err(|error| file.told(&error.to_string()))
}

fn server_config(
    files: &Files, provider: &Arc<CryptoProvider>, shown: &Arc<SingleCertAndKey>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, String> {
    let failed = |error: &dyn std::fmt::Display| files.certificate.told(&error.to_string());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(shown.clone());
    match files.node {
        // No resumption: a peer whose CA was removed has to fail at its next connection. Peers connect rarely.
        Some(_) => {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        // New ticket keys with each reading: a session that began with earlier files is not resumed.
        None => config.ticketer = ring::Ticketer::new().map_err(|error| failed(&error))?,
    }
    Ok(config)
}

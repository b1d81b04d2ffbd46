//! The files of one side: a certificate, its key, and the CAs of the other ends. They are read at the start, and again when
//! their contents change.
//!
//! Invariant: what is in use was whole, and fitted together, when it was read.

use std::{
    fmt, fs, io,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::{
    CertificateError, Error, RootCertStore, ServerConfig,
    client::{verify_server_cert_signed_by_trust_anchor, verify_server_name},
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
};

use super::leaf::Leaf;
use crate::{
    node::{
        Config,
        settings::{ClientTls, PeerTls},
    },
    sequence::NodeId,
};

/// The bits of a file's mode that let others than its user read it.
const READABLE_BY_OTHERS: u32 = 0o044;
/// A file of certificates has a few kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Whoever changes two files does not take longer, as a rule.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often files are read that keep changing.
const READINGS_MAX: usize = 10;
/// How long a disk may take to tell what the files hold.
const READING_TIME_MAX: Duration = Duration::from_secs(10);

/// A file, and the setting that names it.
#[derive(Debug, Clone)]
struct File {
    setting: &'static str,
    path: PathBuf,
}

impl File {
    fn of(setting: &'static str, path: &Option<PathBuf>) -> Option<File> {
        path.clone().map(|path| File { setting, path })
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        let failed = |error: io::Error| self.told(&error.to_string());
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

    fn told(&self, why: &str) -> String {
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
    certificate: File,
    key: File,
    /// The CAs of the other ends. Without it they show no certificate.
    ca: Option<File>,
    /// The node that the certificate must name, if it must name one, and its cluster.
    node: Option<(String, NodeId)>,
    /// The host by which clients reach this node, if they see the certificate.
    host: Option<String>,
}

impl Files {
    /// Those of the ports for clients; `None` if these speak no TLS.
    pub fn for_clients(config: &Config) -> Option<Files> {
        (config.tls != ClientTls::Off).then_some(())?;
        Some(Files {
            certificate: File::of("tls_cert", &config.tls_cert)?,
            key: File::of("tls_key", &config.tls_key)?,
            ca: File::of("tls_client_ca", &config.tls_client_ca),
            node: None,
            host: Some(host_of(config)),
        })
    }

    /// Those for peers; `None` if no connection to or from a peer speaks TLS.
    pub fn for_peers(config: &Config) -> Option<Files> {
        (config.peer_tls != PeerTls::Off).then_some(())?;
        Some(Files {
            certificate: File::of("peer_tls_cert", &config.peer_tls_cert)?,
            key: File::of("peer_tls_key", &config.peer_tls_key)?,
            ca: Some(File::of("peer_tls_ca", &config.peer_tls_ca)?),
            node: Some((config.cluster.clone(), config.node_id)),
            host: None,
        })
    }

    /// The contents of all.
    ///
    /// # Errors
    /// A text if one cannot be read.
    fn contents(&self) -> Result<Contents, String> {
        Ok(Contents {
            certificate: self.certificate.read()?,
            key: self.key.read()?,
            ca: self.ca.as_ref().map(File::read).transpose()?,
        })
    }

    fn material(&self) -> Result<(Contents, Material), String> {
        let contents = self.contents()?;
        let material = Material::of(self, &contents)?;
        Ok((contents, material))
    }

    /// Warns of a key that others can read. Orchestrators mount it so, so that it is no error.
    fn warn_of_readers(&self) {
        let mode = fs::metadata(&self.key.path).map(|file| file.permissions().mode());
        if mode.is_ok_and(|mode| mode & READABLE_BY_OTHERS != 0) {
            let (setting, path) = (self.key.setting, self.key.path.display());
            tracing::warn!("{setting} {path}: others than this user can read the key: chmod 600");
        }
    }
}

/// The host by which clients reach this node.
fn host_of(config: &Config) -> String {
    let host = config.advertise.as_ref().and_then(|address| address.rsplit_once(':'));
    let host = host.map_or_else(|| config.listen.ip().to_string(), |(host, _)| host.to_owned());
    host.trim_matches(['[', ']']).to_owned()
}

/// Runs what reads files.
///
/// # Errors
/// What it answers, and a text if it panics.
async fn off_the_workers<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let reading = tokio::task::spawn_blocking(read);
    reading.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// What the files hold.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    ca: Option<Vec<u8>>,
}

/// What was made of the files.
pub struct Material {
    /// The configuration of connections that come. Each port adds its ALPN protocol.
    pub server: ServerConfig,
    /// What this side shows.
    pub shown: Arc<SingleCertAndKey>,
    chain: Vec<CertificateDer<'static>>,
    /// The CAs of the other ends. None if they show no certificate.
    pub roots: Arc<RootCertStore>,
    leaf: Leaf,
}

/// Which algorithms there are.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

impl Material {
    fn of(files: &Files, contents: &Contents) -> Result<Material, String> {
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
        let leaf = Leaf::read(&chain[0]).map_err(|why| files.certificate.told(&why))?;
        let roots = Arc::new(match (&files.ca, &contents.ca) {
            (Some(file), Some(bytes)) => roots(file, bytes)?,
            _ => RootCertStore::empty(),
        });
        let shown = Arc::new(SingleCertAndKey::from(shown));
        let server = server_config(files, &provider, &shown, roots.clone())?;
        let material = Material { server, shown, chain, roots, leaf };
        material.check_node(files, &provider)?;
        Ok(material)
    }

    /// Why clients that reach this node by `host` refuse the certificate, if they do.
    fn host_refused(&self, host: &str) -> Option<String> {
        let name = ServerName::try_from(host).map_err(|error| error.to_string());
        let refused = name.and_then(|name| {
            let leaf = ParsedCertificate::try_from(&self.chain[0]);
            let verified = leaf.and_then(|leaf| verify_server_name(&leaf, &name));
            verified.map_err(|error| error.to_string())
        });
        refused.err()
    }

    /// Checks what peers will look for: the node's name, and the CA.
    fn check_node(&self, files: &Files, provider: &Arc<CryptoProvider>) -> Result<(), String> {
        let Some((cluster, node)) = &files.node else {
            return Ok(());
        };
        let complain = |why: String| Err(files.certificate.told(&why));
        match self.leaf.node_of(cluster) {
            Ok(named) if named == *node => {}
            Ok(named) => {
                return complain(format!(
                    "it names node {named}, and this is node {node}; give that node's"
                ));
            }
            Err(why) => return complain(format!("{why}; `ratchet cert node` makes one")),
        }
        if self.leaf.invalid_at(SystemTime::now()).is_some() {
            // It is told, and no peer takes it. The CA cannot be looked at.
            return Ok(());
        }
        let parsed = ParsedCertificate::try_from(&self.chain[0]);
        let algorithms = provider.signature_verification_algorithms.all;
        let verified = parsed.and_then(|leaf| {
            let (roots, others) = (&self.roots, &self.chain[1..]);
            verify_server_cert_signed_by_trust_anchor(
                &leaf,
                roots,
                others,
                UnixTime::now(),
                algorithms,
            )
        });
        let client =
            WebPkiClientVerifier::builder_with_provider(self.roots.clone(), provider.clone());
        let client = client.build().map_err(|error| files.certificate.told(&error.to_string()))?;
        let shown_to_peers = || {
            client.verify_client_cert(&self.chain[0], &self.chain[1..], UnixTime::now()).map(drop)
        };
        match verified.and_then(|()| shown_to_peers()) {
            Ok(()) => Ok(()),
            // It is told, as for the certificate itself.
            Err(Error::InvalidCertificate(why)) if is_of_time(&why) => {
                tracing::error!("{}", files.certificate.told(&format!("a CA above it: {why}")));
                Ok(())
            }
            Err(error) => complain(format!(
                "no peer would take it ({error}): a CA in {} has to sign it, for the usages serverAuth and clientAuth",
                files.ca.as_ref().map_or_else(String::new, |ca| ca.path.display().to_string())
            )),
        }
    }
}

/// Whether a certificate is refused for its dates alone.
fn is_of_time(why: &CertificateError) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    matches!(why, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

fn roots(file: &File, bytes: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in file.certificates(bytes)? {
        roots
            .add(certificate)
            .map_err(|error| file.told(&format!("one of its certificates is no CA's: {error}")))?;
    }
    Ok(roots)
}

fn server_config(
    files: &Files, provider: &Arc<CryptoProvider>, shown: &Arc<SingleCertAndKey>,
    roots: Arc<RootCertStore>,
) -> Result<ServerConfig, String> {
    let failed = |error: &dyn std::fmt::Display| files.certificate.told(&error.to_string());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?;
    let builder = match roots.is_empty() {
        true => builder.with_no_client_auth(),
        false => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
            builder.with_client_cert_verifier(verifier.build().map_err(|error| failed(&error))?)
        }
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

/// The certificates of one side, as they were read last.
pub struct Certificates {
    files: Files,
    current: ArcSwap<Material>,
    contents: Mutex<Contents>,
    told: Mutex<Told>,
}

/// What was told, so that it is told once.
#[derive(Default)]
struct Told {
    /// Of files that cannot be used.
    of_files: Once,
    /// Of the certificate in use.
    of_use: Once,
}

/// The last text that was told of something that may be wrong; empty while nothing is.
#[derive(Default)]
struct Once(String);

impl Once {
    fn tell(&mut self, why: Option<String>) {
        if let Some(why) = &why
            && *why != self.0
        {
            tracing::error!("{why}");
        }
        self.0 = why.unwrap_or_default();
    }
}

impl fmt::Debug for Certificates {
    /// Without what the files hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Certificates").field(&self.files).finish()
    }
}

impl Certificates {
    /// Reads the files; once more if they do not fit together, since they may be half way through a change.
    ///
    /// # Errors
    /// A text if one cannot be read, is not what it should be, or does not fit the others.
    pub async fn read(files: Files) -> Result<Certificates, String> {
        let (contents, material) = match files.material() {
            Ok(read) => read,
            Err(_) => {
                sleep(AGAIN_AFTER).await;
                files.material()?
            }
        };
        files.warn_of_readers();
        let certificates = Certificates {
            current: ArcSwap::from_pointee(material),
            contents: Mutex::new(contents),
            told: Mutex::default(),
            files,
        };
        certificates.tell_host(&certificates.current.load());
        certificates.told.lock().of_use.tell(certificates.invalid());
        Ok(certificates)
    }

    /// What is in use.
    pub fn current(&self) -> Arc<Material> {
        self.current.load_full()
    }

    /// For how many seconds the certificate is valid; fewer than 0 if it has ended.
    pub fn seconds_left(&self) -> f64 {
        let left = self.current.load().leaf.seconds_left(SystemTime::now());
        #[allow(clippy::cast_precision_loss)] // Less than 2^52 s.
        let left = left as f64;
        left
    }

    /// Takes the files if their contents have changed. They may be half way through a change, so that they are read twice, and
    /// taken, or told, if they stay the same. Until then, and where they do not fit together, those before stay in use.
    pub async fn refresh(self: &Arc<Self>) {
        let why = match self.take_changes().await {
            Ok(true) => {
                let current = self.current.load();
                tracing::info!(
                    cas = current.roots.len(),
                    days_left = current.leaf.seconds_left(SystemTime::now()) / 86_400,
                    "{}",
                    self.files.certificate.told("changed files are in use")
                );
                None
            }
            Ok(false) => None,
            Err(why) => Some(format!("{why}; what was read before stays in use")),
        };
        self.told.lock().of_files.tell(why);
        self.told.lock().of_use.tell(self.invalid());
    }

    /// Whether the contents had changed, and are in use now.
    async fn take_changes(self: &Arc<Self>) -> Result<bool, String> {
        let mut contents = self.read_again().await;
        if contents.as_ref().is_ok_and(|contents| *contents == *self.contents.lock()) {
            return Ok(false);
        }
        for _ in 0..READINGS_MAX {
            sleep(AGAIN_AFTER).await;
            let again = self.read_again().await;
            if again == contents {
                let (certificates, contents) = (self.clone(), contents?);
                return off_the_workers(move || certificates.take(contents)).await.map(|()| true);
            }
            contents = again;
        }
        Err(self.files.certificate.told("it, its key or the CAs keep changing; write them once"))
    }

    async fn read_again(&self) -> Result<Contents, String> {
        let files = self.files.clone();
        let reading = timeout(READING_TIME_MAX, off_the_workers(move || files.contents())).await;
        reading.unwrap_or_else(|_| Err(self.files.certificate.told("its disk does not answer")))
    }

    fn take(&self, contents: Contents) -> Result<(), String> {
        let material = Material::of(&self.files, &contents)?;
        // The CAs are taken even if the certificate in use has expired.
        if material.chain != self.current.load().chain
            && let Some(why) = self.why_invalid(&material)
        {
            return Err(why);
        }
        self.files.warn_of_readers();
        self.tell_host(&material);
        self.current.store(Arc::new(material));
        *self.contents.lock() = contents;
        Ok(())
    }

    /// Warns of a certificate that clients refuse which go to the address that this node tells them.
    fn tell_host(&self, material: &Material) {
        if let Some(host) = &self.files.host
            && let Some(why) = material.host_refused(host)
        {
            let why = format!("clients that reach this node by {host} refuse it ({why})");
            tracing::warn!("{}; make it for that host, too", self.files.certificate.told(&why));
        }
    }

    fn invalid(&self) -> Option<String> {
        self.why_invalid(&self.current.load())
    }

    fn why_invalid(&self, material: &Material) -> Option<String> {
        let why = material.leaf.invalid_at(SystemTime::now())?;
        Some(self.files.certificate.told(&format!("it {why}; give another one")))
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::server::tls::made::{Ca, YEAR, ca, leaf};

    /// The files of node 1, and where they are.
    struct Written {
        dir: TempDir,
        config: Config,
    }

    impl Written {
        fn new(ca: &Ca, [certificate, key]: &[String; 2]) -> Written {
            let dir = TempDir::new().expect("a directory");
            let path = |name: &str| Some(dir.path().join(name));
            let config = Config {
                cluster: "test".to_owned(),
                peer_tls: PeerTls::Require,
                peer_tls_cert: path("crt"),
                peer_tls_key: path("key"),
                peer_tls_ca: path("ca"),
                ..Config::default()
            };
            let written = Written { dir, config };
            for (name, text) in [("crt", certificate), ("key", key), ("ca", &ca.pem())] {
                written.write(name, text);
            }
            written
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.dir.path().join(name), text).expect("written");
        }

        async fn read(&self) -> Result<Arc<Certificates>, String> {
            let files = Files::for_peers(&self.config).expect("TLS is on");
            Certificates::read(files).await.map(Arc::new)
        }

        async fn refused(&self, what: &[&str]) {
            let refused = self.read().await.map(drop).expect_err("it cannot be used");
            for text in what {
                assert!(refused.contains(text), "{refused}: {text}");
            }
            assert!(!refused.contains('\n'), "{refused}");
            assert!(!refused.contains("PRIVATE"), "{refused}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_cannot_be_used_are_refused_by_name_and_with_what_to_do() {
        let (ca_1, ca_2) = (ca(), ca());
        let (mine, other) = (leaf(&ca_1, 1, YEAR), leaf(&ca_1, 1, YEAR));
        let with = |name: &str, text: &str| {
            let written = Written::new(&ca_1, &mine);
            written.write(name, text);
            written
        };
        with("crt", &mine[0]).read().await.expect("all fit");
        let cut = |text: &str| text[..text.len() / 2].to_owned();
        with("crt", &cut(&mine[0])).refused(&["peer_tls_cert ", "/crt: it breaks off"]).await;
        with("crt", "").refused(&["peer_tls_cert ", "it holds no certificate"]).await;
        with("crt", &mine[1]).refused(&["peer_tls_cert ", "it holds no certificate"]).await;
        with("key", &cut(&mine[1])).refused(&["peer_tls_key ", "/key: it breaks off"]).await;
        with("key", &mine[0]).refused(&["peer_tls_key ", "without a passphrase"]).await;
        with("key", &other[1])
            .refused(&["peer_tls_key ", "is not the key of peer_tls_cert "])
            .await;
        with("ca", &mine[1]).refused(&["peer_tls_ca ", "it holds no certificate"]).await;
        with("ca", &ca_2.pem())
            .refused(&["peer_tls_cert ", "no peer would take it", "/ca has to sign it"])
            .await;
        let of_2 = leaf(&ca_1, 2, YEAR);
        Written::new(&ca_1, &of_2)
            .refused(&["peer_tls_cert ", "it names node 2, and this is node 1"])
            .await;
        let mut missing = with("crt", &mine[0]);
        missing.config.peer_tls_key = Some("/nowhere/key".into());
        missing.refused(&["peer_tls_key /nowhere/key: No such file"]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_not_valid_is_told_and_does_not_keep_a_node_from_starting() {
        let ca = ca();
        for (days, why) in [([-2, -1], "has expired"), ([1, 2], "is not valid yet")] {
            let written = Written::new(&ca, &leaf(&ca, 1, days));
            let certificates = written.read().await.expect("it starts");
            let told = certificates.invalid().expect("it is told");
            assert!(told.contains("peer_tls_cert ") && told.contains(why), "{told}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_change_are_taken_when_they_fit_and_those_before_stay_in_use_until_then() {
        let ca_1 = ca();
        let (first, second) = (leaf(&ca_1, 1, YEAR), leaf(&ca_1, 1, [-1, 400]));
        let written = Written::new(&ca_1, &first);
        let certificates = written.read().await.expect("all fit");
        let shown = |certificates: &Certificates| certificates.current().chain.clone();
        let before = shown(&certificates);
        certificates.refresh().await;
        assert_eq!(shown(&certificates), before);
        // Half of a change.
        written.write("crt", &second[0]);
        certificates.refresh().await;
        assert_eq!(shown(&certificates), before);
        assert!(certificates.told.lock().of_files.0.contains("is not the key of"));
        written.write("key", &second[1]);
        certificates.refresh().await;
        assert_ne!(shown(&certificates), before);
        assert_eq!(certificates.told.lock().of_files.0, "");
        // One that has expired is worse than the one in use.
        let [certificate, key] = leaf(&ca_1, 1, [-2, -1]);
        let used = shown(&certificates);
        written.write("crt", &certificate);
        written.write("key", &key);
        certificates.refresh().await;
        assert_eq!(shown(&certificates), used);
        assert!(certificates.told.lock().of_files.0.contains("has expired"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_printed_of_certificates_has_no_key() {
        let ca = ca();
        let files = leaf(&ca, 1, YEAR);
        let printed = format!("{:?}", Written::new(&ca, &files).read().await.expect("all fit"));
        assert!(printed.contains("peer_tls_key"), "{printed}");
        let bytes = format!("{:?}", &files[1].as_bytes()[..20]);
        let inner = bytes.trim_matches(['[', ']']);
        assert!(!printed.contains("BEGIN") && !printed.contains(inner), "{printed}");
    }
}

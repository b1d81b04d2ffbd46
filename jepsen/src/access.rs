//! The credentials of callers of a secure cluster, the CA that they believe, and how such a cluster is founded.

use std::{
    fmt, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use ratchet_client::{Builder, Tls};
use tokio::process::Command;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};
use tonic::metadata::{Ascii, MetadataValue};

/// The protocol of a port of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC, over HTTP/2.
    Grpc,
    /// HTTP/1.1.
    Http,
    /// The protocol of Redis clients.
    Resp,
}

impl Protocol {
    /// Its name in ALPN, if it has one.
    fn alpn(self) -> Option<&'static [u8]> {
        match self {
            Protocol::Grpc => Some(b"h2"),
            Protocol::Http => Some(b"http/1.1"),
            Protocol::Resp => None,
        }
    }
}

/// Where the secrets of callers are: the CA, a certificate for clients, and a token.
#[derive(Debug, Clone)]
pub struct Files {
    /// The node's program, which founds the cluster.
    pub binary: PathBuf,
    /// The certificates of the CAs, in PEM.
    pub ca: PathBuf,
    /// The certificate that callers show, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
    /// The token that callers show, which may do everything.
    pub token: PathBuf,
}

/// The credentials of callers, and the CA that they believe.
#[derive(Clone)]
pub struct Access {
    files: Files,
    tls: Tls,
    /// The connector of each protocol.
    grpc: TlsConnector,
    http: TlsConnector,
    resp: TlsConnector,
    token: Option<Token>,
}

/// A token, as text and as the value of the header `authorization`.
#[derive(Clone)]
struct Token {
    text: String,
    authorization: MetadataValue<Ascii>,
}

impl fmt::Debug for Access {
    /// Leaves the secrets out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Access {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, or its content is of another kind.
    pub fn read(files: Files) -> io::Result<Access> {
        let [ca, certificate, key] =
            [&files.ca, &files.certificate, &files.key].map(|file| read(file));
        let (ca, certificate, key) = (ca?, certificate?, key?);
        let connector = |protocol: Protocol| {
            let mut config = config(&ca, &certificate, &key)?;
            config.alpn_protocols = protocol.alpn().map(<[u8]>::to_vec).into_iter().collect();
            Ok::<_, io::Error>(TlsConnector::from(Arc::new(config)))
        };
        let text = String::from_utf8(read(&files.token)?).map_err(|_| no_token(&files.token))?;
        let text = text.trim_end().to_owned();
        let authorization = MetadataValue::try_from(format!("Bearer {text}"));
        let mut authorization = authorization.map_err(|_| no_token(&files.token))?;
        authorization.set_sensitive(true);
        Ok(Access {
            tls: Tls::new(&ca).identity(&certificate, &key),
            grpc: connector(Protocol::Grpc)?,
            http: connector(Protocol::Http)?,
            resp: connector(Protocol::Resp)?,
            token: Some(Token { text, authorization }),
            files,
        })
    }

    /// The same credentials without the token.
    #[must_use]
    pub fn without_token(&self) -> Access {
        Access { token: None, ..self.clone() }
    }

    /// The connector that shakes hands with a port of a node. All connections to ports of a protocol share its tickets.
    pub fn connector(&self, protocol: Protocol) -> &TlsConnector {
        match protocol {
            Protocol::Grpc => &self.grpc,
            Protocol::Http => &self.http,
            Protocol::Resp => &self.resp,
        }
    }

    /// The token, as Redis clients show it.
    pub fn token(&self) -> Option<&str> {
        self.token.as_ref().map(|token| token.text.as_str())
    }

    /// The value of the header `authorization`, which shows the token.
    pub fn authorization(&self) -> Option<&MetadataValue<Ascii>> {
        self.token.as_ref().map(|token| &token.authorization)
    }

    /// The same credentials for the product's client.
    pub fn of_client(&self, builder: Builder) -> Builder {
        let builder = builder.tls(self.tls.clone());
        match self.token() {
            Some(token) => builder.token(token),
            None => builder,
        }
    }

    /// Founds a cluster of the node at `server` and its peers, with the token, by `ratchet found`. Only a caller with a
    /// certificate may do so. The same cluster may be founded again: then nothing changes.
    ///
    /// # Errors
    /// The message of the command if it fails.
    pub async fn found(&self, server: SocketAddr) -> Result<(), String> {
        let Files { binary, ca, certificate, key, token } = &self.files;
        let ran = Command::new(binary)
            .arg("found")
            .arg(format!("--server={server}"))
            .arg(format!("--tls-ca={}", ca.display()))
            .arg(format!("--tls-cert={}", certificate.display()))
            .arg(format!("--tls-key={}", key.display()))
            .arg(format!("--admin-token-file={}", token.display()))
            // A token that a variable names would be shown instead of the certificate.
            .env_clear()
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await;
        match ran {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(format!("{}: {error}", binary.display())),
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn no_token(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} holds no token", path.display()))
}

fn config(ca: &[u8], certificate: &[u8], key: &[u8]) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(ca) {
        roots.add(ca.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let shown: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    // The message of a parser may hold a part of the key.
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the key of callers is no PEM"))?;
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_client_auth_cert(shown.map_err(io::Error::other)?, key)
        .map_err(io::Error::other)
}

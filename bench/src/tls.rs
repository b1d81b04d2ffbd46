//! The options for a running cluster that speaks TLS, and the certificates that they name.

use std::{fs, path::PathBuf, sync::Arc};

use clap::Args;
use ratchet_client::Tls;
use tokio_rustls::rustls::{
    self, ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::error::Error;

/// The options for a cluster that speaks TLS.
#[derive(Debug, Clone, Args)]
pub struct TlsOptions {
    /// Connect to --server over TLS, and believe servers whose certificates a CA in this PEM file has signed
    #[arg(long, value_name = "FILE", requires = "server")]
    pub tls_ca: Option<PathBuf>,
    /// The certificate to show to servers that let no others in, a PEM file
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate, a PEM file
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_cert"])]
    pub tls_key: Option<PathBuf>,
}

impl TlsOptions {
    /// The certificates that the options name; `None` without a CA.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn read(&self) -> Result<Option<Certificates>, Error> {
        let read = |flag: &str, path: &PathBuf| {
            fs::read(path).map_err(|error| {
                Error::config(format!("cannot read {flag} {}: {error}", path.display()))
            })
        };
        let Some(ca) = &self.tls_ca else {
            return Ok(None);
        };
        let ca = read("--tls-ca", ca)?;
        let identity = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Some((read("--tls-cert", cert)?, read("--tls-key", key)?)),
            _ => None,
        };
        Ok(Some(Certificates { ca, identity }))
    }
}

/// The certificates for connections over TLS.
pub struct Certificates {
    ca: Vec<u8>,
    /// The certificate to show, and its key.
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    /// The same for the Rust client, which checks them.
    pub fn of_client(&self) -> Tls {
        let tls = Tls::new(&self.ca);
        match &self.identity {
            Some((cert, key)) => tls.identity(cert, key),
            None => tls,
        }
    }

    /// The same for connections without the Rust client.
    pub fn of_connection(&self) -> ClientTlsConfig {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca));
        match &self.identity {
            Some((cert, key)) => tls.identity(Identity::from_pem(cert, key)),
            None => tls,
        }
    }

    /// The same for connections that do not speak gRPC, or not by tonic. They offer this ALPN protocol, if there is one.
    ///
    /// # Errors
    /// If a certificate or the key cannot be used.
    pub fn of_socket(&self, protocol: Option<&str>) -> Result<ClientConfig, Error> {
        let mut roots = RootCertStore::empty();
        for ca in certificates("the CA", &self.ca)? {
            roots.add(ca).map_err(|error| unusable("the CA", &error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("TLS", &error))?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            Some((cert, key)) => {
                let shown = certificates("the certificate to show", cert)?;
                let shown = builder.with_client_auth_cert(shown, private_key(key)?);
                shown.map_err(|error| unusable("the certificate to show, or its key,", &error))?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = protocol.map(|name| name.as_bytes().to_vec()).into_iter().collect();
        Ok(config)
    }
}

/// The certificates in a PEM.
///
/// # Errors
/// If one of them is malformed.
pub fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(pem).collect();
    read.map_err(|error| Error::config(format!("{what} is no PEM that can be read: {error}")))
}

/// The key in a PEM. The parser's message is not told: it may hold a part of the key.
///
/// # Errors
/// If there is none, or it is malformed.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
    let wrong = "the key is no PEM that can be read; give one without a passphrase";
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| Error::config(wrong))
}

fn unusable(what: &str, error: &rustls::Error) -> Error {
    Error::config(format!("{what} cannot be used: {error}"))
}

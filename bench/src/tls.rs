//! The options for a running cluster that speaks TLS, and the certificates that they name.

use std::{fs, path::PathBuf};

use clap::Args;
use ratchet_client::Tls;
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
}

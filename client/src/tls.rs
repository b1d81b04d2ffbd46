//! TLS: which servers a client believes, and the certificate that it shows them.
//!
//! Invariant: certificates and keys that no connection could use are refused when the client is built.

use std::fmt;

use rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::error::Error;

/// The certificates of a client whose connections are TLS: see [`Builder::tls`](crate::Builder::tls).
#[derive(Clone)]
#[must_use]
pub struct Tls {
    ca_pem: Vec<u8>,
    /// The PEM of the client's certificate, and that of its key.
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Tls {
    /// Writes no certificate and no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tls = f.debug_struct("Tls");
        tls.field("has_identity", &self.identity.is_some()).finish_non_exhaustive()
    }
}

impl Tls {
    /// Believes servers whose certificates one of these CAs has signed, and no others: the CAs that the system trusts do
    /// not count. The PEM has one certificate or several.
    pub fn new(ca_pem: impl AsRef<[u8]>) -> Tls {
        Tls { ca_pem: ca_pem.as_ref().to_vec(), identity: None }
    }

    /// Sets the certificate that servers are shown, and its key, for servers that let no others in. Certificates of CAs
    /// between it and the server's CA come after it in the same PEM. The key is not encrypted.
    pub fn identity(mut self, cert_pem: impl AsRef<[u8]>, key_pem: impl AsRef<[u8]>) -> Tls {
        self.identity = Some((cert_pem.as_ref().to_vec(), key_pem.as_ref().to_vec()));
        self
    }

    /// The TLS configuration of connections.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a PEM is malformed or lacks its certificate or key, or the key is that of another
    /// certificate.
    pub(crate) fn config(&self) -> Result<ClientTlsConfig, Error> {
        const CA: &str = "the certificate of the CA";
        let mut roots = RootCertStore::empty();
        for ca in certificates(CA, &self.ca_pem)? {
            roots.add(ca).map_err(|error| invalid(CA, &error, CERTIFICATE))?;
        }
        let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca_pem));
        let Some((cert_pem, key_pem)) = &self.identity else {
            return Ok(config);
        };
        certificates("the client's certificate", cert_pem)?;
        PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| match error {
            pem::Error::NoItemsFound => {
                invalid("the client's key", "the PEM has no key that is not encrypted", KEY)
            }
            error => invalid("the client's key", hiding(error), KEY),
        })?;
        let config = config.identity(Identity::from_pem(cert_pem, key_pem));
        // Only this looks into the key.
        match Endpoint::from_static("https://localhost").tls_config(config.clone()) {
            Ok(_) => Ok(config),
            Err(error) => Err(invalid(
                "the client's certificate or its key",
                std::error::Error::source(&error).map_or_else(String::new, ToString::to_string),
                "give a certificate, and the key that it was made for",
            )),
        }
    }
}

/// The advice about a PEM without a certificate.
const CERTIFICATE: &str = "give a whole PEM file, with -----BEGIN CERTIFICATE-----";
/// The advice about a PEM without a key.
const KEY: &str = "give a whole PEM file, with -----BEGIN PRIVATE KEY-----";

/// The certificates in a PEM, at least one.
fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| invalid(what, hiding(error), CERTIFICATE))?;
    match read.is_empty() {
        true => Err(invalid(what, "the PEM has none", CERTIFICATE)),
        false => Ok(read),
    }
}

/// The error in a PEM. The line itself is not told: it may be a part of a key.
fn hiding(error: pem::Error) -> String {
    match error {
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is malformed".to_owned(),
        pem::Error::MissingSectionEnd { .. } => "a BEGIN line has no END line".to_owned(),
        error => error.to_string(),
    }
}

fn invalid(what: &str, why: impl fmt::Display, advice: &str) -> Error {
    Error::Invalid(format!("{what} cannot be used: {why}; {advice}"))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A certificate that has signed itself, and its key, as PEM.
    fn made() -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let cert = CertificateParams::default().self_signed(&key).expect("a certificate");
        (cert.pem(), key.serialize_pem())
    }

    fn refusal(tls: &Tls) -> String {
        match tls.config() {
            Err(Error::Invalid(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_ca_is_refused_with_what_is_wrong() {
        let (ca, key) = made();
        Tls::new(&ca).config().expect("a CA");
        Tls::new(ca.clone() + &made().0).config().expect("two");
        let cut = &ca[..ca.len() / 2];
        let no_der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (pem, why) in [
            ("", "the PEM has none"),
            (&key, "the PEM has none"),
            (cut, "a BEGIN line has no END line"),
            (&(ca.clone() + cut), "a BEGIN line has no END line"),
            (&ca.replace("MII", "M#I"), "base64"),
            (no_der, "BadEncoding"),
        ] {
            let refused = refusal(&Tls::new(pem));
            assert!(refused.starts_with("the certificate of the CA cannot be used: "), "{refused}");
            assert!(refused.contains(why) && refused.contains("; give a whole PEM"), "{refused}");
        }
    }

    #[test]
    fn a_certificate_of_the_client_without_its_key_is_refused() {
        let ((ca, _), (cert, key), (_, other)) = (made(), made(), made());
        let of = |cert: &str, key: &str| Tls::new(&ca).identity(cert, key);
        of(&cert, &key).config().expect("a certificate and its key");
        let encrypted = key.replace("PRIVATE", "ENCRYPTED PRIVATE");
        for (cert, key, what, why) in [
            (&*key, &*key, "the client's certificate", "the PEM has none"),
            (&cert[..99], &key, "the client's certificate", "has no END line"),
            (&cert, "", "the client's key", "no key that is not encrypted"),
            (&cert, &cert, "the client's key", "no key that is not encrypted"),
            (&cert, &encrypted, "the client's key", "no key that is not encrypted"),
            (&cert, &key[..99], "the client's key", "has no END line"),
            (&cert, &other, "the client's certificate or its key", "KeyMismatch"),
        ] {
            let refused = refusal(&of(cert, key));
            assert!(refused.starts_with(&format!("{what} cannot be used: ")), "{refused}");
            assert!(refused.contains(why) && refused.contains("; give "), "{refused}");
        }
    }

    #[test]
    fn no_key_is_printed() {
        let (cert, key) = made();
        let tls = Tls::new(&cert).identity(&cert, &key);
        assert_eq!(format!("{tls:?}"), "Tls { has_identity: true, .. }");
        let shown = format!("{:?}", crate::Client::builder().tls(tls));
        assert!(shown.contains("Tls {") && !shown.contains("PRIVATE"), "{shown}");
    }
}

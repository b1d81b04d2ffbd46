//! The facts in a certificate: the names in it, and the time in which it is valid. A URI in it names a node or a client.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::{
    certificate::X509Certificate, extensions::GeneralName, parse_x509_certificate, time::ASN1Time,
    x509::X509Version,
};

use crate::sequence::{NodeId, node_uri};

/// The facts in the certificate of one end of a connection.
#[derive(Debug)]
pub struct CertificateFacts {
    /// The URIs that it names.
    uris: Vec<String>,
    /// From when it is valid, in seconds since 1970.
    begins: i64,
    /// Until when it is valid, in seconds since 1970.
    ends: i64,
}

impl CertificateFacts {
    /// The facts in `certificate`.
    ///
    /// # Errors
    /// A text if it is no certificate.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<CertificateFacts, String> {
        CertificateFacts::of(&parse(certificate)?)
    }

    fn of(parsed: &X509Certificate<'_>) -> Result<CertificateFacts, String> {
        let uris = uris(parsed)?;
        let validity = parsed.validity();
        let seconds = |time: ASN1Time| time.timestamp();
        Ok(CertificateFacts {
            uris,
            begins: seconds(validity.not_before),
            ends: seconds(validity.not_after),
        })
    }

    /// The facts in `certificate`, which is to be a CA's.
    ///
    /// # Errors
    /// A text if it is no certificate, or says that it is no CA's. Certificates of X.509 before version 3 do not say.
    pub fn of_ca(certificate: &CertificateDer<'_>) -> Result<CertificateFacts, String> {
        let parsed = parse(certificate)?;
        match parsed.version() == X509Version::V3 && !parsed.is_ca() {
            true => Err("it is no CA's".to_owned()),
            false => CertificateFacts::of(&parsed),
        }
    }

    /// The node of `cluster` that it names.
    ///
    /// # Errors
    /// A text if it names none, or several.
    pub fn node_of(&self, cluster: &str) -> Result<NodeId, String> {
        let named: Vec<&String> =
            self.uris.iter().filter(|uri| uri.starts_with("ratchet:")).collect();
        let [uri] = named[..] else {
            return Err(format!(
                "it names {named:?}, and has to name one node, as {}",
                node_uri(cluster, 1)
            ));
        };
        let id = uri.rsplit('/').next().and_then(|id| id.parse().ok());
        id.filter(|id| node_uri(cluster, *id) == *uri)
            .ok_or_else(|| format!("it names {uri}, which is no node of cluster {cluster:?}"))
    }

    /// The URI by which a client is known. `None` if it names none, or several.
    pub fn client(&self) -> Option<&str> {
        match &self.uris[..] {
            [uri] => Some(uri),
            _ => None,
        }
    }

    /// For how many seconds it is still valid at `now`; fewer than 0 if it has ended.
    pub fn seconds_left(&self, now: SystemTime) -> i64 {
        self.ends.saturating_sub(seconds_of(now))
    }

    /// Why it is not valid at `now`, if it is not.
    pub fn invalid_at(&self, now: SystemTime) -> Option<&'static str> {
        let now = seconds_of(now);
        match (now < self.begins, now > self.ends) {
            (true, _) => Some("is not valid yet"),
            (false, true) => Some("has expired"),
            (false, false) => None,
        }
    }
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    let parsed = parse_x509_certificate(certificate);
    parsed.map(|(_, parsed)| parsed).map_err(|error| format!("it is no certificate: {error}"))
}

fn uris(certificate: &X509Certificate<'_>) -> Result<Vec<String>, String> {
    let names = certificate
        .subject_alternative_name()
        .map_err(|error| format!("its alternative names cannot be read: {error}"))?;
    let names = names.map(|names| &names.value.general_names);
    let uris = names.into_iter().flatten().filter_map(|name| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    });
    Ok(uris.collect())
}

fn seconds_of(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    i64::try_from(since).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_rustls::rustls::pki_types::pem::PemObject;

    use super::{super::tests as tests_of_tls, *};

    fn facts(uris: &[&str]) -> CertificateFacts {
        let uris = uris.iter().map(|uri| (*uri).to_owned()).collect();
        CertificateFacts { uris, begins: 100, ends: 200 }
    }

    #[test]
    fn a_ca_is_one_that_says_so() {
        let ca = tests_of_tls::ca();
        CertificateFacts::of_ca(ca.der()).expect("a CA");
        let [pem, _] = tests_of_tls::pair(&ca, 1, tests_of_tls::YEAR);
        let of_node = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
        assert_eq!(CertificateFacts::of_ca(&of_node).expect_err("a node's"), "it is no CA's");
    }

    #[test]
    fn the_node_is_the_one_of_the_cluster_whose_uri_the_certificate_has() {
        assert_eq!(facts(&["ratchet://prod/7", "https://example.com"]).node_of("prod"), Ok(7));
        for none in [
            &["ratchet://prod/7", "ratchet://prod/8"][..],
            &["ratchet://prod/07"],
            &["ratchet://prod/+7"],
            &["ratchet://prod/client/7"],
            &["ratchet://other/7"],
            &["ratchet://prod/7/"],
            &["https://prod/7"],
            &[],
        ] {
            assert!(facts(none).node_of("prod").is_err(), "{none:?}");
        }
    }

    #[test]
    fn a_certificate_is_valid_from_its_first_second_to_its_last() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let facts = facts(&[]);
        let invalid = [99, 100, 200, 201].map(|second| facts.invalid_at(at(second)));
        assert_eq!(invalid, [Some("is not valid yet"), None, None, Some("has expired")]);
        assert_eq!((facts.seconds_left(at(150)), facts.seconds_left(at(260))), (50, -60));
    }
}

//! Makes keys and certificates: a CA, and what it signs.
//!
//! Times are seconds since 1970. Each key is new, and each serial number random. Errors are for the user, and never hold a
//! key.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
    date_time_ymd, string::Ia5String,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use x509_parser::{oid_registry::OID_X509_COMMON_NAME, prelude::*};

use crate::random;

const DAY: u64 = 24 * 60 * 60;
/// Certificates are valid from this long before they are made: clocks differ.
const BACKDATED: u64 = 60 * 60;
/// The end of the year 9999, the last that a certificate can name.
const LAST: u64 = 253_402_300_799;

/// A certificate and its key, as PEM. It is not `Debug`, so that no key is printed.
pub struct Pair {
    pub certificate: String,
    pub key: String,
    /// The second in which it ends.
    pub until: u64,
}

/// The subject of a certificate.
#[derive(Debug)]
pub struct CertificateSubject {
    common_name: String,
    names: Vec<SanType>,
    usages: Vec<ExtendedKeyUsagePurpose>,
}

impl CertificateSubject {
    /// The subject of a node, which serves clients at `hosts`, and is a server and a client of its peers.
    ///
    /// # Errors
    /// If the URI holds what a certificate cannot hold.
    pub fn node(
        common_name: String, uri: String, hosts: Vec<SanType>,
    ) -> Result<CertificateSubject, rcgen::Error> {
        let usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let names = hosts.into_iter().chain([SanType::URI(Ia5String::try_from(uri)?)]).collect();
        Ok(CertificateSubject { common_name, names, usages })
    }

    /// The subject of a client.
    ///
    /// # Errors
    /// If the URI has a character that a certificate cannot hold.
    pub fn client(common_name: String, uri: String) -> Result<CertificateSubject, rcgen::Error> {
        let names = vec![SanType::URI(Ia5String::try_from(uri)?)];
        let usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(CertificateSubject { common_name, names, usages })
    }
}

/// Makes a CA of this name, which signs with its own key.
///
/// # Errors
/// If no key can be made, or it cannot sign.
pub fn new_authority(name: String, now: u64, days: u64) -> Result<Pair, rcgen::Error> {
    let until = last_second(now, days);
    let mut params = params(name, now, until);
    // It signs nodes and clients, and no further CA.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem(), until })
}

/// A CA that can sign.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The second in which its own certificate ends.
    pub until: u64,
}

impl Authority {
    /// The CA whose key is `key`. `certificates` may be of several CAs.
    ///
    /// # Errors
    /// With what is wrong with which of the two.
    pub fn read(certificates: &str, key: &str) -> Result<Authority, Unusable> {
        let key = KeyPair::from_pem(key).map_err(|_| Unusable::Key)?;
        let public = key.subject_public_key_info();
        for der in certificates_in(certificates).ok_or(Unusable::Certificates)? {
            let (_, own) = parse_x509_certificate(&der).map_err(|_| Unusable::Certificates)?;
            if own.public_key().raw != public {
                continue;
            }
            if !own.is_ca() {
                return Err(Unusable::NoAuthority);
            }
            let name = simple_name(own.subject()).ok_or(Unusable::OtherTool)?;
            let mut params = params(name, 0, 0);
            // OpenSSL compares it with the one in what the CA signs. Other tools make it in another way.
            if let Some(id) = key_identifier(&own) {
                params.key_identifier_method = KeyIdMethod::PreSpecified(id);
            }
            let until = u64::try_from(own.validity().not_after.timestamp()).unwrap_or(0);
            return Ok(Authority { issuer: Issuer::new(params, key), until });
        }
        Err(Unusable::NoPair)
    }

    /// Makes a key and a certificate of it, which ends no later than the CA's own.
    ///
    /// # Errors
    /// If no key can be made, or the CA cannot sign.
    pub fn issue(
        &self, subject: CertificateSubject, now: u64, days: u64,
    ) -> Result<Pair, rcgen::Error> {
        let until = last_second(now, days).min(self.until);
        let mut params = params(subject.common_name, now, until);
        params.is_ca = IsCa::ExplicitNoCa;
        params.subject_alt_names = subject.names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = subject.usages;
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem(), until })
    }
}

/// The subject key identifier of a certificate, if it has one.
fn key_identifier(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    })
}

/// Why a CA cannot sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// The key cannot be read.
    Key,
    /// The certificates cannot be read.
    Certificates,
    /// No certificate is of this key.
    NoPair,
    /// The certificate of this key is not a CA's.
    NoAuthority,
    /// The CA's name has other parts than the common name, or is encoded in another way. A certificate that it signed would not
    /// name it.
    OtherTool,
}

/// The certificates in a PEM text; none if there is none, or one cannot be read.
pub fn certificates_in(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    all.ok().filter(|all| !all.is_empty())
}

/// The common name, if a name is nothing else, encoded as here.
fn simple_name(name: &X509Name<'_>) -> Option<String> {
    let mut attributes = name.iter_attributes();
    let (only, more) = (attributes.next()?, attributes.next());
    let is_ours = more.is_none()
        && *only.attr_type() == OID_X509_COMMON_NAME
        && only.attr_value().header.tag() == x509_parser::der_parser::asn1_rs::Tag::Utf8String;
    only.as_str().ok().filter(|_| is_ours).map(str::to_owned)
}

/// The second in which a certificate ends that is made at `now` for `days`, unless its CA ends earlier.
pub fn last_second(now: u64, days: u64) -> u64 {
    now.saturating_add(days.saturating_mul(DAY)).min(LAST)
}

fn params(common_name: String, now: u64, until: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(now.saturating_sub(BACKDATED).min(LAST));
    params.not_after = epoch + Duration::from_secs(until.min(LAST));
    let mut serial: Vec<u8> = [random::u64(), random::u64()].map(u64::to_be_bytes).concat();
    // A positive number that begins with no zero.
    serial[0] = (serial[0] & 0x3f) | 0x40;
    params.serial_number = Some(SerialNumber::from(serial));
    params
}

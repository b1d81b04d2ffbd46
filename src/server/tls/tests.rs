//! Certificates for tests.

use std::time::{Duration as Span, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256,
    SanType,
};

use crate::sequence::{NodeId, node_uri};

/// Valid since yesterday, for a year: see [`pair`].
pub const YEAR: [i64; 2] = [-1, 365];

/// A CA.
pub type Ca = CertifiedIssuer<'static, KeyPair>;

/// Another CA each time.
pub fn ca() -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA")
}

/// A certificate of `node`, and its key, in PEM, valid from and until so many days from now.
pub fn pair(ca: &Ca, node: NodeId, days: [i64; 2]) -> [String; 2] {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
    let mut params = CertificateParams::default();
    let uri = node_uri("test", node).try_into().expect("ASCII");
    params.subject_alt_names = vec![SanType::URI(uri)];
    let in_days = |days: i64| {
        let span = Span::from_secs(days.unsigned_abs() * 86_400);
        let now = SystemTime::now();
        (if days < 0 { now - span } else { now + span }).into()
    };
    (params.not_before, params.not_after) = (in_days(days[0]), in_days(days[1]));
    let certificate = params.signed_by(&key, ca).expect("a certificate");
    [certificate.pem(), key.serialize_pem()]
}

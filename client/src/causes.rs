//! Why there is no answer: the transport's causes of a connection that could not be made, or broke.
//!
//! A failure of the transport has a source, and a failure that a server answers has none. The transport's own text is often
//! "transport error", and the cause stands somewhere below it.

use std::{error::Error, io, iter, sync::Arc};

use rustls::{CertificateError, Error as TlsError};
use tonic::{Code, Status};

/// The beginning of rustls's text if a server has sent an alert.
const ALERT: &str = "received fatal alert: ";
/// The alerts by which a server refuses the certificate of a client, or the lack of one. It has read no request then.
const REFUSALS: [&str; 9] = [
    "AccessDenied",
    // CAs of one name differ in their keys.
    "DecryptError",
    "CertificateRequired",
    "BadCertificate",
    "UnsupportedCertificate",
    "CertificateRevoked",
    "CertificateExpired",
    "CertificateUnknown",
    "UnknownCA",
];
/// The text of rustls if a connection ends before the handshake does.
const NO_HANDSHAKE: &str = "tls handshake eof";

/// The advice for a server that does not answer with TLS.
const NO_TLS: &str =
    "the server does not seem to speak TLS there; correct the address, or ask without TLS";

/// The text of a failure: the server's message, or why there is no connection, and what to do if that is known.
pub fn text(status: &Status) -> String {
    let mut told = vec![status.message().to_owned()];
    // The status of a broken connection is the source of its own, and shows itself with its sources.
    let causes = sources(status).filter(|error| !error.is::<Status>());
    for text in causes.map(ToString::to_string) {
        if !told.iter().any(|one| one.contains(&text)) {
            told.push(text);
        }
    }
    let says_nothing = |text: &String| text.is_empty() || text == "transport error";
    if !told.iter().all(says_nothing) {
        told.retain(|text| !says_nothing(text));
    }
    let told = told.join(": ");
    match sources(status).find_map(advice) {
        Some(advice) if !told.contains(advice) => format!("{told}; {advice}"),
        _ => told,
    }
}

/// Turns the status that the transport makes of a broken connection into UNAVAILABLE: no server answered.
/// The transport says UNKNOWN, INTERNAL or CANCELLED, as a server may too; only the transport's has a
/// source. The text ends with the `advice`.
pub fn unbroken(status: Status, advice: Option<&str>) -> Status {
    let is_of_transport = status.source().is_some();
    match status.code() {
        Code::Unknown | Code::Internal | Code::Cancelled if is_of_transport => {
            let advice = advice.map(|advice| format!("; {advice}")).unwrap_or_default();
            let text = format!("the connection broke: {}{advice}", text(&status));
            let mut unavailable = Status::unavailable(text);
            unavailable.set_source(Arc::new(status));
            unavailable
        }
        _ => status,
    }
}

/// True if the request cannot have reached the server: there was no connection, or the server refused the client's
/// certificate.
pub fn never_connected(status: &Status) -> bool {
    sources(status).any(|error| error.is::<tonic::ConnectError>() || is_refusal(&error.to_string()))
}

/// The causes of a failure, from the outermost on.
fn sources(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    iter::successors(status.source(), |error| (**error).source())
}

/// True if a cause is an alert by which a server refuses the client's certificate. The text begins with the alert. The reason
/// of a GOAWAY, which the other end may choose, comes later.
fn is_refusal(text: &str) -> bool {
    let alert = text.strip_prefix(ALERT);
    alert.is_some_and(|alert| REFUSALS.iter().any(|refusal| alert.starts_with(refusal)))
}

/// The advice about a cause, if it is of TLS.
fn advice(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match inner.and_then(|inner| inner.downcast_ref()) {
        Some(TlsError::InvalidMessage(_)) => return Some(NO_TLS),
        // CAs of one name differ in their keys.
        Some(TlsError::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => {
            return Some(
                "none of the CAs of this client has signed it; give the CA of the cluster",
            );
        }
        _ => {}
    }
    // Later errors of a connection come as texts.
    match error.to_string() {
        text if is_refusal(&text) => Some(
            "the server refuses this client's certificate, or the lack of one; give one that a CA of the server has signed",
        ),
        text if text.contains(NO_HANDSHAKE) => Some(NO_TLS),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
    };
    use tonic::{
        service::Routes,
        transport::{Certificate, Identity, Server, ServerTlsConfig, server::TcpIncoming},
    };

    use super::*;
    use crate::{Client, Error, Tls, api::CreateNamespaceRequest};

    /// A CA, and its certificate as PEM.
    struct Ca(Issuer<'static, KeyPair>, String);

    impl Ca {
        fn new(name: &str) -> Ca {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let pem = params.self_signed(&key).expect("a certificate").pem();
            Ca(Issuer::new(params, key), pem)
        }

        /// A certificate for a host, and its key, as PEM.
        fn signed(&self, host: &str, until_year: i32) -> (String, String) {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new([host.to_owned()]).expect("a host");
            params.not_after = date_time_ymd(until_year, 1, 1);
            let cert = params.signed_by(&key, &self.0).expect("a certificate");
            (cert.pem(), key.serialize_pem())
        }
    }

    /// The TLS of a server that serves nothing: its certificate, and the CA of the clients that it lets in.
    fn shown((cert, key): &(String, String), clients: Option<&Ca>) -> ServerTlsConfig {
        let config = ServerTlsConfig::new().identity(Identity::from_pem(cert, key));
        match clients {
            Some(Ca(_, ca)) => config.client_ca_root(Certificate::from_pem(ca)),
            None => config,
        }
    }

    /// Starts such a server. Returns its address.
    fn serve(tls: Option<ServerTlsConfig>) -> String {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).expect("a port");
        let address = incoming.local_addr().expect("an address").to_string();
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).expect("certificates");
        }
        let serving = server.add_routes(Routes::default()).serve_with_incoming(incoming);
        tokio::spawn(serving);
        address
    }

    /// A call that is refused is repeated until this is over.
    const HANDSHAKES: Duration = Duration::from_secs(4);
    /// How many calls may end in the middle of a handshake, on a slow machine.
    const UNLUCKY_MAX: usize = 60;

    /// The errors of a client's unary call, of a call that changes something, and of a call on a stream.
    async fn told(address: &str, tls: Option<Tls>) -> [Error; 3] {
        let builder = Client::builder().servers([address]).timeout(HANDSHAKES);
        let builder = match tls {
            Some(tls) => builder.tls(tls),
            None => builder,
        };
        let client = builder.build().expect("a client");
        let (read, changed, taken) = tokio::join!(
            client.status(),
            client.create_namespace(CreateNamespaceRequest::default()),
            client.next("book", 1)
        );
        [
            read.expect_err("nothing is served"),
            changed.expect_err("nothing is served"),
            taken.expect_err("nothing is served"),
        ]
    }

    /// Asks until the client's errors fit. On a slow machine a call may end in the middle of a handshake.
    async fn assert_told_at_last(
        address: &str, tls: Option<Tls>, fits: impl Fn(&[Error; 3]) -> bool,
    ) {
        let mut unlucky = Vec::new();
        while unlucky.len() < UNLUCKY_MAX {
            let told = told(address, tls.clone()).await;
            if fits(&told) {
                return;
            }
            unlucky.push(told);
        }
        panic!("nothing fits: {unlucky:?}");
    }

    /// A stream that a server does not know may have taken numbers, for all that a client knows.
    async fn assert_served(address: &str, tls: Option<Tls>) {
        let is_served = |error: &Error| error.code() == Some(crate::Code::Unimplemented);
        let fits = |[read, changed, _]: &[Error; 3]| is_served(read) && is_served(changed);
        assert_told_at_last(address, tls, fits).await;
    }

    /// Asks until no call ends in the middle of a handshake. A call that does is told no cause, or that it may be carried out:
    /// with TLS 1.3 a client has sent its request before the server judges the client's certificate.
    async fn assert_told(address: &str, tls: &Tls, causes: &[&str]) {
        let mut unlucky = Vec::new();
        while unlucky.len() < UNLUCKY_MAX {
            let told = told(address, Some(tls.clone())).await;
            if told.iter().all(|error| error.code() == Some(crate::Code::Unavailable)) {
                for error in told {
                    let is_told = causes.iter().all(|cause| error.to_string().contains(cause));
                    assert!(is_told, "{error}");
                }
                return;
            }
            unlucky.push(told);
        }
        panic!("{causes:?} is not told: {unlucky:?}");
    }

    #[tokio::test]
    async fn a_server_is_believed_if_its_ca_is_known_and_its_certificate_is_for_its_host() {
        let (ca, other) = (Ca::new("ours"), Ca::new("another"));
        let server = serve(Some(shown(&ca.signed("127.0.0.1", 2100), None)));
        assert_served(&server, Some(Tls::new(&ca.1))).await;
        let both = Tls::new(format!("{}{}", other.1, ca.1));
        assert_served(&server, Some(both)).await;
        assert_told(&server, &Tls::new(&other.1), &["none of the CAs of this client"]).await;
        let elsewhere = serve(Some(shown(&ca.signed("elsewhere", 2100), None)));
        let why = ["not valid for name \"127.0.0.1\"", "elsewhere"];
        assert_told(&elsewhere, &Tls::new(&ca.1), &why).await;
        let expired = serve(Some(shown(&ca.signed("127.0.0.1", 2020), None)));
        assert_told(&expired, &Tls::new(&ca.1), &["certificate expired"]).await;
    }

    #[tokio::test]
    async fn who_speaks_tls_with_a_server_that_does_not_is_told_so_and_the_reverse() {
        let ca = Ca::new("ours");
        let plain = serve(None);
        assert_served(&plain, None).await;
        assert_told(&plain, &Tls::new(&ca.1), &["does not seem to speak TLS"]).await;
        let server = serve(Some(shown(&ca.signed("127.0.0.1", 2100), None)));
        // A server that ends a connection may have read the request on it, for all that a client knows.
        let is_advised = |error: &Error| error.to_string().contains("if the server speaks TLS");
        assert_told_at_last(&server, None, |told| told.iter().all(is_advised)).await;
    }

    #[tokio::test]
    async fn a_server_that_lets_no_others_in_is_shown_the_clients_certificate() {
        let (ca, other) = (Ca::new("ours"), Ca::new("another"));
        let server = serve(Some(shown(&ca.signed("127.0.0.1", 2100), Some(&ca))));
        let showing = |(cert, key): (String, String)| Tls::new(&ca.1).identity(cert, key);
        assert_served(&server, Some(showing(ca.signed("caller", 2100)))).await;
        let why = ["refuses this client's certificate"];
        assert_told(&server, &Tls::new(&ca.1), &why).await;
        assert_told(&server, &showing(other.signed("caller", 2100)), &why).await;
    }

    #[test]
    fn a_broken_connection_is_reported_as_unavailable() {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let broken = Status::from_error(Box::new(reset));
        assert_eq!(broken.code(), Code::Unknown);
        let broken = unbroken(broken, None);
        assert_eq!(broken.code(), Code::Unavailable);
        assert_eq!(text(&broken), "the connection broke: connection reset");
        let own = unbroken(Status::internal("a fault of the server"), Some("advice"));
        assert_eq!(own.code(), Code::Internal);
        assert_eq!(text(&own), "a fault of the server");
    }
}

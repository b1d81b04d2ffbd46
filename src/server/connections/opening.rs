//! How a connection that comes begins: with TLS or without.
//!
//! A connection that is refused because of a certificate is a refused login: the audit tells of it, and of nothing else that
//! fails here. All else is a warning, since it says nothing of who is there.
//!
//! Invariant: a caller that opens a connection with TLS and does not go on holds a socket. It holds that for as long as it may
//! be silent at first, for a handshake of at most [`HANDSHAKE_TIME_MAX`], and for at most [`LAST_WORDS_TIME_MAX`] after that.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, rustls::Error, server::TlsStream};
use tokio_util::sync::CancellationToken;

use super::{places::ConnectionPlace, stream::Stream};
use crate::{
    metrics::RefusedAt,
    node::{Access, RefusedCertificate},
    server::{
        rare_warning::RareWarning,
        tls::{CertificateFacts, Certificates},
    },
};

/// How long a new connection may take to send its first byte where it may not be idle before, or where places are short.
pub const GREETING_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a handshake may take from its first byte on.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);
/// The first byte of a handshake. No protocol of ours begins with it.
const HANDSHAKE: u8 = 0x16;
/// How long the other end may take to read why a handshake failed.
const LAST_WORDS_TIME_MAX: Duration = Duration::from_millis(250);
/// The audit's name for the other end of a connection that shows no certificate where one is required.
const NONE: &str = "no certificate";
/// The audit's name for a certificate that no CA of this node vouches for, or that names nobody.
const UNKNOWN: &str = "unknown certificate";
/// How many written bytes a connection with TLS holds until the socket takes them. The other end may not read.
const UNSENT_BYTES_MAX: usize = 16 << 10;

/// How the connections of a port begin.
#[derive(Clone)]
pub struct Opening {
    /// `None` if they speak no TLS.
    tls: Option<Handshakes>,
}

/// How connections with TLS begin.
#[derive(Clone)]
pub struct Handshakes {
    /// The certificates that connections with TLS show.
    pub certificates: Arc<Certificates>,
    /// Whether connections without TLS are served as well.
    pub takes_plain: bool,
    /// The port's ALPN protocol, if it has one.
    pub alpn: Option<&'static [u8]>,
    /// The cluster of which each other end has to be a node, by its certificate.
    pub cluster: Option<String>,
    /// The port's interface, for the audit.
    pub at: RefusedAt,
    /// It has the audit tell of refused certificates.
    pub access: Arc<Access>,
    /// Tells of what else fails.
    pub warning: Arc<RareWarning>,
}

/// Why a connection does not begin.
enum OpeningError {
    /// Because of the certificate at the other end, or because there is none.
    Certificate {
        /// Its URI, as far as a CA vouches for it; otherwise what there is to say of it.
        who: String,
        why: String,
    },
    /// Because of something else.
    Otherwise(String),
}

impl From<io::Error> for OpeningError {
    fn from(error: io::Error) -> OpeningError {
        let of_tls = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
        let who = match of_tls {
            Some(Error::NoCertificatesPresented) => NONE,
            Some(Error::InvalidCertificate(_)) => UNKNOWN,
            _ => return OpeningError::Otherwise(error.to_string()),
        };
        OpeningError::Certificate { who: who.to_owned(), why: error.to_string() }
    }
}

impl Opening {
    /// Connections begin with `tls`; without it none speaks TLS.
    pub fn new(tls: Option<Handshakes>) -> Opening {
        Opening { tls }
    }

    /// A port whose connections speak no TLS.
    pub fn plain() -> Opening {
        Opening::new(None)
    }

    /// Begins a connection in `place`. It may be silent for `silence` at first. `None` if the node stops meanwhile.
    ///
    /// # Errors
    /// A text if the connection ends, sends nothing in time, or has no TLS and must; if the handshake fails, or takes too long.
    pub async fn open(
        &self, socket: TcpStream, place: &ConnectionPlace, silence: Duration,
        stop: &CancellationToken,
    ) -> Result<Option<Stream>, String> {
        socket.set_nodelay(true).map_err(|error| error.to_string())?;
        match &self.tls {
            None => Ok(Some(socket.into())),
            Some(tls) => tokio::select! {
                biased;
                () = stop.cancelled() => Ok(None),
                opened = tls.look(socket, place, silence) => opened.map(Some),
            },
        }
    }
}

impl Handshakes {
    /// Waits for the first byte, which tells whether the other end speaks TLS, and begins the connection accordingly.
    async fn look(
        &self, socket: TcpStream, place: &ConnectionPlace, silence: Duration,
    ) -> Result<Stream, String> {
        let mut first = [0];
        let greeting = GREETING_TIME_MAX.min(silence);
        let greeted = place.greeted(socket.peek(&mut first), greeting, silence);
        let arrived = greeted.await?.map_err(|error| error.to_string())?;
        if arrived == 0 {
            return Err("the other end closed it".to_owned());
        }
        let from = socket.peer_addr().ok();
        let opened = match (first == [HANDSHAKE], self.takes_plain) {
            (true, _) => self.shake_hands(socket).await,
            (false, true) => Ok(socket.into()),
            (false, false) => {
                let why = "it speaks no TLS, which this port requires".to_owned();
                Err((OpeningError::Otherwise(why), None))
            }
        };
        let (failed, socket) = match opened {
            Ok(stream) => return Ok(stream),
            Err(failed) => failed,
        };
        // Told before the wait below, during which the connection may be dropped.
        let why = self.tell(failed, from);
        if let Some(socket) = socket {
            // A caller that does not read it learns less. The connection fails all the same.
            let _ = timeout(LAST_WORDS_TIME_MAX, let_read(socket)).await;
        }
        Err(why)
    }

    /// Has the log tell why a connection from there does not begin. Returns that as text.
    fn tell(&self, failed: OpeningError, from: Option<SocketAddr>) -> String {
        let told = |why: &str| {
            let from =
                from.map_or_else(|| "an unknown address".to_owned(), |from| from.to_string());
            format!("no TLS handshake with {from}: {why}")
        };
        match failed {
            OpeningError::Certificate { who, why } => {
                let from = from.map(|from| from.ip().to_canonical());
                let refused = RefusedCertificate { who: &who, from, at: self.at, why: &why };
                self.access.refuse_certificate(&refused);
                told(&why)
            }
            OpeningError::Otherwise(why) => {
                let why = told(&why);
                if self.warning.is_due() {
                    tracing::warn!("{why}");
                }
                why
            }
        }
    }

    /// The stream after a handshake. If that fails, the socket may have an alert on its way that says why.
    async fn shake_hands(
        &self, socket: TcpStream,
    ) -> Result<Stream, (OpeningError, Option<TcpStream>)> {
        let mut config = self.certificates.current().server.clone();
        config.alpn_protocols = self.alpn.map(<[u8]>::to_vec).into_iter().collect();
        let shaking = TlsAcceptor::from(Arc::new(config))
            .accept_with(socket, |session| session.set_buffer_limit(Some(UNSENT_BYTES_MAX)));
        match timeout(HANDSHAKE_TIME_MAX, shaking.into_fallible()).await {
            Ok(Ok(stream)) => self.identified(stream).map_err(|failed| (failed, None)),
            Ok(Err((error, socket))) => Err((error.into(), Some(socket))),
            Err(_) => {
                let why = format!("it took longer than {} s", HANDSHAKE_TIME_MAX.as_secs());
                Err((OpeningError::Otherwise(why), None))
            }
        }
    }

    /// The stream, with the node that its other end has to be. A session that is resumed brings the certificate of its
    /// beginning, whose dates TLS does not compare again.
    fn identified(&self, stream: TlsStream<TcpStream>) -> Result<Stream, OpeningError> {
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let Some(certificate) = certificate else {
            return match &self.cluster {
                None => Ok(Stream::from(stream)),
                Some(_) => Err(OpeningError::Certificate {
                    who: NONE.to_owned(),
                    why: Error::NoCertificatesPresented.to_string(),
                }),
            };
        };
        let refused = |who: Option<&str>, why: String| OpeningError::Certificate {
            who: who.unwrap_or(UNKNOWN).to_owned(),
            why: format!("its certificate: {why}"),
        };
        let facts = CertificateFacts::read(certificate).map_err(|why| refused(None, why))?;
        if let Some(why) = facts.invalid_at(SystemTime::now()) {
            return Err(refused(facts.client(), format!("it {why}")));
        }
        match &self.cluster {
            None => Ok(match facts.client() {
                Some(uri) => Stream::from(stream).of_client(uri),
                None => Stream::from(stream),
            }),
            Some(cluster) => {
                let node = facts.node_of(cluster).map_err(|why| refused(facts.client(), why))?;
                Ok(Stream::from(stream).of_node(node))
            }
        }
    }
}

/// Lets the other end read the alert that was sent. It may have sent a request by now. If that were not read, the system would
/// answer it with a reset, and the other end might not read the alert before.
async fn let_read(mut socket: TcpStream) -> io::Result<()> {
    socket.shutdown().await?;
    let mut dropped = [0; 1_024];
    while socket.read(&mut dropped).await? > 0 {}
    Ok(())
}

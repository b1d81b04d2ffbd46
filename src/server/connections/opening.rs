//! How a connection that comes begins: with TLS or without.
//!
//! Invariant: a caller that opens a connection and does not go on holds a socket, and a handshake for at most
//! [`HANDSHAKE_TIME_MAX`].

use std::{
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use super::{places::ConnectionPlace, stream::Stream};
use crate::server::{
    rare_warning::RareWarning,
    tls::{Certificates, Leaf},
};

/// How long a new connection may take to send its first byte where it may not be idle before, or where places are short.
pub const GREETING_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a handshake may take from its first byte on.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);
/// The first byte of a handshake. No protocol of ours begins with it.
const HANDSHAKE: u8 = 0x16;
/// How long the other end may take to read why a handshake failed.
const LAST_WORDS_TIME_MAX: Duration = Duration::from_millis(250);
/// How many written bytes a connection with TLS holds until the socket takes them. The other end may not read.
const UNSENT_BYTES_MAX: usize = 16 << 10;

/// How the connections of a port begin.
#[derive(Clone)]
pub struct Opening {
    certificates: Option<Arc<Certificates>>,
    takes_plain: bool,
    /// The port's ALPN protocol, if it has one.
    alpn: Option<&'static [u8]>,
    /// The cluster of which each other end has to be a node, by its certificate.
    cluster: Option<String>,
    warning: Arc<RareWarning>,
}

impl Opening {
    /// Connections with TLS show the certificate of `certificates`. Connections without TLS are served if the port
    /// `takes_plain` ones. If there are no certificates, all connections are without TLS, and are served.
    pub fn new(
        certificates: Option<Arc<Certificates>>, takes_plain: bool, alpn: Option<&'static [u8]>,
    ) -> Opening {
        Opening { certificates, takes_plain, alpn, cluster: None, warning: Arc::default() }
    }

    /// The port for nodes of `cluster` alone.
    pub fn for_nodes(self, cluster: &str) -> Opening {
        Opening { cluster: Some(cluster.to_owned()), ..self }
    }

    /// A port whose connections speak no TLS.
    pub fn plain() -> Opening {
        Opening::new(None, true, None)
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
        match &self.certificates {
            None => Ok(Some(socket.into())),
            Some(certificates) => tokio::select! {
                biased;
                () = stop.cancelled() => Ok(None),
                opened = self.look(socket, certificates, place, silence) => opened.map(Some),
            },
        }
    }

    async fn look(
        &self, socket: TcpStream, certificates: &Certificates, place: &ConnectionPlace,
        silence: Duration,
    ) -> Result<Stream, String> {
        let mut first = [0];
        let greeting = GREETING_TIME_MAX.min(silence);
        let greeted = place.greeted(socket.peek(&mut first), greeting, silence);
        let arrived = greeted.await?.map_err(|error| error.to_string())?;
        if arrived == 0 {
            return Err("the other end closed it".to_owned());
        }
        let from = socket.peer_addr();
        let from = from.map_or_else(|_| "an unknown address".to_owned(), |from| from.to_string());
        let opened = match (first == [HANDSHAKE], self.takes_plain) {
            (true, _) => self.shake_hands(socket, certificates).await,
            (false, true) => Ok(socket.into()),
            (false, false) => Err("it speaks no TLS, which this port requires".to_owned()),
        };
        opened.map_err(|why| {
            let why = format!("no TLS handshake with {from}: {why}");
            if self.warning.is_due() {
                tracing::warn!("{why}");
            }
            why
        })
    }

    async fn shake_hands(
        &self, socket: TcpStream, certificates: &Certificates,
    ) -> Result<Stream, String> {
        let mut config = certificates.current().server.clone();
        config.alpn_protocols = self.alpn.map(<[u8]>::to_vec).into_iter().collect();
        let shaking = TlsAcceptor::from(Arc::new(config))
            .accept_with(socket, |session| session.set_buffer_limit(Some(UNSENT_BYTES_MAX)));
        match timeout(HANDSHAKE_TIME_MAX, shaking.into_fallible()).await {
            Ok(Ok(stream)) => self.identified(stream),
            Ok(Err((error, socket))) => {
                // A caller that does not read it learns less. The connection fails all the same.
                let _ = timeout(LAST_WORDS_TIME_MAX, let_read(socket)).await;
                Err(error.to_string())
            }
            Err(_) => Err(format!("it took longer than {} s", HANDSHAKE_TIME_MAX.as_secs())),
        }
    }

    /// The stream, with the node that its other end has to be. A session that is resumed brings the certificate of its
    /// beginning, whose dates TLS does not compare again.
    fn identified(&self, stream: TlsStream<TcpStream>) -> Result<Stream, String> {
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let Some(certificate) = certificate else {
            return match &self.cluster {
                None => Ok(Stream::from(stream)),
                Some(_) => Err("it shows no certificate".to_owned()),
            };
        };
        let told = |why: String| format!("its certificate: {why}");
        let leaf = Leaf::read(certificate).map_err(told)?;
        if let Some(why) = leaf.invalid_at(SystemTime::now()) {
            return Err(told(format!("it {why}")));
        }
        match &self.cluster {
            None => Ok(match leaf.client() {
                Some(uri) => Stream::from(stream).of_client(uri),
                None => Stream::from(stream),
            }),
            Some(cluster) => {
                let node = leaf.node_of(cluster).map_err(told)?;
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

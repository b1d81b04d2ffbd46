//! Handshakes of TLS: opens connections to a server's port for gRPC, one after the other, and closes them again.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{HandshakeKind, client::Resumption, pki_types::ServerName},
};

use crate::{error::Error, socket::host_of, tls::Certificates};

/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first bytes of a client over HTTP/2: its greeting, and settings, of which there are none.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
/// How many bytes the head of a frame has. The server's settings are a frame.
const FRAME_HEAD_BYTES: usize = 9;

/// A kind of handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The server shows its certificate, and signs.
    Full,
    /// The client shows a ticket of an earlier connection, and nobody signs.
    Resumed,
}

/// Shakes hands with one server.
pub struct Handshakes {
    address: String,
    host: ServerName<'static>,
    connector: TlsConnector,
    kind: Kind,
}

impl Handshakes {
    /// Gets ready. Resumed handshakes need a ticket, so that a full one is done before.
    ///
    /// # Errors
    /// If `address` is not of the form "host:port", a certificate cannot be used, or the handshake fails.
    pub async fn begin(
        address: &str, certificates: &Certificates, kind: Kind,
    ) -> Result<Handshakes, Error> {
        let failed = |why: String| Error::other(format!("TLS with {address}: {why}"));
        let host = host_of(address).map_err(|error| failed(error.to_string()))?;
        let mut config = certificates.of_socket(Some("h2"))?;
        config.resumption = match kind {
            Kind::Full => Resumption::disabled(),
            Kind::Resumed => Resumption::default(),
        };
        let connector = TlsConnector::from(Arc::new(config));
        let handshakes = Handshakes { address: address.to_owned(), host, connector, kind };
        if kind == Kind::Resumed {
            handshakes.open().await.map_err(failed)?;
        }
        Ok(handshakes)
    }

    /// Opens a connection, and closes it when the server has said something over it: so the server's end of the handshake is
    /// done as well.
    ///
    /// # Errors
    /// The text of the failure; also if the handshake is of another kind, or takes longer than 10 s.
    pub async fn shake(&self) -> Result<(), String> {
        let done = self.open().await?;
        match (self.kind, done) {
            (Kind::Full, Some(HandshakeKind::Full))
            | (Kind::Resumed, Some(HandshakeKind::Resumed)) => Ok(()),
            (kind, done) => Err(format!("a handshake was to be {kind:?}, and was {done:?}")),
        }
    }

    async fn open(&self) -> Result<Option<HandshakeKind>, String> {
        let opened = timeout(PATIENCE, self.open_socket()).await;
        let opened = opened.map_err(|_| format!("a handshake took longer than {PATIENCE:?}"))?;
        opened.map_err(|error| error.to_string())
    }

    async fn open_socket(&self) -> io::Result<Option<HandshakeKind>> {
        let socket = TcpStream::connect(&self.address).await?;
        socket.set_nodelay(true)?;
        // It is closed by a reset: otherwise each would hold a port of this machine for a minute.
        socket.set_zero_linger()?;
        let mut stream = self.connector.connect(self.host.clone(), socket).await?;
        stream.write_all(GREETING).await?;
        stream.flush().await?;
        // Tickets come before it.
        let mut head = [0; FRAME_HEAD_BYTES];
        stream.read_exact(&mut head).await?;
        Ok(stream.get_ref().1.handshake_kind())
    }
}

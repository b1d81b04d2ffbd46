//! The bytes of a connection: as the socket has them, or inside TLS. It knows which client or node the certificate of the other
//! end names.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use crate::sequence::NodeId;

/// A connection, and its other end, as far as TLS shows that.
#[derive(Debug)]
pub struct Stream {
    node: Option<NodeId>,
    client: Option<Arc<str>>,
    /// The bytes that were read already, and are to be read again.
    begun: Bytes,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Plain(TcpStream),
    /// In a box: its state is some hundred bytes larger than a socket.
    Tls(Box<TlsStream<TcpStream>>),
}

impl From<TcpStream> for Stream {
    fn from(socket: TcpStream) -> Self {
        Stream::new(Socket::Plain(socket))
    }
}

impl From<TlsStream<TcpStream>> for Stream {
    fn from(socket: TlsStream<TcpStream>) -> Self {
        Stream::new(Socket::Tls(Box::new(socket)))
    }
}

impl Stream {
    fn new(socket: Socket) -> Stream {
        Stream { node: None, client: None, begun: Bytes::new(), socket }
    }

    /// This stream, with a client at its other end whose certificate has this URI.
    pub fn of_client(self, uri: &str) -> Stream {
        Stream { client: Some(uri.into()), ..self }
    }

    /// The URI of the certificate of the client at the other end; `None` if it shows none that names one.
    pub fn client(&self) -> Option<Arc<str>> {
        self.client.clone()
    }

    /// This stream, with this node of the cluster at its other end, by its certificate.
    pub fn of_node(self, node: NodeId) -> Stream {
        Stream { node: Some(node), ..self }
    }

    /// The node of the cluster at the other end, by its certificate; `None` if no certificate shows one.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Whether it speaks TLS. Then written bytes reach the socket when they are flushed, and perhaps not before.
    pub fn is_tls(&self) -> bool {
        matches!(self.socket, Socket::Tls(_))
    }

    /// The socket, to ask for its addresses.
    pub fn socket(&self) -> &TcpStream {
        match &self.socket {
            Socket::Plain(socket) => socket,
            Socket::Tls(socket) => socket.get_ref().0,
        }
    }

    /// Has `bytes`, which were read, read again before all others.
    pub fn put_back(&mut self, bytes: Bytes) {
        self.begun = bytes;
    }

    /// Waits until there is something to read, and holds no buffer for it meanwhile. False at the end of the stream. With TLS
    /// there may be something to read although the other end has sent no byte of its own.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn has_more(&mut self) -> io::Result<bool> {
        if !self.begun.is_empty() {
            return Ok(true);
        }
        if let Socket::Tls(socket) = &mut self.socket {
            let state = socket.get_mut().1.process_new_packets().map_err(io::Error::other)?;
            if state.plaintext_bytes_to_read() > 0 || state.peer_has_closed() {
                return Ok(state.plaintext_bytes_to_read() > 0);
            }
        }
        self.socket().peek(&mut [0]).await.map(|arrived| arrived > 0)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let part = self.begun.len().min(buffer.remaining());
        if part > 0 {
            buffer.put_slice(&self.begun.split_to(part));
            return Poll::Ready(Ok(()));
        }
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Socket::Tls(socket) => Pin::new(socket).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Socket::Tls(socket) => Pin::new(socket).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, parts),
            Socket::Tls(socket) => Pin::new(socket).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            Socket::Plain(socket) => socket.is_write_vectored(),
            Socket::Tls(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Socket::Tls(socket) => Pin::new(socket).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Socket::Tls(socket) => Pin::new(socket).poll_shutdown(cx),
        }
    }
}

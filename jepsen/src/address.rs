//! Where a node answers, and how its callers connect: with TLS, if the cluster is secure.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::access::{Access, Protocol};

/// A connection to a port of a node.
pub type Socket = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// The address of a node, and the credentials of its callers.
#[derive(Debug, Clone)]
pub struct Address {
    /// The host and the port.
    pub at: SocketAddr,
    access: Option<Arc<Access>>,
}

impl PartialEq for Address {
    /// All callers of a run show the same.
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl From<SocketAddr> for Address {
    /// An address whose callers show nothing.
    fn from(at: SocketAddr) -> Address {
        Address::new(at, None)
    }
}

impl Address {
    /// An address whose callers show this, if there is something to show.
    pub fn new(at: SocketAddr, access: Option<Arc<Access>>) -> Address {
        Address { at, access }
    }

    /// Another port of the same node.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Address {
        Address { at: SocketAddr::new(self.at.ip(), port), access: self.access.clone() }
    }

    /// The same address for callers that show no token; `None` if callers show none in any case.
    pub fn without_token(&self) -> Option<Address> {
        let access = self.access.as_ref()?.without_token();
        Some(Address::new(self.at, Some(Arc::new(access))))
    }

    /// The credentials of callers; `None` if the cluster is not secure.
    pub fn access(&self) -> Option<&Access> {
        self.access.as_deref()
    }

    /// Connects within `limit`. The handshake of TLS may take as long again.
    ///
    /// # Errors
    /// There is no connection. So nothing was asked.
    pub async fn connect(&self, protocol: Protocol, limit: Duration) -> io::Result<Socket> {
        let stream = in_time(limit, TcpStream::connect(self.at)).await?;
        // A small request leaves at once.
        stream.set_nodelay(true)?;
        let Some(access) = &self.access else {
            return Ok(Socket::Left(stream));
        };
        let shaking = access.connector(protocol).connect(self.at.ip().into(), stream);
        Ok(Socket::Right(Box::new(in_time(limit, shaking).await?)))
    }
}

async fn in_time<T>(
    limit: Duration, opening: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
    timeout(limit, opening).await.unwrap_or_else(late)
}

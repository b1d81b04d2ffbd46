//! Idle connections to the interfaces of a server.
//!
//! Invariant: each has been served once, so that the server holds all that it keeps for a connection.

use h2::Ping;
use tokio::{net::TcpStream, task::JoinSet};

use crate::{
    error::Error, http_connection::HttpConnection, options::Interface, redis::Redis,
    socket::Manner, target::Server,
};

/// The interfaces that idle connections are opened to, and their names in reports.
pub const INTERFACES: [(&str, Interface); 3] =
    [("grpc", Interface::Unary), ("http", Interface::Http), ("redis", Interface::Redis)];

/// Idle connections. They are closed when this is dropped.
#[derive(Default)]
pub struct Connections(JoinSet<()>);

impl Connections {
    /// Opens one more to `interface` of `server`.
    ///
    /// # Errors
    /// If it cannot be opened, or is not served.
    pub async fn open(&mut self, server: &Server, interface: Interface) -> Result<(), Error> {
        let (nth, name) = (self.0.len() + 1, interface.name());
        let opened = match server.address_of(interface) {
            Some(address) => self.open_at(address, interface).await,
            None => Err(Error::other("the server has no such interface")),
        };
        opened.map_err(|error| {
            error.within(&format!("idle connection {nth}, to the interface {name}"))
        })
    }

    async fn open_at(&mut self, address: &str, interface: Interface) -> Result<(), Error> {
        match interface {
            Interface::Http => {
                let mut connection = HttpConnection::connect(address, &Manner::default()).await?;
                connection.next(0).await.map_err(Error::other)?;
                self.hold(connection);
            }
            Interface::Redis => {
                let mut connection = Redis::connect(address, &Manner::default()).await?;
                connection.ping().await.map_err(Error::other)?;
                self.hold(connection);
            }
            Interface::Unary | Interface::Stream | Interface::Client => {
                let opened = self.open_http2(address).await;
                opened.map_err(|error| Error::other(format!("grpc at {address}: {error}")))?;
            }
        }
        Ok(())
    }

    /// Opens a connection on which both sides have sent their settings. A task answers the server's pings: without
    /// that, the server would close it.
    async fn open_http2(&mut self, address: &str) -> Result<(), Box<dyn std::error::Error>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, mut connection) = h2::client::handshake(stream).await?;
        let mut pings = connection.ping_pong().ok_or("nobody else sends pings")?;
        self.0.spawn(async move {
            // Whether it lasted is seen where connections are counted.
            let _ = connection.await;
            drop(sender);
        });
        // The answer follows the server's settings.
        pings.ping(Ping::opaque()).await?;
        Ok(())
    }

    /// Keeps `connection` open.
    fn hold(&mut self, connection: impl Send + 'static) {
        self.0.spawn(async move {
            std::future::pending::<()>().await;
            drop(connection);
        });
    }
}

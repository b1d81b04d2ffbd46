//! The sockets that a node listens on, bound before anything else starts. So an address that is in use ends a start at once.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::node::{Addresses, Config, StartError};

/// A listener for each port.
pub struct Listeners {
    pub client: TcpListener,
    pub peer: TcpListener,
    pub metrics: Option<TcpListener>,
    pub http: Option<TcpListener>,
    pub resp: Option<TcpListener>,
    pub admin: Option<TcpListener>,
}

impl Listeners {
    /// Binds the addresses of the configuration.
    ///
    /// # Errors
    /// [`StartError::Listen`] if an address is in use or not this machine's. It names the setting.
    pub async fn bind(config: &Config) -> Result<Listeners, StartError> {
        Ok(Listeners {
            client: bind("listen", config.listen).await?,
            peer: bind("peer_listen", config.peer_listen).await?,
            metrics: bind_if_wanted("metrics_listen", config.metrics_listen).await?,
            http: bind_if_wanted("http_listen", config.http_listen).await?,
            resp: bind_if_wanted("resp_listen", config.resp_listen).await?,
            admin: bind_if_wanted("admin_listen", config.admin_listen).await?,
        })
    }

    /// The addresses that were bound; a configured port 0 has become a real one.
    ///
    /// # Errors
    /// If the system cannot tell the address of a socket.
    pub fn addresses(&self) -> std::io::Result<Addresses> {
        Ok(Addresses {
            client: self.client.local_addr()?,
            peer: self.peer.local_addr()?,
            metrics: address_of(self.metrics.as_ref())?,
            http: address_of(self.http.as_ref())?,
            resp: address_of(self.resp.as_ref())?,
            admin: address_of(self.admin.as_ref())?,
        })
    }
}

fn address_of(listener: Option<&TcpListener>) -> std::io::Result<Option<SocketAddr>> {
    listener.map(TcpListener::local_addr).transpose()
}

async fn bind_if_wanted(
    field: &'static str, address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, StartError> {
    match address {
        Some(address) => bind(field, address).await.map(Some),
        None => Ok(None),
    }
}

async fn bind(field: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { field, address, source })
}

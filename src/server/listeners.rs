//! The sockets that a node listens on, bound before anything else starts.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::node::{Addresses, Config, StartError};

/// A listener for each port.
pub struct Listeners {
    pub client: TcpListener,
    pub peer: TcpListener,
    pub metrics: Option<TcpListener>,
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
            metrics: match config.metrics_listen {
                Some(address) => Some(bind("metrics_listen", address).await?),
                None => None,
            },
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
            metrics: self
                .metrics
                .as_ref()
                .map(TcpListener::local_addr)
                .transpose()?,
        })
    }
}

async fn bind(field: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Listen {
            field,
            address,
            source,
        })
}

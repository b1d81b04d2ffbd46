//! The sockets that a node listens on.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::node::{Addresses, Config, StartError};

/// One for each door.
pub struct Listeners {
    pub client: TcpListener,
    pub peer: TcpListener,
    pub metrics: Option<TcpListener>,
}

impl Listeners {
    /// Binds them where the configuration says.
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

    /// Where they are.
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

//! TLS: which certificates a node shows, and which certificates of others it accepts.
//!
//! `material.rs` reads the files of one side. `certificates.rs` has what is in use, and takes files that change. `peer.rs`
//! connects to peers. `certificate_facts.rs` reads what a certificate says. Connections that come begin in
//! `connections/opening.rs`.
//!
//! Invariant: a connection that was meant to speak TLS never goes on without. Files that do not fit together are never used:
//! the node does not start with them, and a running one goes on with those that it has.

mod certificate_facts;
mod certificates;
mod material;
mod peer;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use tokio::time::sleep;

use self::material::Files;
use crate::{
    metrics::{CertificateOf, Metrics},
    node::{CertificateReader, Config, FileRead, config::ConfigError},
};

pub use certificate_facts::CertificateFacts;
pub use certificates::Certificates;
pub use material::cas;
pub use peer::PeerConnector;

/// How often the files are compared with what was read of them.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The certificates of a node. `None` where it speaks no TLS.
#[derive(Clone)]
pub struct Tls {
    /// The certificates that clients see.
    pub clients: Option<Arc<Certificates>>,
    /// The certificates that peers see.
    pub peers: Option<Arc<Certificates>>,
}

impl Tls {
    /// Reads the files that a configuration names, which has passed [`Config::check`].
    ///
    /// # Errors
    /// [`ConfigError`] if a file cannot be read, holds not what it should, or does not fit the others. It names the setting,
    /// the file, and what to do.
    pub async fn read(config: &Config) -> Result<Tls, ConfigError> {
        Ok(Tls {
            clients: read(Files::for_clients(config)).await?,
            peers: read(Files::for_peers(config)).await?,
        })
    }

    /// The connector to peers with TLS; `None` if this node connects without.
    pub fn connector(&self, config: &Config) -> Option<PeerConnector> {
        let peers = self.peers.clone().filter(|_| config.peer_tls.dials());
        peers.map(|peers| PeerConnector::new(peers, &config.cluster))
    }

    /// Takes files that change, until the task ends, and tells the metrics until when certificates are valid.
    pub async fn follow(self, metrics: Arc<Metrics>) {
        tokio::join!(
            follow(self.clients, CertificateOf::clients, &metrics),
            follow(self.peers, CertificateOf::peers, &metrics)
        );
    }
}

impl CertificateReader for Tls {
    fn reload(&self) -> BoxFuture<'_, Result<Vec<FileRead>, String>> {
        let sides = [&self.clients, &self.peers].into_iter().flatten();
        let reading = join_all(sides.map(Certificates::reload));
        let reading = async move {
            let (mut files, mut refused) = (Vec::new(), Vec::new());
            for read in reading.await {
                match read {
                    Ok(read) => files.extend(read),
                    Err(why) => refused.push(why),
                }
            }
            match refused.is_empty() {
                true => Ok(files),
                false => Err(refused.join("; ")),
            }
        };
        reading.boxed()
    }
}

async fn follow(certificates: Option<Arc<Certificates>>, side: CertificateOf, metrics: &Metrics) {
    let Some(certificates) = certificates else {
        return metrics.certificate_left_seconds.set(side, f64::INFINITY);
    };
    loop {
        metrics.certificate_left_seconds.set(side, certificates.seconds_left());
        sleep(LOOK_EVERY).await;
        certificates.refresh().await;
    }
}

async fn read(files: Option<Files>) -> Result<Option<Arc<Certificates>>, ConfigError> {
    match files {
        Some(files) => Ok(Some(Arc::new(Certificates::read(files).await.map_err(ConfigError)?))),
        None => Ok(None),
    }
}

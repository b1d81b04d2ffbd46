//! The seams of a node: its clock, transport and storage, which it is started with besides its configuration. Production hands
//! in the real ones; tests and simulations hand in their own.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};

use crate::{
    clock::{BootClock, Clock},
    consensus::Transport,
    storage::StoreOptions,
};

/// The world as a node sees it. Production hands in the real one, tests and simulations their own.
#[derive(Clone)]
pub struct Seams {
    /// The clock that leases are counted on.
    pub clock: Arc<dyn Clock>,
    /// How messages reach peers.
    pub transport: Arc<dyn Transport>,
    /// How the store reaches the disk.
    pub storage: StoreOptions,
    /// For how long a node without data has listened before a cluster is founded with it. A living member that knows the node
    /// with another data directory sends it a message meanwhile.
    pub listens_before_founding: Duration,
    /// The reader of its certificates. The module that serves the ports of a node sets it: the certificates are theirs.
    pub certificates: Arc<dyn CertificateReader>,
}

impl Seams {
    /// The real clock and disk, and this transport. `Default`, with that of production without TLS, is in
    /// `server/peer/client.rs`.
    pub fn real(transport: Arc<dyn Transport>) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(BootClock);
        Seams {
            storage: StoreOptions::new(clock.clone()),
            transport,
            clock,
            listens_before_founding: Duration::from_secs(1),
            certificates: Arc::new(()),
        }
    }
}

/// Reads the files of a node's certificates again, when it is asked to.
pub trait CertificateReader: Send + Sync {
    /// Reads them, and uses those that have changed.
    ///
    /// # Errors
    /// A text, as the log has it, if files cannot be used: those that were read before stay in use.
    fn reload(&self) -> BoxFuture<'_, Result<Vec<FileRead>, String>>;
}

/// A node without certificates.
impl CertificateReader for () {
    fn reload(&self) -> BoxFuture<'_, Result<Vec<FileRead>, String>> {
        ready(Ok(Vec::new())).boxed()
    }
}

/// A file that was read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRead {
    /// The setting that names it.
    pub setting: &'static str,
    /// Where it is.
    pub path: PathBuf,
    /// Whether its contents are others than before.
    pub changed: bool,
}

/// The addresses that a node listens at.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// For clients.
    pub client: SocketAddr,
    /// For peers.
    pub peer: SocketAddr,
    /// For Prometheus.
    pub metrics: Option<SocketAddr>,
    /// For HTTP clients.
    pub http: Option<SocketAddr>,
    /// For Redis clients.
    pub resp: Option<SocketAddr>,
    /// For administrators.
    pub admin: Option<SocketAddr>,
}

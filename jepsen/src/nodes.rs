//! Which nodes callers know.

use std::{net::SocketAddr, sync::Arc};

use parking_lot::RwLock;

/// The nodes that callers know, which may change during a run.
pub type Nodes = Arc<RwLock<Known>>;

/// Nodes and where they listen.
pub type Known = Vec<(u64, SocketAddr)>;

//! What serves a node's ports. [`Services`] implements each service of gRPC in a file of that service's.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::node::NodeContext;

/// The services of a node.
#[derive(Clone)]
pub struct Services {
    /// The node.
    pub context: Arc<NodeContext>,
    /// Ports and streams end at this.
    pub stop: CancellationToken,
}

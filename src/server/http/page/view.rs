//! What the status page shows, gathered from the node.

use crate::{allocator::HotKey, node::Second, proto::v1};

/// How many namespaces are shown.
pub const NAMESPACES_MAX: usize = 100;

/// What the page shows.
pub struct View {
    /// The node that shows it.
    pub node: u64,
    /// The leader's view of the cluster, or what this node last knew.
    pub status: v1::StatusResponse,
    /// The URLs of the members' pages, as far as they are known; in the order of the status.
    pub pages: Vec<Option<String>>,
    /// What this node did in the last seconds.
    pub activity: Vec<Second>,
    /// The keys that get the most numbers from this node.
    pub hottest: Vec<HotKey>,
    /// How many numbers this node knows to be skipped, by cause.
    pub skipped: Vec<(&'static str, u64)>,
    /// The first namespaces.
    pub namespaces: Vec<v1::Namespace>,
    /// How many there are.
    pub namespaces_count: usize,
    /// What of the node is open; empty if nothing is.
    pub open: String,
    /// Whether the page is shown to nobody without a token or a certificate.
    pub is_closed: bool,
}

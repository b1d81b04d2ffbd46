//! The content of the status page. `page.rs` gathers it from the node, and `render.rs` writes it as HTML.

use crate::{allocator::HotKey, node::Second, proto::v1};

/// How many namespaces are shown.
pub const NAMESPACES_MAX: usize = 100;

/// The content of the page.
pub struct View {
    /// The node that shows it.
    pub node: u64,
    /// The leader's view of the cluster, or what this node last knew.
    pub status: v1::StatusResponse,
    /// The URLs of the members' pages, as far as they are known, in the order of the status.
    pub pages: Vec<Option<String>>,
    /// The activity of this node in the last seconds.
    pub activity: Vec<Second>,
    /// The keys that get the most numbers from this node.
    pub hottest: Vec<HotKey>,
    /// How many numbers this node knows to be skipped, by cause.
    pub skipped: Vec<(&'static str, u64)>,
    /// The first namespaces.
    pub namespaces: Vec<v1::Namespace>,
    /// How many namespaces there are.
    pub namespaces_count: usize,
    /// The parts of the node that are open, in words; empty if none is.
    pub open: String,
    /// Whether nobody sees the page without a token or a certificate.
    pub is_closed: bool,
}

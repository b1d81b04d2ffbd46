//! Whether the ports of a node speak TLS.

use serde::Deserialize;

/// Whether the ports for clients speak TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientTls {
    /// No connection does.
    Off,
    /// A connection may.
    Accept,
    /// Each connection must.
    Require,
}

impl ClientTls {
    /// Whether a connection without TLS is served.
    pub fn takes_plain(self) -> bool {
        self != ClientTls::Require
    }
}

/// Whether the nodes of a cluster speak TLS with one another. The order of the values is the one in which a living cluster
/// turns it on: each node understands its neighbours that are one value behind it, or before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerTls {
    /// No connection does.
    Off,
    /// A connection from a peer may. This node connects to peers without.
    Accept,
    /// A connection from a peer may. This node connects to peers with it.
    Send,
    /// Each connection must.
    Require,
}

impl PeerTls {
    /// Whether a connection without TLS is served.
    pub fn takes_plain(self) -> bool {
        self != PeerTls::Require
    }

    /// Whether this node connects to peers with TLS.
    pub fn dials(self) -> bool {
        matches!(self, PeerTls::Send | PeerTls::Require)
    }
}

//! The ports of a node. Each node has an address of its own, so that all nodes have the same ports.

/// Where it answers gRPC clients.
pub const CLIENT_PORT: u16 = 7_600;
/// Where it answers its peers.
pub const PEER_PORT: u16 = 7_601;
/// Where it shows its metrics.
pub const METRICS_PORT: u16 = 7_602;
/// Where it answers HTTP clients.
pub const HTTP_PORT: u16 = 7_603;
/// Where it answers Redis clients.
pub const RESP_PORT: u16 = 7_604;

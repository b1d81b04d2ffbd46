//! Messages to the other nodes of the group: openraft's network traits on top of [`Transport`].
//!
//! From the bottom up:
//!
//! * `transport`: how bytes reach an address (`server/peer/client.rs` has that of production), where the members are, and one
//!   RPC to one peer.
//! * `sender`: who sends a message, as its header says.
//! * `peer_state`: what is remembered of the peers: their logs, and since when this node asks for votes.
//! * `snapshot_sender`: how a peer gets a snapshot.
//! * `peer`: Raft's RPCs to one peer, what their answers mean for the lease, and [`Network`], which makes the peers.

mod peer;
mod peer_state;
mod sender;
mod snapshot_sender;
pub(super) mod transport;

pub use peer::Network;
pub use sender::Sender;
pub use transport::{Destination, MESSAGE_BYTES_MAX, RaftRpc, Transport};

//! Messages to the other nodes of the group: openraft's network traits on top of [`Transport`].
//!
//! From the bottom up:
//!
//! * `transport`: how bytes reach an address; `server/peer_client.rs` has that of production.
//! * `sender`, `addresses`, `payload`: who sends, where the members are, how a payload is written.
//! * `rpc_client`: one RPC to one peer.
//! * `acknowledged`, `log_holds`, `snapshot_sender`: what is remembered of peers' logs, and how a peer
//!   gets a snapshot.
//! * `peer_disks`: what peers say of their disks.
//! * `peer_clocks`: what their wall clocks show.
//! * `candidacy`: since when this node asks its peers for votes.
//! * `peer`: Raft's RPCs to one peer, and what their answers mean for the lease.
//! * `factory`: [`Network`] makes the peers.

mod acknowledged;
mod addresses;
mod candidacy;
mod factory;
mod log_holds;
pub(super) mod payload;
mod peer;
mod peer_clocks;
mod peer_disks;
mod rpc_client;
mod sender;
mod snapshot_sender;
mod transport;

pub use factory::Network;
pub use peer_clocks::ClockDistance;
pub use sender::Sender;
pub use transport::{MESSAGE_BYTES_MAX, RaftRpc, Transport};

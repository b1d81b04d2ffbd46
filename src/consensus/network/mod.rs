//! Messages to the other nodes of the group: openraft's network traits on top of [`Transport`].
//!
//! From the bottom up:
//!
//! * `transport`: how bytes reach an address (`server/peer/client.rs` has that of production).
//! * `payload`: reads the payloads of peers' messages, and writes the answers.
//! * `member_addresses`: where the members are.
//! * `rpc_client`: one RPC to one peer.
//! * `message_sender`: who sends a message, as its header says.
//! * `acknowledged`, `log_holds`: up to where each peer has acknowledged the log, and for whom it is held.
//! * `peer_state`: what is remembered of the peers: their logs, and since when this node asks for votes.
//! * `snapshot_sender`: how a peer gets a snapshot.
//! * `peer`: Raft's RPCs to one peer, and what their answers mean for the lease.
//! * `group_network`: [`Network`], which makes the peers.

mod acknowledged;
mod group_network;
mod log_holds;
mod member_addresses;
mod message_sender;
pub(super) mod payload;
mod peer;
mod peer_state;
mod rpc_client;
mod snapshot_sender;
mod transport;

pub use group_network::Network;
pub use log_holds::LogHolds;
pub use message_sender::MessageSender;
pub use transport::{Destination, MESSAGE_BYTES_MAX, RaftRpc, Transport};

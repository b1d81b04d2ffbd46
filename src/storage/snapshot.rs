//! Snapshots: the applied table as of one log entry, on its way from node to node.
//!
//! The table is on the disk already, so taking a snapshot writes nothing. A snapshot is read from a
//! view of the sender's table while it is sent, and written beside the receiver's table while it
//! arrives. `incoming.rs` and `outgoing.rs` are the two ends, and `format.rs` the bytes between them.
//!
//! Invariant: an arrived snapshot can be installed only once it is checked whole and is on the disk.

mod format;
pub(super) mod incoming;
pub(super) mod outgoing;
pub use format::PART_BYTES_MAX as SNAPSHOT_PART_BYTES_MAX;

use openraft::type_config::alias;

use self::{incoming::ArrivedSnapshot, outgoing::OutgoingSnapshot};
use super::raft_types::Types;

/// A snapshot as Raft passes it along.
#[derive(Debug)]
pub enum SnapshotData {
    /// A snapshot of this node's table, to be sent.
    Outgoing(OutgoingSnapshot),
    /// A snapshot from a peer, to be installed.
    Arrived(ArrivedSnapshot),
}

/// A snapshot and what it covers.
pub type Snapshot = alias::SnapshotOf<Types, SnapshotData>;

//! RocksDB: the Raft log, Raft's hard state, the applied `max_seq` table, snapshots.
//!
//! One database per node for all its sets. Uses the domain and the clock; knows openraft's types,
//! since it keeps them. Invariants: what is acknowledged is on the disk; the table and its applied
//! index change in one atomic write; a record that cannot be trusted is an error, never a guess; a
//! failed fsync is final.

mod applied;
pub mod codec;
mod database;
mod directories;
mod error;
mod identity;
mod log;
mod namespaces;
mod raft_runtime;
mod raft_types;
mod recovery;
mod release;
mod room;
mod snapshot;
mod snapshot_format;
mod store;
mod table_change;
mod work;
mod writer;

pub use applied::{AppliedMeta, AppliedTable, AppliedView};
pub use database::Unsynced;
pub use error::{StoreError, replacing};
pub use identity::Identity;
pub use log::{LogReader, LogStore};
pub use namespaces::Namespaces;
pub use raft_types::{
    Entry, LogId, Member, Membership, Snapshot, SnapshotMeta, StoredMembership, Types, Vote,
};
pub use recovery::{Margin, RaisedNamespace, Recovery, recover};
pub use snapshot::{ArrivedSnapshot, IncomingSnapshot, OutgoingSnapshot, SnapshotData};
pub use snapshot_format::PART_BYTES_MAX as SNAPSHOT_PART_BYTES_MAX;
pub use store::{Space, Store, StoreOptions};
pub use work::Work;
pub use writer::DiskHealth;

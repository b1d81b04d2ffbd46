//! RocksDB: the Raft log, Raft's hard state, the applied `max_seq` table, snapshots.
//!
//! One database per node for all its sets. Uses the domain and the clock; knows openraft's types,
//! since it keeps them. Invariants: what is acknowledged is on the disk; the table and its applied
//! index change in one atomic write; a record that cannot be trusted is an error, never a guess; a
//! failed fsync is final.

mod applied;
mod blocking;
pub mod codec;
mod data_dir;
mod database;
mod directories;
mod error;
mod free_space;
mod identity;
mod layout;
mod log;
mod options;
mod raft_runtime;
mod raft_types;
mod recovery;
mod recovery_record;
mod release;
mod snapshot;
mod store;
mod table;
mod writer;

pub use applied::AppliedTable;
pub use blocking::BlockingExecutor;
pub use error::{StoreError, replacing};
pub use identity::Identity;
pub use log::{LogReader, LogStore};
pub use options::{StoreOptions, UnsyncedWrites};
pub use raft_types::{
    Entry, LogId, Member, Membership, SnapshotMeta, StoredMembership, Types, Vote,
};
pub use recovery::{Margin, recover};
pub use recovery_record::{RaisedNamespace, Recovery};
pub use snapshot::{
    ArrivedSnapshot, IncomingSnapshot, OutgoingSnapshot, SNAPSHOT_PART_BYTES_MAX, Snapshot,
    SnapshotData,
};
pub use store::{DiskUsage, Store};
pub use table::{AppliedMeta, AppliedView, Namespaces};
pub use writer::DiskHealth;

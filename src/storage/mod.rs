//! RocksDB: the Raft log, Raft's hard state, the applied `max_seq` table, snapshots.
//!
//! One database per node holds the data of all its sets. This module uses the domain and the clock. It
//! knows openraft's types, because it stores them.
//!
//! Invariants: what is acknowledged is on the disk; the table and its applied index change in one
//! atomic write; a record that cannot be trusted is an error, never a guess; a failed fsync is final.
//!
//! A folder uses those in the rows below it (`tests/architecture/rooms.rs`). From the top down, a blank line between two rows:
//!
//! * `applied`: the applied table as the state machine writes it.
//! * `recovery`: makes a cluster of one out of the data directory of one surviving node.
//!
//! * `log`: Raft's log and hard state of one set, for reading and writing.
//! * `snapshot`: a table on its way from node to node: format, sending, arriving.
//!
//! * `table`: the records of a table: how far it is, generations, namespaces, reads, changes.
//!
//! * `store`: opens the data directory of a node and holds its database and its writer.
//!
//! * `recovery_record`: what a recovery did, and the record of one that was cut short.
//!
//! * `identity`: whose data directory it is: the file `NODE` and a record in the database.
//! * `reclaimer`: frees the space of deleted namespaces.
//! * `writer`: the threads that write logs and votes, with one fsync for all that wait.
//!
//! * `database`: the RocksDB database: options, reads, batches, errors.
//!
//! * `directory_check`: whether this process may use a data directory, as it is mounted and owned.
//! * `options`: what a store is given from outside, with the seams for tests.
//!
//! * `data_dir`: which files a data directory may hold, and the lock on it.
//! * `free_space`: measures the disk, and keeps a reserve of it.
//! * `unwritten`: the entries that Raft has appended to its log, until they are in the database.
//!
//! * `codec`: how values become bytes.
//! * `directories`: names of files that outlive a power cut.
//! * `raft_types`: openraft's types as this product uses them.
//! * `spare`: the file that holds the space to open the database on a full disk.
//! * `unknown_format`: the error for a format that this release does not read.
//!
//! * `blocking`: where blocking work runs.
//! * `error`: the errors of this module, and what to do about each.
//! * `layout`: the column families and the keys in them.
//! * `raft_runtime`: the runtime that Raft runs on.

mod applied;
mod blocking;
pub mod codec;
mod data_dir;
mod database;
mod directories;
mod directory_check;
mod error;
mod free_space;
mod identity;
mod layout;
mod log;
mod options;
mod raft_runtime;
mod raft_types;
mod reclaimer;
mod recovery;
mod recovery_record;
mod snapshot;
mod spare;
mod store;
mod table;
mod unknown_format;
mod unwritten;
mod writer;

pub use applied::AppliedTable;
pub use blocking::BlockingExecutor;
pub use data_dir::LOCAL_SOCKET;
pub use error::{StoreError, replacing};
pub use free_space::{DiskSpace, FreeSpace, LowDisk};
pub use log::{LogReader, LogStore};
pub use options::{BeforeApply, StoreOptions, UnsyncedWrites};
pub use raft_types::{
    Entry, LogId, Member, Membership, SnapshotMeta, StoredMembership, Types, Vote, is_higher_vote,
    term_led,
};
pub use recovery::{Margin, recover};
pub use recovery_record::{RaisedNamespace, Recovery};
pub use snapshot::{
    SNAPSHOT_PART_BYTES_MAX, Snapshot, SnapshotData,
    incoming::{ArrivedSnapshot, IncomingSnapshot},
    outgoing::OutgoingSnapshot,
};
pub use store::{DiskUsage, Store};
pub use table::{
    AppliedMeta, AppliedView, NamespaceMap, PageAsked, RecordsFill, SectionsPage, TableChange,
    ceilings::{CEILINGS_HELD, Ceilings, CeilingsPart},
    founded_principals, read_days, read_page, read_workers,
};
pub use writer::DiskHealth;

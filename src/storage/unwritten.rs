//! The changes of a set's log that the writer has not written yet: entries that Raft appended, and a purge.
//!
//! Raft goes on once an entry is readable, or purged, and holds up everything else meanwhile: heartbeats, votes. A write to a
//! busy disk can take as long as an fsync. So that is true here at once, and in the database later.
//!
//! Invariant: an entry is taken out only once it is in the database. A reader that looks here first, and there afterwards,
//! finds it.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use openraft::entry::RaftEntry;
use parking_lot::Mutex;

use super::raft_types::{Entry, LogId};

/// The changes of the log that are not in the database yet.
#[derive(Clone, Default)]
pub struct Unwritten(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// Entries by their indexes, each with the size of its record in bytes.
    entries: BTreeMap<u64, (usize, Entry)>,
    /// Up to where the log was purged last.
    purged: Option<LogId>,
}

impl Unwritten {
    /// Adds the entry with this index, whose record has so many bytes.
    pub fn add(&self, index: u64, bytes: usize, entry: Entry) {
        self.0.lock().entries.insert(index, (bytes, entry));
    }

    /// The entries with these indexes are in the database.
    pub fn written(&self, indexes: &RangeInclusive<u64>) {
        self.0.lock().entries.retain(|index, _| !indexes.contains(index));
    }

    /// The log is purged up to and including `upto`.
    pub fn purge(&self, upto: LogId) {
        let mut inner = self.0.lock();
        inner.purged = inner.purged.max(Some(upto));
    }

    /// Up to where the log was purged since the node started, if it was.
    pub fn purged(&self) -> Option<LogId> {
        self.0.lock().purged
    }

    /// The last entry that is not in the database yet.
    pub fn last(&self) -> Option<LogId> {
        let inner = self.0.lock();
        inner.entries.last_key_value().map(|(_, (_, entry))| entry.log_id())
    }

    /// The entries from index `start` to `end` (exclusive), with the sizes of their records.
    pub fn between(&self, start: u64, end: u64) -> Vec<(usize, Entry)> {
        let inner = self.0.lock();
        match start < end {
            true => inner.entries.range(start..end).map(|(_, entry)| entry.clone()).collect(),
            false => Vec::new(),
        }
    }
}

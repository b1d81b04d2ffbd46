//! Remembers when the last log entry was proposed, and how long the disk wrote meanwhile. A slow call that waited for the entry
//! says so in the log.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{laps::EntryTimes, metrics::Metrics};

/// The entry that ended last.
#[derive(Debug, Default)]
pub struct LastEntry(Mutex<Option<EntryTimes>>);

/// An entry that is under way.
#[derive(Debug)]
pub struct UnderWay {
    began: Instant,
    /// For how long this node's disk had written by then.
    written: Duration,
}

impl UnderWay {
    /// It is proposed now.
    pub fn begin(metrics: &Metrics) -> Self {
        UnderWay { began: Instant::now(), written: metrics.fsync_seconds.sum() }
    }
}

impl LastEntry {
    /// The outcome of an entry is known.
    pub fn ended(&self, entry: UnderWay, metrics: &Metrics) {
        let wrote = metrics.fsync_seconds.sum().saturating_sub(entry.written);
        let times = EntryTimes { began: entry.began, ended: Instant::now(), wrote };
        *self.0.lock() = Some(times);
    }

    /// The one that ended last.
    pub fn get(&self) -> Option<EntryTimes> {
        *self.0.lock()
    }
}

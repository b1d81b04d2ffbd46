//! Keeps the log from being purged where a peer needs it next: a peer that is sent a snapshot goes on
//! with the entries after it, and would need another snapshot without them.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

/// The log indexes after which the log is held, and for how many peers.
#[derive(Default)]
pub struct LogHolds(Mutex<BTreeMap<u64, usize>>);

impl LogHolds {
    /// Up to where the log may be purged.
    pub fn purgeable_max(&self) -> u64 {
        let holds = self.0.lock();
        holds.keys().next().copied().unwrap_or(u64::MAX)
    }
}

/// Holds the log after an index until this is dropped.
pub struct LogHold {
    holds: Arc<LogHolds>,
    after: u64,
}

impl LogHold {
    /// Holds the entries after index `after`.
    pub fn after(holds: &Arc<LogHolds>, after: u64) -> Self {
        *holds.0.lock().entry(after).or_default() += 1;
        LogHold { holds: holds.clone(), after }
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        let mut holds = self.holds.0.lock();
        if let Some(peers) = holds.get_mut(&self.after) {
            *peers -= 1;
            if *peers == 0 {
                holds.remove(&self.after);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_held_for_the_peer_that_needs_most_of_it() {
        let holds = Arc::new(LogHolds::default());
        let (late, early) = (LogHold::after(&holds, 70), LogHold::after(&holds, 50));
        let again = LogHold::after(&holds, 50);
        drop(early);
        assert_eq!(holds.purgeable_max(), 50, "another peer is sent the same snapshot");
        drop(again);
        assert_eq!(holds.purgeable_max(), 70);
        drop(late);
        assert_eq!(holds.purgeable_max(), u64::MAX);
    }
}

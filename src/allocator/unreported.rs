//! Skipped numbers of which the leader alone knows, by namespace, until an entry of the log tells of them.
//!
//! Numbers that no entry has told of when a term is lost are missing in the accounts. The metrics have counted them.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::sequence::{NamespaceId, Skipped, SkippedBy};

/// The skipped numbers that no entry has told of yet.
#[derive(Debug, Default)]
pub struct Unreported {
    noted: Mutex<BTreeMap<(NamespaceId, SkippedBy), u64>>,
    /// Notified when something is noted.
    to_tell: Notify,
}

impl Unreported {
    /// Notes skipped numbers of a namespace.
    pub fn note(&self, namespace: NamespaceId, by: SkippedBy, numbers: u64) {
        if numbers > 0 {
            let mut noted = self.noted.lock();
            let sum = noted.entry((namespace, by)).or_default();
            // Floors may be raised by nearly all numbers, again and again.
            *sum = sum.saturating_add(numbers);
            drop(noted);
            self.to_tell.notify_one();
        }
    }

    /// Waits until there is something to tell, and `earliest` is reached.
    pub async fn wait_until(&self, earliest: Instant) {
        while self.noted.lock().is_empty() {
            self.to_tell.notified().await;
        }
        tokio::time::sleep_until(earliest).await;
    }

    /// All that was noted since the last call.
    pub fn take(&self) -> Vec<Skipped> {
        let noted = std::mem::take(&mut *self.noted.lock());
        let skipped =
            noted.into_iter().map(|((namespace, by), numbers)| Skipped { namespace, by, numbers });
        skipped.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_numbers_are_summed_by_namespace_and_told_once() {
        let unreported = Unreported::default();
        let (book, uid) = (NamespaceId(1), NamespaceId(2));
        unreported.note(uid, SkippedBy::Fence, 3);
        unreported.note(book, SkippedBy::Deadline, 5);
        unreported.note(uid, SkippedBy::Fence, 4);
        unreported.note(uid, SkippedBy::Deadline, 0);
        let skipped = |namespace, by, numbers| Skipped { namespace, by, numbers };
        assert_eq!(
            unreported.take(),
            [skipped(book, SkippedBy::Deadline, 5), skipped(uid, SkippedBy::Fence, 7)]
        );
        assert_eq!(unreported.take(), []);
        // Two keys are raised by nearly all numbers.
        unreported.note(uid, SkippedBy::Floor, u64::MAX - 1);
        unreported.note(uid, SkippedBy::Floor, u64::MAX - 1);
        assert_eq!(unreported.take(), [skipped(uid, SkippedBy::Floor, u64::MAX)]);
    }
}

//! Numbers that were taken and that nobody got, by namespace, until an entry of the log tells of them.
//!
//! Numbers that no entry has told of when a term is lost are missing in the accounts. The metrics have counted them.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::sequence::{Lost, LostBy, NamespaceId};

/// The skipped numbers that no entry has told of yet.
#[derive(Debug, Default)]
pub struct Unreported {
    noted: Mutex<BTreeMap<(NamespaceId, LostBy), u64>>,
    /// Notified when something is noted.
    to_tell: Notify,
}

impl Unreported {
    /// Notes numbers of a namespace that nobody got.
    pub fn note(&self, namespace: NamespaceId, by: LostBy, numbers: u64) {
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
    pub fn take(&self) -> Vec<Lost> {
        let noted = std::mem::take(&mut *self.noted.lock());
        let lost =
            noted.into_iter().map(|((namespace, by), numbers)| Lost { namespace, by, numbers });
        lost.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_got_is_summed_by_namespace_and_told_once() {
        let unreported = Unreported::default();
        let (book, uid) = (NamespaceId(1), NamespaceId(2));
        unreported.note(uid, LostBy::Fence, 3);
        unreported.note(book, LostBy::Deadline, 5);
        unreported.note(uid, LostBy::Fence, 4);
        unreported.note(uid, LostBy::Deadline, 0);
        let lost = |namespace, by, numbers| Lost { namespace, by, numbers };
        assert_eq!(
            unreported.take(),
            [lost(book, LostBy::Deadline, 5), lost(uid, LostBy::Fence, 7)]
        );
        assert_eq!(unreported.take(), []);
        // Two keys are raised by nearly all numbers.
        unreported.note(uid, LostBy::Floor, u64::MAX - 1);
        unreported.note(uid, LostBy::Floor, u64::MAX - 1);
        assert_eq!(unreported.take(), [lost(uid, LostBy::Floor, u64::MAX)]);
    }
}

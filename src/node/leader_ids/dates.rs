//! The dates in ids: a date of a namespace never goes back, whatever the clocks of its leaders show.
//!
//! A date is logged before it is used, once a day: as a lease of worker 0, which namespaces whose ids have a date do
//! not use otherwise. The same holds for it as for the times of worker ids: the log's order decides, and what was
//! answered once is never undercut. A new leader asks the log before it uses a date, and takes the date that was in
//! force if that is later than its own clock's.
//!
//! A date that lies years ahead, because a leader's clock was wrong, can be taken back ([`super`]).
//!
//! Invariant: a date that is known in a term is that of an entry of this term.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::sequence::NamespaceId;

/// The dates of namespaces that this node knows while it leads.
#[derive(Default)]
pub struct Dates {
    known: Mutex<KnownDates>,
    asking: Mutex<HashMap<NamespaceId, AskLock>>,
}

/// Held while the log is asked for a namespace: callers that come meanwhile wait for the answer.
type AskLock = Arc<tokio::sync::Mutex<()>>;

#[derive(Default)]
struct KnownDates {
    term: u64,
    /// In milliseconds since 1970.
    by_namespace: HashMap<NamespaceId, u64>,
}

impl Dates {
    /// The date that is known in a term, if it is `from_ms` or later.
    pub fn known(&self, term: u64, namespace: NamespaceId, from_ms: u64) -> Option<u64> {
        let known = self.known.lock();
        let date = (known.term == term).then(|| known.by_namespace.get(&namespace))??;
        (*date >= from_ms).then_some(*date)
    }

    /// The lock that a caller holds while it asks the log.
    pub fn asking(&self, namespace: NamespaceId) -> AskLock {
        self.asking.lock().entry(namespace).or_default().clone()
    }

    /// Forgets the date of a namespace, because it is taken back.
    pub fn forget(&self, namespace: NamespaceId) {
        self.known.lock().by_namespace.remove(&namespace);
    }

    /// Notes the date that an entry of a term has brought, and forgets namespaces that do not exist.
    pub fn learn(
        &self, term: u64, namespace: NamespaceId, date_ms: u64,
        exists: impl Fn(NamespaceId) -> bool,
    ) {
        self.asking.lock().retain(|id, _| exists(*id));
        let mut known = self.known.lock();
        if known.term < term {
            *known = KnownDates { term, ..KnownDates::default() };
        }
        if known.term == term {
            let date = known.by_namespace.entry(namespace).or_default();
            *date = date_ms.max(*date);
            known.by_namespace.retain(|id, _| exists(*id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_known_in_its_term_alone_and_never_goes_back() {
        let dates = Dates::default();
        let namespace = NamespaceId(3);
        dates.learn(5, namespace, 1_000, |_| true);
        dates.learn(5, namespace, 900, |_| true);
        assert_eq!(dates.known(5, namespace, 1_000), Some(1_000));
        assert_eq!(dates.known(5, namespace, 1_001), None);
        assert_eq!(dates.known(6, namespace, 0), None);
        dates.learn(6, namespace, 1_200, |_| true);
        dates.learn(5, namespace, 9_000, |_| true);
        assert_eq!(dates.known(6, namespace, 0), Some(1_200));
        assert_eq!(dates.known(5, namespace, 0), None);
        dates.learn(6, NamespaceId(4), 1_200, |id| id != namespace);
        assert_eq!(dates.known(6, namespace, 0), None);
        dates.forget(NamespaceId(4));
        assert_eq!(dates.known(6, NamespaceId(4), 0), None);
    }
}

//! Request ids of ordinary namespaces: a bounded table in one term's memory. Nothing of it is logged or handed over.
//!
//! Some 300 bytes an id: its slot, its place in the order of ages, the id twice, and a key that is a name.
//!
//! Invariant: an id is remembered from when its first call begins. It is forgotten if that call fails, or once
//! its answer is old enough.

use std::{
    collections::{HashMap, VecDeque, hash_map},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::gapless::RequestIdLimits;
use crate::{
    clock::Instant,
    sequence::{Key, NamespaceId, OwnedKey, Range, RequestId},
};

/// How many answers are forgotten at most when a call begins, if their time has passed.
const FORGET_MAX: usize = 16;

type Id = (NamespaceId, RequestId);

/// The request ids of a term.
pub struct RequestIds {
    table: Arc<Mutex<Table>>,
    limits: RequestIdLimits,
}

#[derive(Default)]
struct Table {
    ids: HashMap<Id, Entry>,
    /// The ids that were answered, in the order of their answers.
    answered: VecDeque<(Instant, Id)>,
}

/// What an id is used for.
struct Entry {
    key: OwnedKey,
    count: u64,
    state: State,
}

enum State {
    /// The first call waits. The channel closes when it ends.
    UnderWay(watch::Receiver<()>),
    Answered(Range),
}

/// What a call with a request id is to do.
pub enum Begun {
    /// Take the numbers: it is the first one.
    First(First),
    /// Answer these, which the first call got.
    Answered(Range),
    /// Wait until the channel closes, and begin again.
    UnderWay(watch::Receiver<()>),
    /// Nothing: the id is used for this many numbers of another key, or for another count.
    Reused {
        /// The key.
        key: OwnedKey,
        /// How many numbers.
        count: u64,
    },
    /// Nothing: so many ids are remembered already.
    Full(u64),
}

/// The first call with a request id. If it is dropped without an answer, the id is forgotten.
pub struct First {
    table: Arc<Mutex<Table>>,
    id: Option<Id>,
    /// Dropped last: whoever waits finds the table changed.
    _under_way: watch::Sender<()>,
}

impl RequestIds {
    /// An empty table.
    pub fn new(limits: RequestIdLimits) -> Self {
        RequestIds { table: Arc::default(), limits }
    }

    /// How many ids are remembered.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.table.lock().ids.len()
    }

    /// Begins a call at `now`.
    pub fn begin(
        &self, namespace: NamespaceId, request: &RequestId, key: Key<'_>, count: u64, now: Instant,
    ) -> Begun {
        let mut table = self.table.lock();
        table.forget_old(now, self.limits);
        let ids = table.ids.len() as u64;
        let id = (namespace, request.clone());
        match table.ids.entry(id.clone()) {
            hash_map::Entry::Occupied(entry) => {
                let entry = entry.get();
                if entry.key.as_key() != key || entry.count != count {
                    return Begun::Reused { key: entry.key.clone(), count: entry.count };
                }
                match &entry.state {
                    State::UnderWay(first) => Begun::UnderWay(first.clone()),
                    State::Answered(range) => Begun::Answered(*range),
                }
            }
            hash_map::Entry::Vacant(_) if ids >= self.limits.ids_max => {
                Begun::Full(self.limits.ids_max)
            }
            hash_map::Entry::Vacant(entry) => {
                let (under_way, ended) = watch::channel(());
                entry.insert(Entry { key: key.into(), count, state: State::UnderWay(ended) });
                Begun::First(First {
                    table: self.table.clone(),
                    id: Some(id),
                    _under_way: under_way,
                })
            }
        }
    }
}

impl Table {
    /// Forgets answers whose time has passed.
    fn forget_old(&mut self, now: Instant, limits: RequestIdLimits) {
        for _ in 0..FORGET_MAX {
            match self.answered.front() {
                Some((at, _)) if now.since(*at) >= limits.keep => {}
                Some(_) | None => return,
            }
            if let Some((_, id)) = self.answered.pop_front() {
                self.ids.remove(&id);
            }
        }
    }
}

impl First {
    /// Remembers what the call is answered with, at `now`.
    pub fn answered(mut self, range: Range, now: Instant) {
        let Some(id) = self.id.take() else { return };
        let mut table = self.table.lock();
        if let Some(entry) = table.ids.get_mut(&id) {
            entry.state = State::Answered(range);
            table.answered.push_back((now, id));
        }
    }
}

impl Drop for First {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.table.lock().ids.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ids(ids_max: u64) -> RequestIds {
        RequestIds::new(RequestIdLimits { keep: Duration::from_secs(1), ids_max })
    }

    fn begin(ids: &RequestIds, id: &str, key: u64, count: u64, at_ms: u64) -> Begun {
        let request = RequestId::new(id.as_bytes()).unwrap();
        let now = Instant::from_nanos(at_ms * 1_000_000);
        ids.begin(NamespaceId(1), &request, Key::Id(key), count, now)
    }

    fn first(begun: Begun) -> First {
        match begun {
            Begun::First(first) => first,
            _ => panic!("it is not the first call"),
        }
    }

    const RANGE: Range = Range { first: 5, last: 6, increment: 1 };

    #[test]
    fn an_id_answers_its_first_calls_numbers_until_its_time_has_passed() {
        let ids = ids(10);
        let at = Instant::from_nanos(7_000_000);
        first(begin(&ids, "a", 1, 2, 0)).answered(RANGE, at);
        assert!(matches!(begin(&ids, "a", 1, 2, 1_006), Begun::Answered(RANGE)));
        drop(first(begin(&ids, "a", 1, 2, 1_007)));
        assert_eq!(ids.count(), 0);
    }

    #[test]
    fn an_id_is_refused_for_another_key_or_count_and_none_is_forgotten_to_make_room() {
        let ids = ids(1);
        let under_way = first(begin(&ids, "a", 1, 2, 0));
        for (key, count) in [(2, 2), (1, 3)] {
            let Begun::Reused { key, count } = begin(&ids, "a", key, count, 0) else {
                panic!("it was accepted");
            };
            assert_eq!((key, count), (OwnedKey::Id(1), 2));
        }
        assert!(matches!(begin(&ids, "b", 1, 2, 0), Begun::Full(1)));
        drop(under_way);
        first(begin(&ids, "b", 1, 2, 0));
    }

    #[tokio::test]
    async fn a_retry_waits_for_the_first_call_and_takes_its_place_if_that_fails() {
        let ids = ids(10);
        let failing = first(begin(&ids, "a", 1, 2, 0));
        let Begun::UnderWay(mut ended) = begin(&ids, "a", 1, 2, 0) else {
            panic!("the first call is under way");
        };
        drop(failing);
        assert!(ended.changed().await.is_err(), "the channel is closed");
        let succeeding = first(begin(&ids, "a", 1, 2, 0));
        succeeding.answered(RANGE, Instant::from_nanos(0));
        assert!(matches!(begin(&ids, "a", 1, 2, 0), Begun::Answered(RANGE)));
    }
}

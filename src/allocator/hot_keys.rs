//! Which keys get the most numbers: a sketch of a bounded size, for operators.
//!
//! It is the SpaceSaving sketch (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in
//! Data Streams, 2005) over a random sample of the calls, and what it counted halves in some seven seconds.
//!
//! Invariant: a call costs one look at a counter of its thread, and the sketch a bounded time in a second, however many
//! calls there are. Nothing here decides about numbers.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;

use crate::sequence::{Key, Namespace, NamespaceId, OwnedKey};

/// How many keys the sketch counts.
const KEYS: usize = 64;
/// The part of a count that is left after a second.
const LEFT_AFTER_SECOND: f64 = 0.9;
/// After this many samples since the last ageing, samples become half as frequent.
const SAMPLES_BEFORE_HALVING: u64 = 8_192;
/// Samples become no rarer than one call in this many, on average.
const EVERY_MAX: u64 = 4_096;
/// How many calls a thread leaves out at most before it looks at how frequent samples are now.
const LOOK_AFTER: u64 = 64;

thread_local! {
    /// How many calls of this thread are left out before it looks at the sketch again.
    static LEFT_OUT: Cell<u64> = const { Cell::new(0) };
    /// The state of the thread's draws. They are not the node's: no other choice may depend on them.
    static DRAWS: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
}

/// A key that gets many numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct HotKey {
    /// The name of the key's namespace.
    pub namespace: String,
    /// The key.
    pub key: OwnedKey,
    /// About how many numbers a second it gets, as an average of the last ten seconds or so.
    pub per_second: f64,
}

/// Which keys get the most numbers.
#[derive(Debug)]
pub struct HotKeys {
    /// One call in so many is a sample.
    every: AtomicU64,
    sketch: Mutex<Sketch>,
}

#[derive(Debug, Default)]
struct Sketch {
    counted: Vec<CountedKey>,
    /// How many samples there were since the last [`HotKeys::age`].
    samples: u64,
}

#[derive(Debug)]
struct CountedKey {
    namespace: NamespaceId,
    name: String,
    key: OwnedKey,
    /// How many numbers it got, at most.
    numbers: f64,
    /// How many of them may have been another key's, whose place it took.
    anothers: f64,
}

impl Default for HotKeys {
    fn default() -> Self {
        HotKeys { every: AtomicU64::new(1), sketch: Mutex::default() }
    }
}

impl HotKeys {
    /// Notes that a key got `count` numbers.
    #[inline]
    pub fn note(&self, namespace: &Namespace, key: Key<'_>, count: u64) {
        match LEFT_OUT.get() {
            0 => LEFT_OUT.set(self.look(namespace, || Some((key, count)))),
            left => LEFT_OUT.set(left - 1),
        }
    }

    /// Notes the `keys` keys of a message: `taken` answers the key at a place and how many numbers it got; `None` if it
    /// got none.
    #[inline]
    pub fn note_many<'k>(
        &self, namespace: &Namespace, keys: usize, taken: impl Fn(usize) -> Option<(Key<'k>, u64)>,
    ) {
        let keys = keys as u64;
        let mut place = LEFT_OUT.get();
        while place < keys {
            place += 1 + self.look(namespace, || taken(place as usize));
        }
        LEFT_OUT.set(place - keys);
    }

    /// Looks whether this call is a sample, and counts it then. Returns how many calls to leave out before the next look.
    #[cold]
    fn look<'k>(
        &self, namespace: &Namespace, taken: impl FnOnce() -> Option<(Key<'k>, u64)>,
    ) -> u64 {
        // One call in `between` comes here, and one in `every` of all is a sample. Both at random, so that calls that
        // come in turns are all seen.
        let every = self.every.load(Relaxed);
        let between = every.min(LOOK_AFTER);
        if draw().is_multiple_of(every / between)
            && let Some((key, count)) = taken()
            // A thread that would have to wait leaves its sample out.
            && let Some(mut sketch) = self.sketch.try_lock()
        {
            sketch.samples += 1;
            if sketch.samples.is_multiple_of(SAMPLES_BEFORE_HALVING) {
                self.every.store((every * 2).min(EVERY_MAX), Relaxed);
            }
            sketch.count(namespace, key, count as f64 * every as f64);
        }
        draw() % (2 * between - 1)
    }

    /// Lets what was counted fade. Call it once a second.
    pub fn age(&self) {
        let mut sketch = self.sketch.lock();
        let samples = std::mem::take(&mut sketch.samples);
        if samples < SAMPLES_BEFORE_HALVING / 4 {
            let every = self.every.load(Relaxed);
            self.every.store((every / 2).max(1), Relaxed);
        }
        for counted in &mut sketch.counted {
            counted.numbers *= LEFT_AFTER_SECOND;
            counted.anothers *= LEFT_AFTER_SECOND;
        }
        sketch.counted.retain(|counted| counted.numbers >= 0.5);
    }

    /// Up to `limit` keys, those that get the most numbers first. A key is left out if most of its count may be
    /// another's: then no key stands out there.
    pub fn hottest(&self, limit: usize) -> Vec<HotKey> {
        let sketch = self.sketch.lock();
        let standing_out = (sketch.counted.iter()).filter(|key| key.anothers * 2.0 < key.numbers);
        let mut hottest: Vec<HotKey> = standing_out
            .map(|counted| HotKey {
                namespace: counted.name.clone(),
                key: counted.key.clone(),
                per_second: (counted.numbers - counted.anothers) * (1.0 - LEFT_AFTER_SECOND),
            })
            .collect();
        drop(sketch);
        hottest.sort_by(|one, other| other.per_second.total_cmp(&one.per_second));
        hottest.truncate(limit);
        hottest
    }
}

impl Sketch {
    fn count(&mut self, namespace: &Namespace, key: Key<'_>, numbers: f64) {
        let is_it = |counted: &&mut CountedKey| {
            counted.namespace == namespace.id && counted.key.as_key() == key
        };
        if let Some(counted) = self.counted.iter_mut().find(is_it) {
            counted.numbers += numbers;
            return;
        }
        let mut counted = CountedKey {
            namespace: namespace.id,
            name: namespace.config.name.clone(),
            key: key.into(),
            numbers,
            anothers: 0.0,
        };
        if self.counted.len() < KEYS {
            self.counted.push(counted);
            return;
        }
        let by_numbers =
            |one: &&mut CountedKey, other: &&mut CountedKey| one.numbers.total_cmp(&other.numbers);
        if let Some(least) = self.counted.iter_mut().min_by(by_numbers) {
            counted.anothers = least.numbers;
            counted.numbers += least.numbers;
            *least = counted;
        }
    }
}

/// A random number of this thread. (Marsaglia: Xorshift RNGs, 2003.)
fn draw() -> u64 {
    let mut state = DRAWS.get();
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    DRAWS.set(state);
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::NamespaceConfig;

    fn namespace() -> Namespace {
        Namespace::new(NamespaceId(1), NamespaceConfig::new("book"))
    }

    /// Twenty seconds with `calls` calls each.
    fn after_calls(calls: u64, key: impl Fn(u64) -> u64) -> HotKeys {
        let (hot_keys, namespace) = (HotKeys::default(), namespace());
        for second in 0..20 {
            for call in 0..calls {
                hot_keys.note(&namespace, Key::Id(key(second * calls + call)), 1);
            }
            hot_keys.age();
        }
        hot_keys
    }

    fn ids(hottest: &[HotKey]) -> Vec<u64> {
        let id = |key: &HotKey| match key.key {
            OwnedKey::Id(id) => id,
            OwnedKey::Name(_) => panic!("a name"),
        };
        hottest.iter().map(id).collect()
    }

    #[test]
    fn keys_that_get_many_numbers_stand_out_of_a_million_that_get_few() {
        // Key 1 gets a half, key 2 a quarter, key 3 an eighth, and each other key next to nothing.
        let hot_keys = after_calls(400_000, |call| match call % 8 {
            0..4 => 1,
            4 | 5 => 2,
            6 => 3,
            _ => call,
        });
        let hottest = hot_keys.hottest(10);
        assert_eq!(ids(&hottest)[..3], [1, 2, 3]);
        for (key, share) in hottest.iter().zip([0.5, 0.25, 0.125]) {
            let told = key.per_second / 400_000.0 / share;
            assert!((0.6..1.3).contains(&told), "{told} of what it got");
        }
    }

    #[test]
    fn with_few_calls_each_is_counted_and_fades() {
        let hot_keys = after_calls(10, |_| 7);
        let hottest = hot_keys.hottest(10);
        assert_eq!(ids(&hottest), [7]);
        // After twenty seconds the average has come to 88 % of 9.
        assert!((7.0..10.0).contains(&hottest[0].per_second), "{hottest:?}");
        (0..60).for_each(|_| hot_keys.age());
        assert_eq!(hot_keys.hottest(10), []);
    }

    #[test]
    fn where_all_keys_get_the_same_none_stands_out() {
        let hot_keys = after_calls(100_000, |call| call);
        let hottest = hot_keys.hottest(10);
        assert!(hottest.iter().all(|key| key.per_second < 2_000.0), "{hottest:?}");
    }

    #[test]
    fn a_message_of_many_keys_counts_like_as_many_calls() {
        let (hot_keys, namespace) = (HotKeys::default(), namespace());
        for _ in 0..20 {
            for _ in 0..100 {
                let id = |place: usize| match place.is_multiple_of(2) {
                    true => 1,
                    false => place as u64,
                };
                hot_keys.note_many(&namespace, 1_000, |place| Some((Key::Id(id(place)), 3)));
            }
            hot_keys.age();
        }
        let hottest = hot_keys.hottest(1);
        assert_eq!(ids(&hottest), [1]);
        let told = hottest[0].per_second / 150_000.0;
        assert!((0.6..1.3).contains(&told), "{told} of what it got");
    }
}

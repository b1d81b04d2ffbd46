//! One term's memory: what its requests and its bumper share.
//!
//! Invariant: it starts empty, and once it is closed nobody takes a number from it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    cursor::{Hasher, shard_of},
    gate::Gate,
    section::{Queue, Wish},
    shard::{Answer, Footprint, Shard},
};
use crate::{
    clock::{Clock, Instant},
    consensus::Group,
    metrics::{Metrics, SkipCause},
    sequence::{Bump, Bumped, Key, Namespace, SectionId, Trim},
    storage::{Namespaces, Work},
};

/// The keys are spread over this many locks; a power of two.
const SHARDS: usize = 64;

/// A shard and its lock, in cache lines of their own: two threads at neighbours do not meet.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Locked(Mutex<Shard>);

/// Where a section is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    shard: u32,
    section: u32,
}

/// What the term's requests and its bumper share.
pub struct Memory {
    term: u64,
    shards: Box<[Locked]>,
    hasher: Hasher,
    gate: Gate,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    work: Work,
    /// How long a bump takes of late, in nanoseconds.
    bump_nanos: AtomicU64,
}

impl Memory {
    /// An empty memory for `term`.
    pub fn new(term: u64, clock: Arc<dyn Clock>, metrics: Arc<Metrics>, work: Work) -> Memory {
        Memory {
            term,
            shards: (0..SHARDS).map(|_| Locked::default()).collect(),
            hasher: Hasher::default(),
            gate: Gate::default(),
            clock,
            metrics,
            work,
            bump_nanos: AtomicU64::new(0),
        }
    }

    /// The Raft term.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The node's metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The time, by the node's clock.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The door to the memory: whoever takes numbers is inside until they are answered or discarded.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Takes the next `count` (at least 1) numbers of a key, or waits for them; and, where a bump must be
    /// asked for, where it finds its section.
    #[inline]
    pub fn take(&self, namespace: &Namespace, key: Key<'_>, count: u64) -> (Answer, Option<Place>) {
        let (hash, shard) = self.find(namespace, key);
        let mut locked = self.shards[shard as usize].0.lock();
        let (answer, section) = locked.take(&self.hasher, hash, namespace, key, count);
        (answer, section.map(|section| Place { shard, section }))
    }

    /// The last number that this term knows to be handed out for a key: 0 for none. `None` before
    /// the first chunk of its section.
    pub fn current(&self, namespace: &Namespace, key: Key<'_>) -> Option<u64> {
        let (hash, shard) = self.find(namespace, key);
        let mut locked = self.shards[shard as usize].0.lock();
        locked.current(hash, namespace, key)
    }

    /// The bump that the section at `place` wants by now; `None` where nobody wants one any more, or the
    /// memory is closed.
    pub fn wanted(&self, place: Place, namespaces: &Namespaces) -> Option<Bump> {
        let mut shard = self.shards[place.shard as usize].0.lock();
        let section = shard.section(place.section)?.id.clone();
        let namespace = namespaces.by_id(section.namespace)?;
        let Wish {
            numbers,
            unused_max,
        } = shard.wish(place.section, namespace)?;
        Some(Bump {
            section,
            numbers,
            unused_max,
        })
    }

    /// Notes what a bump of the section at `place` came to, and serves those who waited for it, with the
    /// namespace as it is by now. True where a further bump must be asked for.
    pub fn bumped(
        &self,
        place: Place,
        id: &SectionId,
        came_to: Bumped,
        namespace: &Namespace,
    ) -> bool {
        let bump_time = Duration::from_nanos(self.bump_nanos.load(Relaxed));
        let now = self.now();
        let mut served = Vec::new();
        let again = {
            let mut shard = self.shards[place.shard as usize].0.lock();
            let Some(section) = shard.section(place.section).filter(|found| found.id == *id) else {
                return false;
            };
            match came_to {
                Bumped::Chunk(chunk) => {
                    self.metrics.skip(SkipCause::leader_change, chunk.left);
                    if section.grant(chunk, &namespace.config, now, bump_time) {
                        shard.consult(place.section);
                    }
                }
                Bumped::Exhausted { max } => section.exhaust(max),
                Bumped::NoNamespace => {}
            }
            shard.serve(place.section, namespace, &mut served)
        };
        // Woken after the lock is let go.
        served.into_iter().for_each(|one| one.tell(&self.metrics));
        again
    }

    /// Notes how long a bump took.
    pub fn bump_took(&self, span: Duration) {
        let (old, new) = (self.bump_nanos.load(Relaxed), span.as_nanos() as u64);
        // Only the bumper writes it.
        let average = if old == 0 { new } else { (old * 7 + new) / 8 };
        self.bump_nanos.store(average, Relaxed);
    }

    /// Drops everything: the term is lost. Whoever waits is told so.
    ///
    /// The work grows with the keys, and is not the caller's.
    pub fn abandon(&self) {
        self.gate.close();
        let shards: Vec<Shard> = (self.shards.iter())
            .map(|shard| std::mem::take(&mut *shard.0.lock()))
            .collect();
        self.work.leave(move || {
            let shards = shards.into_iter();
            let mut waiting: Vec<(SectionId, Queue)> =
                shards.flat_map(Shard::into_waiting).collect();
            // Who waits is told in an order that is the same in every run.
            waiting.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        });
    }

    /// Empties the memory and says what was used, in an order that is the same in every run: first
    /// where numbers can be saved. What was used to its end is told for the count of skipped numbers
    /// alone.
    pub fn close(&self, group: &Group) -> Vec<Trim> {
        let namespaces = group.view().namespaces();
        let progression = |id| {
            let namespace = namespaces.by_id(id)?;
            Some(namespace.config.progression())
        };
        let shards = self.shards.iter();
        let mut used: Vec<_> = shards
            .flat_map(|shard| shard.0.lock().close(progression))
            .collect();
        used.sort_unstable_by(|a, b| {
            let order = a.has_left.cmp(&b.has_left).reverse();
            order.then_with(|| a.section.cmp(&b.section))
        });
        used.into_iter()
            .map(|used| {
                self.metrics.skip(SkipCause::shared_section, used.lost);
                Trim {
                    section: used.section,
                    used: used.last,
                }
            })
            .collect()
    }

    /// How much it holds. Takes the lock of each shard, for a moment.
    pub fn footprint(&self) -> Footprint {
        let shards = self.shards.iter().map(|shard| shard.0.lock().footprint());
        shards.fold(Footprint::default(), |sum, part| Footprint {
            keys: sum.keys + part.keys,
            sections: sum.sections + part.sections,
            bytes: sum.bytes + part.bytes,
        })
    }

    /// A key's hash and shard.
    #[inline]
    fn find(&self, namespace: &Namespace, key: Key<'_>) -> (u64, u32) {
        let hash = self.hasher.key(namespace.id, key);
        let shard = shard_of(&self.hasher, hash, namespace, key);
        // From the middle: the tables use the lowest and the highest bits.
        (hash, ((shard >> 32) % SHARDS as u64) as u32)
    }
}

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
    gate::Gate,
    section::{Section, Take},
    shard::{Hasher, Shard, shard_of},
};
use crate::{
    clock::{Clock, Instant},
    consensus::Group,
    metrics::{Metrics, SkipCause},
    sequence::{Chunk, Key, Namespace, NamespaceConfig, SectionId, Trim},
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
    /// How long a bump takes of late, in nanoseconds.
    bump_nanos: AtomicU64,
}

impl Memory {
    /// An empty memory for `term`.
    pub fn new(term: u64, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Memory {
        Memory {
            term,
            shards: (0..SHARDS).map(|_| Locked::default()).collect(),
            hasher: Hasher::default(),
            gate: Gate::default(),
            clock,
            metrics,
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

    /// Takes the next `count` (at least 1) numbers of a key, or says what is missing; and where a
    /// bump would find its section.
    #[inline]
    pub fn take(&self, namespace: &Namespace, key: Key<'_>, count: u64) -> (Take, Place) {
        let (hash, shard) = self.find(namespace, key);
        let mut locked = self.shards[shard as usize].0.lock();
        let (take, section) = locked.take(&self.hasher, hash, namespace, key, count);
        (take, Place { shard, section })
    }

    /// The last number that this term knows to be handed out for a key: 0 for none. `None` before
    /// the first chunk of its section.
    pub fn current(&self, namespace: &Namespace, key: Key<'_>) -> Option<u64> {
        let (hash, shard) = self.find(namespace, key);
        let mut locked = self.shards[shard as usize].0.lock();
        locked.current(hash, namespace, key)
    }

    /// Which section is at `place`, and how many numbers it wants by now. `None` once the memory is
    /// closed.
    pub fn wanted(&self, place: Place) -> Option<(SectionId, u64)> {
        self.with(place, |section| (section.id.clone(), section.wanted()))
    }

    /// Adds a chunk to the section at `place`.
    pub fn grant(&self, place: Place, id: &SectionId, chunk: Chunk, config: &NamespaceConfig) {
        let (_, step_max) = config.step_bounds();
        let left = chunk.left.min(step_max);
        self.metrics.skip(SkipCause::leader_change, left);
        let bump_time = Duration::from_nanos(self.bump_nanos.load(Relaxed));
        let now = self.now();
        let mut shard = self.shards[place.shard as usize].0.lock();
        let section = shard.section(place.section);
        if let Some(section) = section.filter(|section| section.id == *id)
            && section.grant(chunk, config, now, bump_time)
        {
            shard.consult(place.section);
        }
    }

    /// Notes that the section at `place` has no number left under `max`.
    pub fn exhaust(&self, place: Place, max: u64) {
        self.with(place, |section| section.exhaust(max));
    }

    /// Notes how long a bump took.
    pub fn bump_took(&self, span: Duration) {
        let (old, new) = (self.bump_nanos.load(Relaxed), span.as_nanos() as u64);
        // Only the bumper writes it.
        let average = if old == 0 { new } else { (old * 7 + new) / 8 };
        self.bump_nanos.store(average, Relaxed);
    }

    /// Drops everything: the term is lost. Whoever waits is told so.
    pub fn abandon(&self) {
        self.gate.close();
        let shards = self.shards.iter();
        let mut sections: Vec<Section> = shards
            .flat_map(|shard| std::mem::take(&mut *shard.0.lock()).into_sections())
            .collect();
        // Who waits is told in an order that is the same in every run.
        sections.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        drop(sections);
    }

    /// Empties the memory and says what was used, in an order that is the same in every run.
    pub fn close(&self, group: &Group) -> Vec<Trim> {
        let namespaces = group.view().namespaces();
        let lattice = |id| {
            let namespace = namespaces.by_id(id)?;
            Some(namespace.config.lattice())
        };
        let shards = self.shards.iter();
        let mut used: Vec<_> = shards
            .flat_map(|shard| shard.0.lock().close(lattice))
            .collect();
        used.sort_unstable_by(|a, b| a.section.cmp(&b.section));
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

    fn with<T>(&self, place: Place, what: impl FnOnce(&mut Section) -> T) -> Option<T> {
        let mut shard = self.shards[place.shard as usize].0.lock();
        shard.section(place.section).map(what)
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

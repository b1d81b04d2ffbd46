//! One term's memory: shards behind locks, shared by the term's requests and its bumper.
//!
//! Invariant: it starts empty, and once it is closed no call takes a number from it.

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
    hasher::Hasher,
    pending::{Answer, Waiters},
    refill::BumpSize,
    section::StepChange,
    shard::{Footprint, SectionPlace, Shard},
};
use crate::{
    clock::{Clock, Instant},
    consensus::Group,
    metrics::{Metrics, SkipCause},
    sequence::{Bump, Bumped, Key, Namespace, SectionId, Trim},
    storage::{BlockingExecutor, Namespaces},
};

/// How many locks the keys are spread over. A power of two.
const SHARDS: usize = 64;

/// A shard and its lock, in cache lines of their own, so that threads at neighbouring shards do not
/// contend.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Locked(Mutex<Shard>);

/// Where a section is in the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    shard: u32,
    section: SectionPlace,
}

/// One term's memory.
pub struct Memory {
    term: u64,
    shards: Box<[Locked]>,
    hasher: Hasher,
    gate: Gate,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    work: BlockingExecutor,
    /// The moving average of a bump's time, in nanoseconds. 0 before the first bump.
    bump_nanos: AtomicU64,
}

impl Memory {
    /// An empty memory for `term`.
    pub fn new(
        term: u64,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        work: BlockingExecutor,
    ) -> Memory {
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

    /// The gate of the memory. A call that takes numbers is inside until they are answered or discarded.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Takes the next `count` (at least 1) numbers of a key, or waits for them. Also answers the place of
    /// the section that a bump must be asked for, if one must.
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
        let locked = self.shards[shard as usize].0.lock();
        locked.current(hash, namespace, key)
    }

    /// The bump that the section at `place` needs now. `None` if nobody wants it any more, or the memory
    /// is closed.
    pub fn propose_bump(&self, place: Place, namespaces: &Namespaces) -> Option<Bump> {
        let mut shard = self.shards[place.shard as usize].0.lock();
        let section = shard.section_id(place.section)?;
        let namespace = namespaces.by_id(section.namespace)?;
        let BumpSize {
            numbers,
            unused_max,
        } = shard.propose_bump(place.section, namespace)?;
        Some(Bump {
            section,
            numbers,
            unused_max,
        })
    }

    /// Takes in the answer to the bump of the section at `place`, and serves the calls that waited for
    /// it, with the namespace as it is now. True if a further bump must be asked for.
    pub fn bump_answered(
        &self,
        place: Place,
        id: &SectionId,
        answer: Bumped,
        namespace: &Namespace,
    ) -> bool {
        let bump_time = Duration::from_nanos(self.bump_nanos.load(Relaxed));
        let now = self.now();
        let mut served = Vec::new();
        let again = {
            let mut shard = self.shards[place.shard as usize].0.lock();
            // After `abandon` another section may have this place.
            if shard.section_id(place.section).as_ref() != Some(id) {
                return false;
            }
            match answer {
                Bumped::Chunk(chunk) => {
                    self.metrics.skip(SkipCause::leader_change, chunk.left);
                    let config = &namespace.config;
                    let change = shard.grant(place.section, chunk, config, now, bump_time);
                    if let Some(StepChange { was, step, lasted }) = change {
                        tracing::debug!(section = ?id, step, was, ?lasted, "the step of a section changes");
                    }
                }
                Bumped::Exhausted { max } => shard.exhaust(place.section, max, &namespace.config),
                Bumped::NoNamespace => {}
            }
            shard.serve(place.section, namespace, &mut served)
        };
        // The callers are woken after the lock is released.
        served.into_iter().for_each(|one| one.tell(&self.metrics));
        again
    }

    /// Adds one measured bump time to the average.
    pub fn bump_took(&self, span: Duration) {
        let (old, new) = (self.bump_nanos.load(Relaxed), span.as_nanos() as u64);
        // The bumper alone writes it, so load and store need not be one step.
        let average = if old == 0 { new } else { (old * 7 + new) / 8 };
        self.bump_nanos.store(average, Relaxed);
    }

    /// Closes the gate and drops everything, because the term is lost. Calls that wait get an error.
    ///
    /// The time that it takes grows with the keys, so it is spent beside the caller.
    pub fn abandon(&self) {
        self.gate.close();
        let shards: Vec<Shard> = (self.shards.iter())
            .map(|shard| std::mem::take(&mut *shard.0.lock()))
            .collect();
        self.work.run_detached(move || {
            let shards = shards.into_iter();
            let mut waiting: Vec<(SectionId, Waiters)> =
                shards.flat_map(Shard::into_waiters).collect();
            // Waiters are dropped in an order that is the same in every run.
            waiting.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        });
    }

    /// Empties the memory and says what was used, in an order that is the same in every run. Sections
    /// with numbers left come first, because a trim saves those. Sections used to their end follow; their
    /// trims only keep the count of skipped numbers right.
    pub fn close(&self, group: &Group) -> Vec<Trim> {
        debug_assert!(self.gate.is_closed(), "no call may take numbers meanwhile");
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

    /// How much the memory holds. Takes the lock of each shard for a moment.
    pub fn footprint(&self) -> Footprint {
        let shards = self.shards.iter().map(|shard| shard.0.lock().footprint());
        shards.fold(Footprint::default(), |sum, part| Footprint {
            keys: sum.keys + part.keys,
            sections: sum.sections + part.sections,
            bytes: sum.bytes + part.bytes,
        })
    }

    /// The hash and the shard of a key.
    #[inline]
    fn find(&self, namespace: &Namespace, key: Key<'_>) -> (u64, u32) {
        let hash = self.hasher.key(namespace.id, key);
        let shard = self.hasher.section(hash, namespace, key);
        // Bits from the middle: the hash tables use the lowest and the highest ones.
        (hash, ((shard >> 32) % SHARDS as u64) as u32)
    }
}

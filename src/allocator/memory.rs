//! One term's memory: shards behind locks, shared by the term's requests and its bumper.
//!
//! `take.rs` and `take_many.rs` take numbers, and `floors.rs` raises floors. `first_touch.rs` gives a section its first chunk,
//! and `checkpointing.rs` knows which of these chunks the log does not have yet. `eviction.rs` and `round.rs` make room, and
//! `room.rs` says whether there is some. `last_entry.rs` says how long the last log entry took.
//!
//! Invariant: it starts empty, or is the one that the last term handed off. Once it is closed no call takes a number
//! from it. A section's first chunk comes from its record, which was read after this term's first entry was applied, or
//! from a bump; or the term before had it.

mod checkpointing;
mod eviction;
mod first_touch;
mod floors;
mod last_entry;
pub(super) mod room;
pub(super) mod round;
pub(super) mod shards;
mod take;
mod take_many;

pub use checkpointing::BACKGROUND_SECTIONS_MAX;
pub use room::Room;
pub use take_many::{KEYS_AT_ONCE, KeyBatch};

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use self::{
    last_entry::{LastEntry, UnderWay},
    round::Round,
    shards::Shards,
};
use super::{
    gate::Gate,
    part::SectionPlace,
    section::{
        StepChange,
        holding::Holding,
        pending::{ServedCall, Waiters},
        queued_section::QueuedSection,
    },
    shard::Shard,
    stage::TermStage,
    unreported::Unreported,
};
use crate::{
    clock::{Clock, Instant},
    consensus::TermLease,
    laps::EntryTimes,
    metrics::{CountsGuard, Metrics, SetMetrics, SkipCause},
    sequence::{Bump, Bumped, Key, Namespace, NamespaceId, SectionId, SectionUse, SkippedBy},
    storage::{AppliedView, BlockingExecutor, NamespaceMap},
};

/// The need of a section before it can serve a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Its record must be read.
    Read,
    /// It must be bumped.
    Bump,
}

/// Where a section is in the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlace {
    shard: u32,
    section: SectionPlace,
}

impl MemoryPlace {
    /// The need of a section in shard number `shard`, with the section's place in the memory.
    fn in_shard(shard: u32, need: Option<(SectionPlace, Need)>) -> Option<(MemoryPlace, Need)> {
        need.map(|(section, need)| (MemoryPlace { shard, section }, need))
    }
}

/// One term's memory.
pub struct Memory {
    term: u64,
    /// The number of the epoch that gave this term its chunks.
    epoch: u64,
    view: AppliedView,
    shards: Shards,
    gate: Gate,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    set_metrics: Arc<SetMetrics>,
    work: BlockingExecutor,
    /// The moving average of a bump's time, in nanoseconds. 0 before the first bump.
    bump_nanos: AtomicU64,
    /// The shard that [`Memory::take_uncheckpointed`] looks at next.
    checkpointing: AtomicU32,
    /// Notified when the term first uses the chunk that its epoch gave of a section, and when the gate closes.
    to_checkpoint: Arc<Notify>,
    /// Held while an entry that checkpoints or releases sections is under way.
    background_entry: tokio::sync::Mutex<()>,
    /// Skipped numbers of which no entry has told yet.
    unreported: Unreported,
    /// The entry with numbers for calls that ended last.
    last_entry: LastEntry,
    /// Whether there is room for more keys.
    room: Arc<Room>,
    /// The round of the hand of [`Memory::evict`].
    round: Mutex<Round>,
}

impl Memory {
    /// The memory of `term`, whose epoch has the number `epoch` and is applied in `view`. `shards` are empty, or those
    /// that the term before handed off. It may hold `bytes_max` bytes.
    pub fn new(
        (term, epoch): (u64, u64), shards: Shards, view: AppliedView, clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>, work: BlockingExecutor, bytes_max: usize,
    ) -> Memory {
        Memory {
            term,
            epoch,
            set_metrics: metrics.of_set(view.set()),
            view,
            checkpointing: AtomicU32::new(0),
            to_checkpoint: Arc::default(),
            background_entry: tokio::sync::Mutex::default(),
            unreported: Unreported::default(),
            last_entry: LastEntry::default(),
            room: Arc::new(Room::of(bytes_max)),
            round: Mutex::default(),
            shards,
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

    /// The applied table.
    pub fn view(&self) -> &AppliedView {
        &self.view
    }

    /// The number of the epoch that gave this term its chunks.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The metrics of its set.
    pub fn set_metrics(&self) -> &SetMetrics {
        &self.set_metrics
    }

    /// The counts of a namespace.
    #[inline]
    pub fn counts(&self, namespace: &Namespace) -> CountsGuard {
        self.metrics.namespaces().of(namespace.id.0, &namespace.config.name)
    }

    /// The counts of the namespace with this id.
    pub fn counts_of(&self, id: NamespaceId) -> CountsGuard {
        self.view.namespaces().counts_of(id, &self.metrics)
    }

    /// The time, by the node's clock.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The time of day, by the node's clock.
    pub fn wall_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    /// Skipped numbers of which no entry has told yet.
    pub fn unreported(&self) -> &Unreported {
        &self.unreported
    }

    /// Counts numbers of a namespace that are skipped, and notes them for the accounts.
    pub fn skip(&self, namespace: &Namespace, by: SkippedBy, numbers: u64) {
        let cause = match by {
            SkippedBy::Fence => SkipCause::fence,
            SkippedBy::Deadline => SkipCause::deadline,
            SkippedBy::Floor => SkipCause::floor,
        };
        self.counts(namespace).skip(cause, numbers);
        self.unreported.note(namespace.id, by, numbers);
    }

    /// Counts numbers that a raised floor passed over. Those of ids count for nothing: most of them stand for times at which
    /// nobody asked.
    pub fn note_passed(&self, namespace: &Namespace, numbers: u64) {
        if namespace.config.format.is_none() {
            self.skip(namespace, SkippedBy::Floor, numbers);
        }
    }

    /// The gate of the memory. A call that takes numbers is inside until they are answered or discarded.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Whether there is room for more keys.
    pub fn room(&self) -> &Arc<Room> {
        &self.room
    }

    /// The last number that this term knows to be handed out for a key: 0 for none. `None` before
    /// the first chunk of its section.
    pub fn current(&self, namespace: &Namespace, key: Key<'_>) -> Option<u64> {
        self.holding(namespace, key).map(|holding| holding.last)
    }

    /// The holding of a key's section. `None` before the first chunk.
    pub fn holding(&self, namespace: &Namespace, key: Key<'_>) -> Option<Holding> {
        let (hash, shard) = self.shards.find(namespace, key);
        let locked = self.shards.lock(shard);
        locked.holding(hash, namespace, key)
    }

    /// The bump that the section at `place` needs now. `None` if nobody wants it any more, or the memory
    /// is closed.
    ///
    /// The section is the one that asked, although a place may go from one to another. A section that has asked for a bump, or
    /// for its record, is not quiet until the task that carries that out has ended it, and only a quiet section is evicted.
    /// Each section has one such request under way at most: who comes later waits for it. While it is being evicted there is
    /// none; who waits then is noted, and [`Memory::end_eviction`] asks.
    pub fn next_bump(&self, place: MemoryPlace, namespaces: &NamespaceMap) -> Option<Bump> {
        let mut shard = self.shards.lock(place.shard);
        if self.has_ended() {
            // A call that was inside the gate asks. The term knows no more what it used: another chunk would only be
            // skipped. Without its shard, the call is told that this node leads no more.
            let shard = std::mem::take(&mut *shard);
            self.work.run_detached(move || drop(shard));
            return None;
        }
        let section = shard.section_id(place.section)?;
        // A bump before its release would bring numbers that the release takes back. The releaser asks once more.
        if shard.is_being_evicted(&section) {
            return None;
        }
        let Some(namespace) = namespaces.by_id(section.namespace) else {
            shard.with_waiters(place.section, QueuedSection::drop_waiters);
            return None;
        };
        assert!(!shard.is_quiet(place.section), "{section:?} has not asked for a bump");
        let raise = shard.next_bump(place.section, namespace)?;
        Some(Bump { section, raise })
    }

    /// How many calls wait for the section at `place`.
    pub fn calls_waiting(&self, place: MemoryPlace) -> usize {
        let mut calls = 0;
        let mut shard = self.shards.lock(place.shard);
        shard.with_waiters(place.section, |queued| calls = queued.waiting());
        calls
    }

    /// Takes in the answer to the bump of the section at `place`, and serves the calls that waited for
    /// it, with the namespace as it is now. True if a further bump must be asked for.
    pub fn bump_answered(
        &self, place: MemoryPlace, id: &SectionId, answer: Bumped, namespace: &Namespace,
    ) -> bool {
        let config = &namespace.config;
        let take_in = |shard: &mut Shard| match answer {
            Bumped::Chunk(chunk) => {
                let (now, bump_time) = (self.now(), self.bump_time());
                let change = shard.add_chunk(place.section, chunk, config, now, bump_time);
                if let Some(StepChange { was, step, lasted }) = change {
                    tracing::debug!(section = ?id, step, was, ?lasted, "the step of a section changes");
                }
            }
            Bumped::Exhausted { max } => {
                shard.with_section(place.section, config, |queued| queued.section.exhaust(max));
            }
            Bumped::OverKeysMax { keys_max } => {
                let note = |queued: &mut QueuedSection| queued.section.exceed_keys_max(keys_max);
                shard.with_section(place.section, config, note);
            }
            Bumped::NoNamespace => shard.with_waiters(place.section, QueuedSection::drop_waiters),
        };
        self.serve_at(place, id, namespace, |shard, _| {
            take_in(shard);
            true
        })
    }

    /// Drops the calls that wait for the section at `place`, whose namespace was deleted or replaced. They look for the
    /// namespace by its name again. Nothing of the section can be used by a call that comes after the deletion: such a
    /// call finds no namespace of that id.
    pub fn namespace_gone(&self, place: MemoryPlace, id: &SectionId) {
        let mut shard = self.shards.lock(place.shard);
        // After `abandon` another section may have this place.
        if shard.section_id(place.section).as_ref() == Some(id) {
            shard.with_waiters(place.section, QueuedSection::drop_waiters);
        }
    }

    /// Lets `take_in` change the section at `place`, and then, if it says so, serves the calls that waited for it, with the
    /// namespace as it is now. It may answer some of them itself. True if a bump must be asked for.
    fn serve_at(
        &self, place: MemoryPlace, id: &SectionId, namespace: &Namespace,
        take_in: impl FnOnce(&mut Shard, &mut Vec<ServedCall>) -> bool,
    ) -> bool {
        let mut served = Vec::new();
        let again = {
            let mut shard = self.shards.lock(place.shard);
            // After `abandon`, or after a namespace was deleted, another section may have this place.
            if shard.section_id(place.section).as_ref() != Some(id) {
                return false;
            }
            let hasher = self.shards.hasher();
            take_in(&mut shard, &mut served)
                && shard.serve(hasher, place.section, namespace, &mut served)
        };
        // The callers are woken after the lock is released.
        let counts = self.counts(namespace).shared();
        for one in served {
            self.note_passed(namespace, one.passed());
            one.tell(&counts);
        }
        again
    }

    /// How long a bump takes, as measured.
    fn bump_time(&self) -> Duration {
        Duration::from_nanos(self.bump_nanos.load(Relaxed))
    }

    /// Adds one measured bump time to the average.
    pub fn bump_took(&self, span: Duration) {
        let (old, new) = (self.bump_nanos.load(Relaxed), span.as_nanos() as u64);
        // The bumper alone writes it, so load and store need not be one step.
        let average = if old == 0 { new } else { (old * 7 + new) / 8 };
        self.bump_nanos.store(average, Relaxed);
    }

    /// An entry with numbers for calls is proposed now.
    pub fn begin_entry(&self) -> UnderWay {
        UnderWay::begin(&self.metrics)
    }

    /// Its outcome is known.
    pub fn entry_ended(&self, entry: UnderWay) {
        self.last_entry.ended(entry, &self.metrics);
    }

    /// When the entry was under way that ended last.
    pub fn last_entry(&self) -> Option<EntryTimes> {
        self.last_entry.get()
    }

    /// Closes the gate and drops everything, because the term is lost, or is over. Calls that wait get an error.
    ///
    /// The time that it takes grows with the keys, so it is spent beside the caller.
    ///
    /// # Panics
    /// If the term's lease is not void, and somebody is inside the gate: numbers that are not known any more could be answered.
    pub fn abandon(&self, lease: &TermLease) {
        assert_eq!(lease.term(), self.term, "the lease of another term");
        assert!(
            lease.is_void() || self.gate.is_empty(),
            "calls of a term go on without its memory"
        );
        // Before the first shard is emptied: a call that finds an empty shard, under its lock, sees that the term has ended.
        // A term that has logged its last entry has ended before.
        self.gate.advance(TermStage::Abandoned);
        self.to_checkpoint.notify_one();
        self.room.give_up();
        let shards = self.shards.each().map(|mut shard| std::mem::take(&mut *shard));
        let shards: Vec<Shard> = shards.collect();
        self.work.run_detached(move || {
            let shards = shards.into_iter();
            let mut waiting: Vec<(SectionId, Waiters)> =
                shards.flat_map(Shard::into_waiters).collect();
            // Waiters are dropped in an order that is the same in every run.
            waiting.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        });
    }

    /// True if the term has ended: a section that is not found may have been touched all the same, and what was used is not
    /// known any more.
    pub fn has_ended(&self) -> bool {
        self.gate.stage().has_ended()
    }

    /// Empties the memory of a closed term and says what was used, in an order that is the same in every run. `None` if the
    /// term has ended: what was used is not known any more. Sections with numbers left come first, because a trim saves
    /// those. Sections used to their end follow: if the epoch is returned, their records must say so.
    pub fn close(&self) -> Option<Vec<SectionUse>> {
        let stage = self.gate.stage();
        assert!(stage.is_past_closing(), "a term that is {stage:?} may take numbers meanwhile");
        let namespaces = self.view.namespaces();
        let progression = |id| {
            let namespace = namespaces.by_id(id)?;
            Some(namespace.config.progression())
        };
        let shards = self.shards.each();
        let mut used: Vec<_> = shards.flat_map(|mut shard| shard.close(progression)).collect();
        if self.has_ended() {
            return None;
        }
        used.sort_unstable_by(|(a_is_used_up, a), (b_is_used_up, b)| {
            (a_is_used_up, &a.section).cmp(&(b_is_used_up, &b.section))
        });
        Some(used.into_iter().map(|(_, used)| used).collect())
    }

    /// The keys and their sections.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }
}

#[cfg(test)]
mod tests;

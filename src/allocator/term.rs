//! The allocator of one term: take from memory, then check the fence, then answer.
//!
//! It is opened once the term's leader knows all that was committed before, and is closed for good when
//! the leadership is handed over or lost.
//!
//! `many.rs` takes numbers of many keys, `current.rs` answers last numbers, `floors.rs` raises floors, and `above.rs` takes
//! numbers above one. `gapless.rs` has numbers taken by entries of the log, for the calls in `gapless_calls.rs`.
//!
//! Invariant: no number leaves it unless the fence was checked after the number was taken.

mod above;
mod current;
mod floors;
pub(super) mod gapless;
mod gapless_calls;
mod many;

pub use above::Above;
pub use floors::SECTION_COUNTS;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use self::gapless::{GaplessLimits, TakeCall, Taker};
use super::{
    bumper::{self, Request},
    checkpointer,
    fence::{Fence, FenceKind},
    gate::Inside,
    held_numbers::{Delivery, HeldNumbers},
    hot_keys::HotKeys,
    memory::{Memory, MemoryPlace, Need, shards::Shards},
    memory_reader::MemoryReader,
    outcome::Why,
    received_memory::ReceivedMemory,
    record_reader,
    releaser::{self, MemoryLimits, Releaser},
    section::answers::TakeAnswer,
    shard::Footprint,
    stage::TermStage,
};
use crate::{
    clock::Clock,
    consensus::{Group, TermLease},
    laps,
    metrics::{CountsGuard, Metrics, NamespaceCounts},
    planted_bugs::{Bug, is_planted},
    sequence::{Command, EntryOutcome, Key, Namespace, Range, SectionUse, SkippedBy, TermEnd},
};

/// How long a call that waits for the disk or the log stays in a term that is closed. Most bumps that are under way then come
/// in this time. A call that left earlier would burn the numbers that a bump brings it. But until the last call has left,
/// nobody gets a number.
const STAY_MAX: Duration = Duration::from_millis(50);

/// The settings of a term.
#[derive(Debug, Clone, Copy)]
pub struct TermOptions {
    /// The fence that answers pass.
    pub fence: FenceKind,
    /// How much the memory may hold, and for how long.
    pub memory: MemoryLimits,
    /// How request ids of gapless namespaces are remembered, and how much one call may take of them.
    pub gapless: GaplessLimits,
}

/// One term's allocator.
pub struct Term {
    memory: Arc<Memory>,
    lease: Arc<TermLease>,
    fence: Fence,
    bumper: mpsc::UnboundedSender<Request>,
    reader: mpsc::UnboundedSender<MemoryPlace>,
    gapless: mpsc::UnboundedSender<TakeCall>,
    group: Arc<Group>,
    hot_keys: HotKeys,
}

impl Term {
    /// Opens the allocator of the term that `lease` belongs to, with the memory that was handed off to it, or an empty
    /// one. The number of its epoch is `epoch`. The entry that gave the term its chunks is applied on this node.
    pub fn open(
        group: Arc<Group>, lease: Arc<TermLease>, epoch: u64, received: Option<ReceivedMemory>,
        options: TermOptions, clock: Arc<dyn Clock>, metrics: Arc<Metrics>,
    ) -> Term {
        let view = group.view.clone();
        view.recent_records().leading(lease.term());
        let memory = Arc::new(Memory::new(
            (lease.term(), epoch),
            received.map_or_else(Shards::default, ReceivedMemory::into_shards),
            view,
            clock.clone(),
            metrics,
            group.this_node.store.blocking(),
            options.memory.bytes_max,
        ));
        let (gapless, calls) = mpsc::unbounded_channel();
        let taker = Taker {
            memory: memory.clone(),
            group: group.clone(),
            lease: lease.clone(),
            clock: clock.clone(),
            limits: options.gapless,
        };
        group.this_node.tasks.spawn("gapless keys", gapless::run(taker, calls));
        if memory.uncheckpointed() > 0 {
            memory.to_checkpoint().notify_one();
        }
        // The memory that it took over may have more keys than there is room for on this node.
        memory.room().wake_releaser();
        let (bumper, requests) = mpsc::unbounded_channel();
        let (reader, places) = mpsc::unbounded_channel();
        let reading = record_reader::run(memory.clone(), lease.clone(), places, bumper.clone());
        group.this_node.tasks.spawn("record reader", reading);
        let checkpointing = checkpointer::run(
            group.clone(),
            Arc::downgrade(&memory),
            memory.to_checkpoint().clone(),
        );
        group.this_node.tasks.spawn("checkpointer", checkpointing);
        let releaser = Releaser {
            group: group.clone(),
            lease: lease.clone(),
            idle: options.memory.idle,
            bumper: bumper.clone(),
        };
        let releasing = releaser::run(releaser, Arc::downgrade(&memory), memory.room().clone());
        group.this_node.tasks.spawn("releaser", releasing);
        let bumping = bumper::run(group.clone(), memory.clone(), lease.clone(), requests);
        group.this_node.tasks.spawn("bumper", bumping);
        let ending = abandon_when_void(lease.clone(), Arc::downgrade(&memory));
        group.this_node.tasks.spawn("the end of a term", ending);
        Term {
            memory,
            fence: Fence::new(options.fence, group.clone(), lease.clone(), clock),
            lease,
            bumper,
            reader,
            gapless,
            group,
            hot_keys: HotKeys::default(),
        }
    }

    /// The Raft term.
    pub fn term(&self) -> u64 {
        self.memory.term()
    }

    /// The lease of the term.
    pub fn lease(&self) -> &Arc<TermLease> {
        &self.lease
    }

    /// Which keys get the most numbers.
    pub fn hot_keys(&self) -> &HotKeys {
        &self.hot_keys
    }

    /// Hands out the next `count` (at least 1) numbers of a key.
    ///
    /// # Errors
    /// [`Why::AskLeader`] if the term is over, or is closed while the call waits, or the fence fails,
    /// [`Why::Exhausted`] if too few numbers are left, [`Why::OverKeysMax`] for a key beyond `keys_max`,
    /// [`Why::MemoryFull`] for a new key without room, [`Why::LowDisk`] for one that never had a number while disks are low,
    /// [`Why::DeadlineExceeded`] if a bump took too long. Numbers that were taken before the fence failed are burnt,
    /// and counted as skipped.
    pub async fn next(
        &self, namespace: &Namespace, key: Key<'_>, count: u64, deadline: Instant,
    ) -> Result<Range, Why> {
        assert!(!namespace.config.gapless, "a chunk would leave a gap");
        let _inside = self.enter()?;
        let taken = match self.take(namespace, key, count) {
            TakeAnswer::Done(taken) => taken,
            TakeAnswer::Later(later) => Box::pin(self.wait(later, deadline)).await?,
        };
        let counts = self.counts(namespace);
        let held = HeldNumbers::new(&*counts, if taken.is_ok() { count } else { 0 });
        // Not earlier: if a successor answered before the numbers were taken, the fence fails now.
        self.pass_fence(namespace, held, taken.is_ok().into(), deadline).await?;
        if taken.is_ok() {
            self.hot_keys.note(namespace, key, count);
        }
        taken
    }

    /// The term's memory.
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// How much the term's memory holds. Once the term is closed, it may block while a shard's keys are listed: then do
    /// not call it on a worker of the runtime, but for the task that has them listed.
    pub fn footprint(&self) -> Footprint {
        self.memory.shards().footprint()
    }

    /// True if no call will ever get a number from this term again.
    pub fn is_over(&self) -> bool {
        self.memory.gate().is_closed() || self.lease.is_void()
    }

    /// True if this node leads at a moment after the call. Checks the fence alone.
    pub async fn still_leads(&self, deadline: Instant) -> bool {
        self.fence.check(deadline).await
    }

    /// Begins to send the term's memory to the node that is to lead next. The term goes on.
    pub fn read_memory(&self) -> MemoryReader {
        MemoryReader::new(self.memory.clone(), self.group.this_node.store.blocking())
    }

    /// Closes the term for good. Waits for the calls that have taken their numbers, and for all that the term writes;
    /// no call takes any number afterwards.
    ///
    /// `None` if the term was closed already, or is lost, also meanwhile.
    pub async fn close(&self) -> Option<()> {
        let gate = self.memory.gate();
        if !gate.advance(TermStage::Closing) {
            return None;
        }
        gate.emptied().await;
        // A bump under way would raise a ceiling again after it was lowered or handed off to a successor.
        let (done, finished) = oneshot::channel();
        self.bumper.send(Request::Finish(done)).ok()?;
        finished.await.ok()?;
        // So would an entry under way that checkpoints sections. One that releases sections would be refused behind the term's
        // last entry.
        self.memory.background_ended().await;
        gate.advance(TermStage::Closed).then_some(())
    }

    /// Lets no further call in. Does not wait for the calls inside, so the term does not count as closed.
    pub fn stop_serving(&self) {
        // It may be closed already, or lost.
        self.memory.gate().advance(TermStage::Closing);
    }

    /// How far the term is.
    pub fn stage(&self) -> TermStage {
        self.memory.gate().stage()
    }

    /// Logs the last entry of the term: it hands the memory off to a successor, or returns the unused numbers. Call it
    /// after [`Term::close`].
    ///
    /// # Errors
    /// The reason for which it is not known to be applied.
    ///
    /// # Panics
    /// If the term is not closed: numbers that are used yet would be another term's as well.
    pub async fn log_last_entry(&self, last: TermEnd) -> Result<(), String> {
        let (stage, is_early) = (self.stage(), is_planted(Bug::HandOffBeforeEmpty));
        assert!(
            stage.is_past_closing() || is_early,
            "a term that is {stage:?} logs its last entry"
        );
        let end = match last {
            TermEnd::HandOff { .. } => TermStage::HandedOff,
            TermEnd::Return => TermStage::Returned,
        };
        let entry = Command::EndTerm(last);
        self.group.propose_for(self.term(), entry, &EntryOutcome::TermEnded).await?;
        if !is_early {
            // If the term was lost meanwhile, its memory is abandoned, and the entry counts all the same.
            self.memory.gate().advance(end);
        }
        Ok(())
    }

    /// The numbers that the term used, for the ceilings to be lowered to. Call it after [`Term::close`]. The memory is empty
    /// afterwards.
    ///
    /// `None` if the term is lost: nobody knows then what it used.
    pub async fn list_used(&self) -> Option<Vec<SectionUse>> {
        let memory = self.memory.clone();
        let closed = self.group.this_node.store.blocking().run(move || memory.close());
        closed.await.ok().flatten()
    }

    /// Where calls for numbers of gapless keys go.
    pub(super) fn gapless(&self) -> &mpsc::UnboundedSender<TakeCall> {
        &self.gapless
    }

    /// The counts of a namespace.
    #[inline]
    pub(super) fn counts(&self, namespace: &Namespace) -> CountsGuard {
        self.memory.counts(namespace)
    }

    /// Enters the gate, unless numbers that are taken now would surely be wasted.
    pub(super) fn enter(&self) -> Result<Inside<'_>, Why> {
        if self.fence.surely_fails() {
            return Err(Why::AskLeader);
        }
        self.memory.gate().enter().ok_or(Why::AskLeader)
    }

    /// Takes numbers from memory, or queues up for them there. Asks for a bump if one is needed.
    #[inline]
    fn take(&self, namespace: &Namespace, key: Key<'_>, count: u64) -> TakeAnswer {
        let (answer, need) = self.memory.take(namespace, key, count);
        if let Some(need) = need {
            self.ask_for(need);
        }
        answer
    }

    /// Asks for what a section needs.
    #[cold]
    fn ask_for(&self, (place, need): (MemoryPlace, Need)) {
        let is_lost = match need {
            Need::Read => self.reader.send(place).is_err(),
            Need::Bump => self.bumper.send(Request::Bump(place)).is_err(),
        };
        // The task has ended, so the term is lost. `abandon` tells the calls that wait.
        if is_lost {
            self.lease.void();
            self.memory.abandon(&self.lease);
        }
    }

    /// Waits for numbers that a bump brings.
    #[cold]
    async fn wait(
        &self, later: oneshot::Receiver<Delivery>, deadline: Instant,
    ) -> Result<Result<Range, Why>, Why> {
        self.in_time(later, deadline).await.map(Delivery::accept)
    }

    /// Waits for what a bump brings; in a term that is closed only for [`STAY_MAX`].
    async fn in_time<T>(&self, later: oneshot::Receiver<T>, deadline: Instant) -> Result<T, Why> {
        let brought = tokio::select! {
            biased;
            brought = later => brought.map_err(|_dropped| Why::AskLeader),
            () = self.memory.gate().closed_for(STAY_MAX) => Err(Why::AskLeader),
            () = tokio::time::sleep_until(deadline) => Err(match self.fence.hears_majority() {
                true => Why::DeadlineExceeded,
                false => Why::AskLeader,
            }),
        };
        laps::lap_of_entry(|| self.memory.last_entry());
        brought
    }

    /// Checks the fence for numbers that were `held` for the answers of `answers` keys. If it fails, they
    /// are discarded and counted.
    pub(super) async fn pass_fence(
        &self, namespace: &Namespace, held: HeldNumbers<&NamespaceCounts>, answers: u64,
        deadline: Instant,
    ) -> Result<(), Why> {
        if self.fence.check(deadline).await {
            held.answer(answers);
            Ok(())
        } else {
            self.memory.set_metrics().fence_failures.inc();
            self.memory.skip(namespace, SkippedBy::Fence, held.release());
            Err(Why::AskLeader)
        }
    }

    /// As [`Term::pass_fence`], of a call that took nothing.
    pub(super) async fn pass_fence_with_nothing(
        &self, namespace: &Namespace, deadline: Instant,
    ) -> Result<(), Why> {
        let counts = self.counts(namespace);
        self.pass_fence(namespace, HeldNumbers::new(&*counts, 0), 0, deadline).await
    }
}

/// Abandons the memory once the term's lease is void. Otherwise calls that wait would keep the term alive:
/// they are inside the gate.
async fn abandon_when_void(lease: Arc<TermLease>, memory: Weak<Memory>) {
    lease.until_void().await;
    if let Some(memory) = memory.upgrade() {
        memory.abandon(&lease);
    }
}

impl Drop for Term {
    /// No call is inside the gate: each call inside holds a reference to the term.
    fn drop(&mut self) {
        self.memory.abandon(&self.lease);
    }
}

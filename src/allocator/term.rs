//! The allocator of one term: take from memory, then check the fence, then answer.
//!
//! It is opened once the term's leader knows all that was committed before, and is closed for good when
//! the leadership is handed over or lost.
//!
//! Invariant: no number leaves it unless the fence was checked after the number was taken.

mod current_many;
mod raise;

use std::sync::{Arc, Weak};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    bumper::{self, Request},
    fence::{Fence, FenceKind},
    gapless::{self, Call, RequestIdLimits, Taker},
    gate::Inside,
    held::{Delivery, Held, Shortage, Taken},
    hot_keys::HotKeys,
    inheritance::Inheritance,
    memory::{Asked, Memory, Need, Place},
    memory_reader::MemoryReader,
    next_many::NextMany,
    pending::Answer,
    record_reader,
    releaser::{self, MemoryLimits},
    request_ids::RequestIds,
    settler,
    shard::Footprint,
    shards::Shards,
};
use crate::{
    clock::{Clock, Instant as ClockInstant},
    consensus::{Group, TermLease},
    metrics::{Metrics, SkipCause},
    sequence::{Key, Namespace, OwnedKey, Range, SectionId, Trim},
    storage::StoreError,
};

/// Why a term handed out nothing.
#[derive(Debug, thiserror::Error)]
pub enum NextError {
    /// The term is over, or its lease has run out for now: ask the node that leads. Or the namespace was deleted or
    /// replaced meanwhile: look for it again.
    #[error("this node does not lead any more")]
    NotLeading,
    /// The namespace's `max` leaves too few numbers.
    #[error("only {left} numbers are left below the namespace's max")]
    Exhausted {
        /// How many are left.
        left: u64,
    },
    /// The key is new, and the namespace has as many keys as it may have.
    #[error("the namespace has {keys_max} keys already")]
    OverQuota {
        /// The namespace's `keys_max`.
        keys_max: u64,
    },
    /// A floor is to be raised above the namespace's `max`.
    #[error("the floor is above the namespace's max")]
    AboveMax,
    /// The caller's deadline passed before the numbers were there.
    #[error("the deadline passed")]
    DeadlineExceeded,
    /// Numbers of a gapless key were to be taken, and it is not known whether they were.
    #[error("whether the numbers were taken is not known")]
    Unknown,
    /// The request id was used for another request.
    #[error("the request id was used for {count} numbers of another key")]
    Reused {
        /// The key that it was used for.
        key: OwnedKey,
        /// How many numbers it was used for.
        count: u64,
    },
    /// No further request id can be remembered.
    #[error("{ids_max} request ids are remembered")]
    IdsFull {
        /// How many are.
        ids_max: u64,
    },
    /// The applied table cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the settings say about a term.
#[derive(Debug, Clone, Copy)]
pub struct TermOptions {
    /// The fence that answers pass.
    pub fence: FenceKind,
    /// How much the memory may hold, and for how long.
    pub memory: MemoryLimits,
    /// How request ids are remembered.
    pub request_ids: RequestIdLimits,
}

/// One term's allocator.
pub struct Term {
    memory: Arc<Memory>,
    lease: Arc<TermLease>,
    fence: Fence,
    bumper: mpsc::UnboundedSender<Request>,
    reader: mpsc::UnboundedSender<Place>,
    gapless: mpsc::UnboundedSender<Call>,
    request_ids: RequestIds,
    group: Arc<Group>,
    hot_keys: HotKeys,
}

impl Term {
    /// Opens the allocator of the term that `lease` belongs to, with the memory that it inherits, or an empty one.
    /// The number of its lift is `lift`. What gave the term its chunks, the lift or the inheritance, is applied on
    /// this node.
    pub fn open(
        group: Arc<Group>,
        lease: Arc<TermLease>,
        lift: u64,
        inheritance: Option<Inheritance>,
        options: TermOptions,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Term {
        let work = group.store().blocking();
        let view = group.view().clone();
        view.recent_records().leading(lease.term());
        let term = lease.term();
        let shards = inheritance.map_or_else(Shards::default, Inheritance::into_shards);
        let (gapless, calls) = mpsc::unbounded_channel();
        let taker = Taker {
            group: group.clone(),
            lease: lease.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
            limits: options.request_ids,
        };
        group
            .tasks()
            .spawn("gapless keys", gapless::run(taker, calls));
        let memory = Memory::new(term, lift, shards, view, clock.clone(), metrics, work);
        let memory = Arc::new(memory);
        if memory.unsettled() > 0 {
            memory.to_settle().notify_one();
        }
        let (bumper, requests) = mpsc::unbounded_channel();
        let (reader, places) = mpsc::unbounded_channel();
        let reading = record_reader::run(memory.clone(), lease.clone(), places, bumper.clone());
        group.tasks().spawn("record reader", reading);
        let settling = settler::run(
            group.clone(),
            Arc::downgrade(&memory),
            memory.to_settle().clone(),
        );
        group.tasks().spawn("settler", settling);
        let releasing = releaser::run(
            group.clone(),
            Arc::downgrade(&memory),
            memory.room().clone(),
            lease.clone(),
            options.memory,
            bumper.clone(),
        );
        group.tasks().spawn("releaser", releasing);
        let bumping = bumper::run(group.clone(), memory.clone(), lease.clone(), requests);
        group.tasks().spawn("bumper", bumping);
        let ending = abandon_when_void(lease.clone(), Arc::downgrade(&memory));
        group.tasks().spawn("the end of a term", ending);
        Term {
            memory,
            fence: Fence::new(options.fence, group.clone(), lease.clone(), clock),
            lease,
            bumper,
            reader,
            gapless,
            request_ids: RequestIds::new(options.request_ids),
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
    /// [`NextError::NotLeading`] if the term is over or the fence fails, [`NextError::Exhausted`] if too
    /// few numbers are left, [`NextError::OverQuota`] for a key beyond the quota, [`NextError::DeadlineExceeded`] if a bump took too long. Numbers that were
    /// taken before the fence failed are lost, and counted.
    pub async fn next(
        &self,
        namespace: &Namespace,
        key: Key<'_>,
        count: u64,
        deadline: Instant,
    ) -> Result<Range, NextError> {
        debug_assert!(!namespace.config.gapless, "a chunk would leave a gap");
        let _inside = self.enter()?;
        let taken = match self.take(namespace, key, count) {
            Answer::Taken(taken) => taken,
            Answer::Later(later) => Box::pin(self.wait(later, deadline)).await?,
        };
        let held = Held::new(self.memory.metrics(), taken.map_or(0, |_| count));
        // Not earlier: if a successor answered before the numbers were taken, the fence fails now.
        self.pass_fence(held, taken.is_ok().into(), deadline)
            .await?;
        if taken.is_ok() {
            self.hot_keys.note(namespace, key, count);
        }
        taken.map_err(NextError::from)
    }

    /// Hands out the next numbers of many keys with one check of the fence. `ask` says for each place
    /// which key it is and how many numbers it wants (at least 1). A key gets all of them or, if too few
    /// are left in the namespace, none. A key that comes twice gets two ranges, in the order of its
    /// places.
    ///
    /// # Errors
    /// As [`Term::next`], for all keys together, but for keys that are exhausted or beyond the quota, which [`NextMany`] names. Numbers
    /// that were taken for some of the keys are then lost, and counted.
    pub async fn next_many<'k>(
        &self,
        namespace: &Namespace,
        keys: usize,
        ask: impl Fn(usize) -> (Key<'k>, u64),
        deadline: Instant,
    ) -> Result<NextMany, NextError> {
        debug_assert!(!namespace.config.gapless, "a chunk would leave a gap");
        // The message stays inside the gate while some of its keys wait: the numbers that its other keys
        // took must be answered, or known to be lost, before a handover tells what was used.
        let _inside = self.enter()?;
        let mut answer = NextMany {
            firsts: vec![0; keys],
            ..NextMany::default()
        };
        let mut held = Held::new(self.memory.metrics(), 0);
        let mut waiting = Vec::new();
        let asked = Asked { namespace, ask };
        let note = |place, count, taken| match taken {
            Answer::Taken(taken) => held.add(answer.note(place, taken, count)),
            Answer::Later(later) => waiting.push((place, count, later)),
        };
        for need in self.memory.take_many(&asked, 0..keys, note) {
            self.ask_for(need);
        }
        for (place, count, later) in waiting {
            match Box::pin(self.wait(later, deadline)).await {
                Ok(taken) => held.add(answer.note(place, taken, count)),
                Err(error) => {
                    held.skip(error.skip_cause());
                    return Err(error);
                }
            }
        }
        answer.exhausted.sort_unstable();
        answer.over_quota.sort_unstable();
        // Not earlier, as in `next`.
        let answered = keys - answer.exhausted.len() - answer.over_quota.len();
        self.pass_fence(held, answered as u64, deadline).await?;
        let taken = |place| (answer.firsts[place] > 0).then(|| (asked.ask)(place));
        self.hot_keys.note_many(namespace, keys, taken);
        Ok(answer)
    }

    /// Answers the last number handed out for a key; `None` if none was. Fenced as [`Term::next`] is.
    ///
    /// # Errors
    /// [`NextError::NotLeading`] if the term is over or the fence fails, [`NextError::DeadlineExceeded`] if
    /// reading the table took too long, [`NextError::Store`] if it cannot be read.
    pub async fn current(
        &self,
        namespace: &Namespace,
        key: Key<'_>,
        deadline: Instant,
    ) -> Result<Option<u64>, NextError> {
        let _inside = self.enter()?;
        let remembered = self.memory.current(namespace, key);
        let last = match remembered {
            Some(last) => last,
            // This term has handed out nothing of this section. A chunk that it is just getting does not
            // count: a later call may still get those numbers.
            None => {
                let id = namespace.section_of(key);
                let mut floors = self.floors_in_table(namespace, vec![id], deadline).await?;
                floors.pop().unwrap_or_default()
            }
        };
        // An abandoned term closes its gate before it forgets. If it is closed now, this very term may
        // have handed out numbers that it no longer remembered. If the record read above is of a later
        // term, the fence fails below.
        if remembered.is_none() && self.memory.gate().is_closed() {
            return Err(NextError::NotLeading);
        }
        // A record that is missing because the namespace was deleted meanwhile tells nothing of what was handed out.
        // Namespaces go before their records do.
        if remembered.is_none() && self.group.view().namespaces().by_id(namespace.id).is_none() {
            return Err(NextError::NotLeading);
        }
        let nothing = Held::new(self.memory.metrics(), 0);
        self.pass_fence(nothing, 0, deadline).await?;
        // A ceiling may lie above all numbers that could be handed out.
        let last = last.min(namespace.greatest_number());
        Ok((last > 0).then_some(last))
    }

    /// Up to where earlier terms may have handed out numbers of sections, as the table says.
    async fn floors_in_table(
        &self,
        namespace: &Namespace,
        sections: Vec<SectionId>,
        deadline: Instant,
    ) -> Result<Vec<u64>, NextError> {
        let (lift, increment) = (self.memory.lift(), namespace.config.increment);
        let read = self.group.view().read_sections(sections);
        let records = tokio::time::timeout_at(deadline, read).await;
        let records = records.map_err(|_| NextError::DeadlineExceeded)??;
        Ok((records.iter())
            .map(|record| record.floor_at(lift, increment))
            .collect())
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
        MemoryReader::new(self.memory.clone(), self.group.store().blocking())
    }

    /// Closes the term for good. Waits for the calls that have taken their numbers, and for all that the term writes;
    /// no call takes any number afterwards.
    ///
    /// # Errors
    /// [`NextError::NotLeading`] if the term was closed already, or is lost, also meanwhile.
    pub async fn close(&self) -> Result<(), NextError> {
        let lost = |_| NextError::NotLeading;
        if !self.memory.gate().close() {
            return Err(NextError::NotLeading);
        }
        self.memory.gate().emptied().await;
        // A bump under way would raise a ceiling again after it was lowered or left to a successor.
        let (done, finished) = oneshot::channel();
        let finish = self.bumper.send(Request::Finish(done));
        finish.map_err(|_| NextError::NotLeading)?;
        finished.await.map_err(lost)?;
        // So would an entry that settles sections. One that releases sections would come too late.
        self.memory.background_ended().await;
        Ok(())
    }

    /// What the term used, for the ceilings to be lowered to. Call it after [`Term::close`]. The memory is empty
    /// afterwards.
    ///
    /// `None` if the term is lost: nobody knows then what it used.
    pub async fn list_trims(&self) -> Option<Vec<Trim>> {
        let memory = self.memory.clone();
        let closed = self.group.store().blocking().run(move || memory.close());
        closed.await.ok().flatten()
    }

    /// The request ids that this term remembers, of namespaces that are not gapless.
    pub(super) fn request_ids(&self) -> &RequestIds {
        &self.request_ids
    }

    /// Where calls for numbers of gapless keys go.
    pub(super) fn gapless(&self) -> &mpsc::UnboundedSender<Call> {
        &self.gapless
    }

    pub(super) fn metrics(&self) -> &Metrics {
        self.memory.metrics()
    }

    pub(super) fn now(&self) -> ClockInstant {
        self.memory.now()
    }

    pub(super) fn enter(&self) -> Result<Inside<'_>, NextError> {
        if self.fence.surely_fails() {
            return Err(NextError::NotLeading);
        }
        self.memory.gate().enter().ok_or(NextError::NotLeading)
    }

    /// Takes numbers from memory, or queues up for them there. Asks for a bump if one is needed.
    #[inline]
    fn take(&self, namespace: &Namespace, key: Key<'_>, count: u64) -> Answer {
        let (answer, need) = self.memory.take(namespace, key, count);
        if let Some(need) = need {
            self.ask_for(need);
        }
        answer
    }

    /// Asks for what a section needs.
    #[cold]
    fn ask_for(&self, (place, need): (Place, Need)) {
        let is_lost = match need {
            Need::Read => self.reader.send(place).is_err(),
            Need::Bump => self.bumper.send(Request::Bump(place)).is_err(),
        };
        // The task has ended, so the term is lost. `abandon` tells the calls that wait.
        if is_lost {
            self.lease.void();
            self.memory.abandon();
        }
    }

    /// Waits for numbers that a bump brings.
    #[cold]
    async fn wait(
        &self,
        later: oneshot::Receiver<Delivery>,
        deadline: Instant,
    ) -> Result<Taken, NextError> {
        self.in_time(later, deadline).await.map(Delivery::accept)
    }

    /// Waits for what a bump brings.
    async fn in_time<T>(
        &self,
        later: oneshot::Receiver<T>,
        deadline: Instant,
    ) -> Result<T, NextError> {
        match tokio::time::timeout_at(deadline, later).await {
            Ok(Ok(brought)) => Ok(brought),
            Ok(Err(_dropped)) => Err(NextError::NotLeading),
            Err(_) if self.fence.hears_majority() => Err(NextError::DeadlineExceeded),
            Err(_) => Err(NextError::NotLeading),
        }
    }

    /// Checks the fence for numbers that were `held` for the answers of `answers` keys. If it fails, they
    /// are discarded and counted.
    pub(super) async fn pass_fence(
        &self,
        held: Held<&Metrics>,
        answers: u64,
        deadline: Instant,
    ) -> Result<(), NextError> {
        let metrics = self.memory.metrics();
        if self.fence.check(deadline).await {
            metrics.numbers.inc_by(held.release());
            metrics.answers.inc_by(answers);
            Ok(())
        } else {
            metrics.fence_failures.inc();
            held.skip(SkipCause::fence);
            Err(NextError::NotLeading)
        }
    }
}

/// Abandons the memory once the term's lease is void. Otherwise calls that wait would keep the term alive:
/// they are inside the gate.
async fn abandon_when_void(lease: Arc<TermLease>, memory: Weak<Memory>) {
    lease.wait_until(TermLease::is_void).await;
    if let Some(memory) = memory.upgrade() {
        memory.abandon();
    }
}

impl NextError {
    /// Why numbers that were taken before this error count as skipped.
    fn skip_cause(&self) -> SkipCause {
        match self {
            NextError::DeadlineExceeded => SkipCause::deadline,
            NextError::NotLeading
            | NextError::Exhausted { .. }
            | NextError::Unknown
            | NextError::Reused { .. }
            | NextError::IdsFull { .. }
            | NextError::OverQuota { .. }
            | NextError::AboveMax
            | NextError::Store(_) => SkipCause::fence,
        }
    }
}

impl From<Shortage> for NextError {
    fn from(shortage: Shortage) -> Self {
        match shortage {
            Shortage::Exhausted { left } => NextError::Exhausted { left },
            Shortage::OverQuota { keys_max } => NextError::OverQuota { keys_max },
        }
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.memory.abandon();
    }
}

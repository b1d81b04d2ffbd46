//! The allocator of one term: from the moment the term's leader knows all that was committed
//! before, until it is closed for good.

use std::sync::{Arc, Weak};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    bumper::{self, Request},
    fence::{Fence, FenceKind},
    held::{Handed, Held, Taken},
    memory::Memory,
    shard::{Answer, Footprint},
};
use crate::{
    clock::Clock,
    consensus::{Group, TermLease},
    metrics::{Metrics, SkipCause},
    sequence::{Key, Namespace, Range, Trim},
    storage::StoreError,
};

/// Why a term handed out nothing.
#[derive(Debug, thiserror::Error)]
pub enum NextError {
    /// The term is over, or its lease has run out for now: ask the leader, whoever that is.
    #[error("this node does not lead any more")]
    NotLeading,
    /// Not enough numbers are left.
    #[error("only {left} numbers are left below the namespace's max")]
    Exhausted {
        /// How many are left.
        left: u64,
    },
    /// The caller's deadline passed first.
    #[error("the deadline passed")]
    DeadlineExceeded,
    /// The table cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// One term's allocator.
pub struct Term {
    memory: Arc<Memory>,
    lease: Arc<TermLease>,
    fence: Fence,
    bumper: mpsc::UnboundedSender<Request>,
    group: Arc<Group>,
}

/// What a message for the numbers of many keys came to.
#[derive(Debug, Default)]
pub struct NextMany {
    /// The first number of each key, in the order of the keys; 0 for those that got none.
    pub firsts: Vec<u64>,
    /// The places of those that got none since the namespace's numbers are used up, and how many
    /// numbers each has left.
    pub exhausted: Vec<(usize, u64)>,
}

impl Term {
    /// Opens the allocator of the term that `lease` belongs to, with an empty memory.
    pub fn open(
        group: Arc<Group>,
        lease: Arc<TermLease>,
        fence: FenceKind,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Term {
        let work = group.store().blocking();
        let memory = Arc::new(Memory::new(lease.term(), clock.clone(), metrics, work));
        let (bumper, requests) = mpsc::unbounded_channel();
        let bumping = bumper::run(group.clone(), memory.clone(), lease.clone(), requests);
        group.tasks().spawn("bumper", bumping);
        let ending = abandon_when_void(lease.clone(), Arc::downgrade(&memory));
        group.tasks().spawn("the end of a term", ending);
        Term {
            memory,
            fence: Fence::new(fence, group.clone(), lease.clone(), clock),
            lease,
            bumper,
            group,
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

    /// Hands out the next `count` (at least 1) numbers of a key.
    ///
    /// # Errors
    /// [`NextError`]. What was taken before the fence failed is lost, and counted.
    pub async fn next(
        &self,
        namespace: &Namespace,
        key: Key<'_>,
        count: u64,
        deadline: Instant,
    ) -> Result<Range, NextError> {
        let _inside = self.enter()?;
        let taken = match self.take(namespace, key, count) {
            Answer::Taken(taken) => taken,
            Answer::Later(later) => Box::pin(self.wait(later, deadline)).await?,
        };
        let held = Held::new(self.memory.metrics(), taken.map_or(0, |_| count));
        // Only now: a successor that answered before we took has let the fence down.
        self.pass_fence(held, taken.is_ok().into(), deadline)
            .await?;
        taken.map_err(|left| NextError::Exhausted { left })
    }

    /// Hands out the next numbers of many keys, of each as many as `ask` says (at least 1) for its
    /// place: all of them, or, where a namespace ends, as many as there are; with one look at the
    /// fence. A key that comes twice gets two ranges, in the order of its places.
    ///
    /// # Errors
    /// [`NextError`], of all keys together; what was taken for some of them is then lost, and counted.
    pub async fn next_many<'k>(
        &self,
        namespace: &Namespace,
        keys: usize,
        ask: impl Fn(usize) -> (Key<'k>, u64),
        deadline: Instant,
    ) -> Result<NextMany, NextError> {
        // Those who wait stay inside: what others of this message took must be answered, or known to
        // be lost, before a handover tells what was used.
        let _inside = self.enter()?;
        let mut answer = NextMany {
            firsts: Vec::with_capacity(keys),
            exhausted: Vec::new(),
        };
        let mut held = Held::new(self.memory.metrics(), 0);
        let mut waiting = Vec::new();
        for place in 0..keys {
            let (key, count) = ask(place);
            answer.firsts.push(0);
            match self.take(namespace, key, count) {
                Answer::Taken(taken) => held.add(answer.note(place, taken, count)),
                Answer::Later(later) => waiting.push((place, count, later)),
            }
        }
        for (place, count, later) in waiting {
            match Box::pin(self.wait(later, deadline)).await {
                Ok(taken) => held.add(answer.note(place, taken, count)),
                Err(error) => {
                    held.skip(error.cause());
                    return Err(error);
                }
            }
        }
        // Only now, as above.
        let answered = keys - answer.exhausted.len();
        self.pass_fence(held, answered as u64, deadline).await?;
        Ok(answer)
    }

    /// Answers the last number handed out for a key: an allocation of nothing.
    ///
    /// # Errors
    /// [`NextError`].
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
            // This term has handed out nothing here. What it has bumped since, if it is bumping
            // just now, does not count: somebody may yet get those numbers.
            None => {
                let read = self.group.view().read_section(namespace.section_of(key));
                match tokio::time::timeout_at(deadline, read).await {
                    Ok(record) => record?.used_before(self.term()),
                    Err(_) => return Err(NextError::DeadlineExceeded),
                }
            }
        };
        // An abandoned term closes before it forgets: what was not remembered may have been handed
        // out by this very term. A later term's record, read meanwhile, lets the fence down below.
        if remembered.is_none() && self.memory.gate().is_closed() {
            return Err(NextError::NotLeading);
        }
        let nothing = Held::new(self.memory.metrics(), 0);
        self.pass_fence(nothing, 0, deadline).await?;
        Ok((last > 0).then_some(last))
    }

    /// How much its memory holds. May wait for a lock that is held for as long as a handover looks at
    /// all keys of a shard: not for a runtime's worker.
    pub fn footprint(&self) -> Footprint {
        self.memory.footprint()
    }

    /// Whether nobody will ever take a number from it again.
    pub fn is_over(&self) -> bool {
        self.memory.gate().is_closed() || self.lease.is_void()
    }

    /// Whether this node leads at a moment after the call: the fence alone.
    pub async fn still_leads(&self, deadline: Instant) -> bool {
        self.fence.check(deadline).await
    }

    /// Closes the term for good and answers what it used, for the ceilings to be lowered to.
    /// Answers that had taken their numbers get out before; nobody takes any after.
    ///
    /// `None` where somebody else closed it, or the term is lost.
    pub async fn retire(&self) -> Option<Vec<Trim>> {
        if !self.memory.gate().close() {
            return None;
        }
        self.memory.gate().emptied().await;
        // A bump under way would raise a ceiling again after it was lowered.
        let (done, finished) = oneshot::channel();
        self.bumper.send(Request::Finish(done)).ok()?;
        finished.await.ok()?;
        let (memory, group) = (self.memory.clone(), self.group.clone());
        let closed = self
            .group
            .store()
            .blocking()
            .run(move || memory.close(&group));
        closed.await.ok()
    }

    fn enter(&self) -> Result<super::gate::Inside<'_>, NextError> {
        if self.fence.is_down() {
            return Err(NextError::NotLeading);
        }
        self.memory.gate().enter().ok_or(NextError::NotLeading)
    }

    /// Takes from memory, or waits there.
    #[inline]
    fn take(&self, namespace: &Namespace, key: Key<'_>, count: u64) -> Answer {
        let (answer, bump) = self.memory.take(namespace, key, count);
        if let Some(place) = bump {
            // The bumper is gone only once the term is lost; whoever waits is told by `abandon`.
            if self.bumper.send(Request::Bump(place)).is_err() {
                self.memory.abandon();
            }
        }
        answer
    }

    /// Waits for what comes later.
    #[cold]
    async fn wait(
        &self,
        later: oneshot::Receiver<Handed>,
        deadline: Instant,
    ) -> Result<Taken, NextError> {
        match tokio::time::timeout_at(deadline, later).await {
            Ok(Ok(handed)) => Ok(handed.accept()),
            Ok(Err(_dropped)) => Err(NextError::NotLeading),
            Err(_) if self.fence.hears_majority() => Err(NextError::DeadlineExceeded),
            Err(_) => Err(NextError::NotLeading),
        }
    }

    /// Passes what was taken for the answers of `answers` keys.
    async fn pass_fence(
        &self,
        held: Held<&Metrics>,
        answers: u64,
        deadline: Instant,
    ) -> Result<(), NextError> {
        let metrics = self.memory.metrics();
        if self.fence.check(deadline).await {
            metrics.numbers.inc_by(held.answered());
            metrics.answers.inc_by(answers);
            Ok(())
        } else {
            metrics.fence_failures.inc();
            held.skip(SkipCause::fence);
            Err(NextError::NotLeading)
        }
    }
}

/// Tells those who wait in a term that its lease is void: they are inside, and keep the term alive.
async fn abandon_when_void(lease: Arc<TermLease>, memory: Weak<Memory>) {
    lease.wait_until(TermLease::is_void).await;
    if let Some(memory) = memory.upgrade() {
        memory.abandon();
    }
}

impl NextMany {
    /// Notes what the key at `place` got, and answers how many numbers that is.
    fn note(&mut self, place: usize, taken: Taken, count: u64) -> u64 {
        match taken {
            Ok(range) => {
                self.firsts[place] = range.first;
                count
            }
            Err(left) => {
                self.exhausted.push((place, left));
                0
            }
        }
    }
}

impl NextError {
    /// What the numbers are skipped for that were taken when this happened.
    fn cause(&self) -> SkipCause {
        match self {
            NextError::DeadlineExceeded => SkipCause::deadline,
            _ => SkipCause::fence,
        }
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.memory.abandon();
    }
}

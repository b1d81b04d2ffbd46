//! The allocator of one term: from the moment the term's leader knows all that was committed
//! before, until it is closed for good.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    bumper::{self, Request},
    fence::{Fence, FenceKind},
    gate::Gate,
    section::{Section, Take},
};
use crate::{
    clock::Clock,
    consensus::{Group, TermLease},
    metrics::{Metrics, SkipCause},
    sequence::{Key, Namespace, Range, SectionId, Trim},
    storage::StoreError,
};

/// Sections are spread over this many locks.
const SHARDS: usize = 64;

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

/// What the term's requests and its bumper share.
pub struct Memory {
    term: u64,
    shards: Box<[Mutex<HashMap<SectionId, Section>>]>,
    hasher: RandomState,
    gate: Gate,
    metrics: Arc<Metrics>,
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
        let memory = Arc::new(Memory {
            term: lease.term(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            gate: Gate::default(),
            metrics,
        });
        let (bumper, requests) = mpsc::unbounded_channel();
        tokio::spawn(bumper::run(
            group.clone(),
            memory.clone(),
            lease.clone(),
            requests,
        ));
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
        self.memory.term
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
        key: &Key,
        count: u64,
        deadline: Instant,
    ) -> Result<Range, NextError> {
        let id = namespace.section_of(key);
        loop {
            let again = {
                let _inside = self.enter()?;
                match self.memory.take(&id, namespace, key, count) {
                    Take::Range { range, prefetch } => {
                        if prefetch {
                            self.ask_for_bump(&id);
                        }
                        // Only now: a successor that answered before we took has let the fence down.
                        return self.pass_fence(range, count, deadline).await;
                    }
                    Take::Exhausted { left } => {
                        return if self.fence.check(deadline).await {
                            Err(NextError::Exhausted { left })
                        } else {
                            Err(NextError::NotLeading)
                        };
                    }
                    Take::Wait { again, bump } => {
                        if bump {
                            self.ask_for_bump(&id);
                        }
                        again
                    }
                }
            };
            match tokio::time::timeout_at(deadline, again).await {
                Ok(Ok(())) => {}
                Ok(Err(_dropped)) => return Err(NextError::NotLeading),
                Err(_) if self.fence.hears_majority() => return Err(NextError::DeadlineExceeded),
                Err(_) => return Err(NextError::NotLeading),
            }
        }
    }

    /// Answers the last number handed out for a key: an allocation of nothing.
    ///
    /// # Errors
    /// [`NextError`].
    pub async fn current(
        &self,
        namespace: &Namespace,
        key: &Key,
        deadline: Instant,
    ) -> Result<Option<u64>, NextError> {
        let id = namespace.section_of(key);
        let _inside = self.enter()?;
        let remembered = self
            .memory
            .shard(&id)
            .lock()
            .get(&id)
            .and_then(|section| section.current(key));
        let last = match remembered {
            Some(last) => last,
            // This term has handed out nothing here. What it has bumped since, if it is bumping
            // just now, does not count: somebody may yet get those numbers.
            None => self.group.view().section(&id)?.used_before(self.term()),
        };
        // An abandoned term closes before it forgets: what was not remembered may have been handed
        // out by this very term.
        if remembered.is_none() && self.memory.gate.is_closed() {
            return Err(NextError::NotLeading);
        }
        if self.fence.check(deadline).await {
            Ok((last > 0).then_some(last))
        } else {
            self.memory.metrics.fence_failures.inc();
            Err(NextError::NotLeading)
        }
    }

    /// Whether nobody will ever take a number from it again.
    pub fn is_over(&self) -> bool {
        self.memory.gate.is_closed() || self.lease.is_void()
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
        if !self.memory.gate.close() {
            return None;
        }
        self.memory.gate.emptied().await;
        // A bump under way would raise a ceiling again after it was lowered.
        let (done, finished) = oneshot::channel();
        self.bumper.send(Request::Finish(done)).ok()?;
        finished.await.ok()?;
        Some(self.memory.close_sections(&self.group))
    }

    fn enter(&self) -> Result<super::gate::Inside<'_>, NextError> {
        if self.fence.is_down() {
            return Err(NextError::NotLeading);
        }
        self.memory.gate.enter().ok_or(NextError::NotLeading)
    }

    async fn pass_fence(
        &self,
        range: Range,
        count: u64,
        deadline: Instant,
    ) -> Result<Range, NextError> {
        let metrics = &self.memory.metrics;
        if self.fence.check(deadline).await {
            metrics.numbers.inc_by(count);
            metrics.answers.inc();
            Ok(range)
        } else {
            metrics.fence_failures.inc();
            metrics.skip(SkipCause::fence, count);
            Err(NextError::NotLeading)
        }
    }

    fn ask_for_bump(&self, id: &SectionId) {
        // The bumper is gone only once the term is lost; whoever waits is told by `abandon`.
        if self.bumper.send(Request::Bump(id.clone())).is_err() {
            self.memory.abandon();
        }
    }
}

impl Memory {
    /// The Raft term.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The node's metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// How many numbers a section that asked for a bump wants by now.
    pub fn wanted(&self, id: &SectionId) -> u64 {
        self.shard(id).lock().get_mut(id).map_or(1, Section::wanted)
    }

    /// Changes a section that is in memory.
    pub fn with_section(&self, id: &SectionId, change: impl FnOnce(&mut Section)) {
        if let Some(section) = self.shard(id).lock().get_mut(id) {
            change(section);
        }
    }

    /// Drops everything: the term is lost. Whoever waits is told so.
    pub fn abandon(&self) {
        self.gate.close();
        drop(self.drain());
    }

    /// Takes all sections out, in an order that is the same in every run.
    fn drain(&self) -> BTreeMap<SectionId, Section> {
        let mut sections = BTreeMap::new();
        for shard in &self.shards {
            sections.extend(shard.lock().drain());
        }
        sections
    }

    fn shard(&self, id: &SectionId) -> &Mutex<HashMap<SectionId, Section>> {
        &self.shards[self.hasher.hash_one(id) as usize % SHARDS]
    }

    fn take(&self, id: &SectionId, namespace: &Namespace, key: &Key, count: u64) -> Take {
        let mut shard = self.shard(id).lock();
        if let Some(section) = shard.get_mut(id) {
            return section.take(&namespace.config, key, count);
        }
        let section = shard
            .entry(id.clone())
            .or_insert_with(|| Section::new(&namespace.config));
        section.take(&namespace.config, key, count)
    }

    fn close_sections(&self, group: &Group) -> Vec<Trim> {
        let namespaces = group.view().namespaces();
        let mut trims = Vec::new();
        for (id, mut section) in self.drain() {
            let Some(namespace) = namespaces.by_id(id.namespace) else {
                continue;
            };
            if let Some((used, lost)) = section.close(namespace.config.lattice()) {
                self.metrics.skip(SkipCause::shared_section, lost);
                trims.push(Trim { section: id, used });
            }
        }
        trims
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.memory.abandon();
    }
}

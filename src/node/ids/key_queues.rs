//! Callers of this node that wait for a later unit of time of a key's ids, because those of the present one are used
//! up.
//!
//! They wait here, in the order of their arrival, and one task for each such key asks the leader for all of them
//! together. Otherwise each would ask for itself, time after time: the last to come might be served first, and one key
//! in demand would keep the leader, and the way to it, busy for all others.
//!
//! Invariant: numbers go only to callers that had joined before the leader was asked for them. One who joined later may
//! have been told of greater numbers by another node in between.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::{
        Arc,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
};

use parking_lot::Mutex;
use tokio::{sync::oneshot, time::Instant};

use crate::{
    proto::{Refusal, peer::IdNumbers},
    sequence::OwnedKey,
};

/// How many callers, at least, come before those that have gone are looked for.
const SWEEP_MIN: usize = 1_024;

/// The key for whose numbers callers wait. The meaning of a number is the format's: a namespace that is created again has
/// another line if its format is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueuedKey {
    /// The namespace's name.
    pub namespace: String,
    /// Its format, in full.
    pub format: String,
    /// The key.
    pub key: OwnedKey,
}

/// The lines in which callers of this node wait.
#[derive(Default)]
pub struct KeyQueues {
    queues: Mutex<HashMap<QueuedKey, Queue>>,
}

/// The callers that wait in one line.
struct Queue {
    /// Those that came since the leader was asked last.
    arrived: Vec<WaitingCaller>,
    /// Once they are so many, those that have gone are dropped.
    sweep_at: usize,
    facts: Arc<QueueFacts>,
}

impl Default for Queue {
    fn default() -> Self {
        Queue { arrived: Vec::new(), sweep_at: SWEEP_MIN, facts: Arc::default() }
    }
}

/// The facts about a line that are known without its lock.
#[derive(Default)]
struct QueueFacts {
    /// How many ids all that have not gone wait for.
    ids: AtomicU64,
    asked_at: Mutex<Option<Instant>>,
}

/// The numbers that a caller still waits for.
struct Demand {
    /// How many numbers. 0: it was served, or has gone.
    left: AtomicU32,
    facts: Arc<QueueFacts>,
}

impl Demand {
    fn left(&self) -> u32 {
        self.left.load(Acquire)
    }

    /// Takes up to `count` off. Returns how many.
    fn take_off(&self, count: u32) -> u32 {
        let less = |left: u32| Some(left.saturating_sub(count));
        let before = self.left.fetch_update(AcqRel, Acquire, less);
        let part = before.unwrap_or_default().min(count);
        self.facts.ids.fetch_sub(part.into(), Relaxed);
        part
    }
}

/// A caller that waits, as the line knows it.
struct WaitingCaller {
    demand: Arc<Demand>,
    numbers: IdNumbers,
    deadline: Instant,
    answer: oneshot::Sender<Result<IdNumbers, Refusal>>,
}

/// A caller's place in a line. It is dropped when the caller goes.
pub struct PlaceInLine {
    /// Its numbers, all at once.
    pub answer: oneshot::Receiver<Result<IdNumbers, Refusal>>,
    /// It begins the line: it must see to it that somebody asks the leader.
    pub is_first: bool,
    demand: Arc<Demand>,
}

impl PlaceInLine {
    /// When the leader was asked, if it has not answered yet. Otherwise the callers wait for a later time.
    pub fn asked_at(&self) -> Option<Instant> {
        *self.demand.facts.asked_at.lock()
    }
}

impl Drop for PlaceInLine {
    fn drop(&mut self) {
        self.demand.take_off(u32::MAX);
    }
}

impl KeyQueues {
    /// Whether somebody waits in this line.
    pub fn has(&self, line: &QueuedKey) -> bool {
        self.queues.lock().contains_key(line)
    }

    /// Adds a caller that waits for `left` numbers (at least 1) until `deadline`, and has `numbers` already, unless `may_come`
    /// says no when it is told for how many ids all wait then.
    ///
    /// # Errors
    /// That number, if it says no. Then nothing is changed.
    pub fn join(
        &self, line: &QueuedKey, left: u32, numbers: IdNumbers, deadline: Instant,
        may_come: impl FnOnce(u64) -> bool,
    ) -> Result<PlaceInLine, u64> {
        let mut queues = self.queues.lock();
        let before = (queues.get(line)).map_or(0, |queue| queue.facts.ids.load(Relaxed));
        let ids = before + u64::from(left);
        if !may_come(ids) {
            return Err(ids);
        }
        let is_first = !queues.contains_key(line);
        let queue = queues.entry(line.clone()).or_default();
        if queue.arrived.len() >= queue.sweep_at {
            queue.arrived.retain(|waiter| waiter.demand.left() > 0);
            queue.sweep_at = SWEEP_MIN.max(2 * queue.arrived.len());
        }
        queue.facts.ids.fetch_add(left.into(), Relaxed);
        let demand = Arc::new(Demand { left: AtomicU32::new(left), facts: queue.facts.clone() });
        let (sender, answer) = oneshot::channel();
        queue.arrived.push(WaitingCaller {
            demand: demand.clone(),
            numbers,
            deadline,
            answer: sender,
        });
        Ok(PlaceInLine { answer, is_first, demand })
    }

    /// Adds those who came meanwhile to `batch`, and drops who has gone. False: nobody waits, and the line is gone.
    pub fn collect(&self, line: &QueuedKey, batch: &mut Batch) -> bool {
        loop {
            batch.drop_gone();
            let mut queues = self.queues.lock();
            let arrived = match queues.get_mut(line) {
                Some(queue) => {
                    batch.facts = queue.facts.clone();
                    queue.sweep_at = SWEEP_MIN;
                    mem::take(&mut queue.arrived)
                }
                None => Vec::new(),
            };
            if arrived.is_empty() && batch.waiters.is_empty() {
                queues.remove(line);
                return false;
            }
            drop(queues);
            batch.waiters.extend(arrived);
            batch.drop_gone();
            if !batch.waiters.is_empty() {
                return true;
            }
        }
    }
}

/// The callers for whom the leader is asked, in the order of their arrival.
#[derive(Default)]
pub struct Batch {
    waiters: VecDeque<WaitingCaller>,
    facts: Arc<QueueFacts>,
}

impl Batch {
    /// How many ids they wait for.
    pub fn ids(&self) -> u64 {
        let left = self.waiters.iter().map(|waiter| waiter.demand.left());
        left.map(u64::from).sum()
    }

    /// Until when the last of them waits.
    pub fn deadline(&self) -> Instant {
        let deadlines = self.waiters.iter().map(|waiter| waiter.deadline);
        deadlines.max().unwrap_or_else(Instant::now)
    }

    /// Notes when the leader was asked, or that it has answered.
    pub fn set_asked_at(&self, asked_at: Option<Instant>) {
        *self.facts.asked_at.lock() = asked_at;
    }

    fn drop_gone(&mut self) {
        self.waiters.retain(|waiter| waiter.demand.left() > 0);
    }

    /// Shares out what the leader took. Numbers for which nobody waits any more are skipped.
    pub fn share(&mut self, taken: &IdNumbers) {
        for (first, count) in taken.firsts.iter().zip(&taken.counts) {
            let (mut first, mut count) = (*first, *count);
            while count > 0
                && let Some(waiter) = self.waiters.front_mut()
            {
                let part = waiter.demand.take_off(count);
                if part > 0 {
                    waiter.numbers.firsts.push(first);
                    waiter.numbers.counts.push(part);
                    (first, count) = (first + u64::from(part), count - part);
                }
                if waiter.demand.left() == 0
                    && let Some(served) = self.waiters.pop_front()
                {
                    // Nobody hears it if the caller has gone.
                    let _ = served.answer.send(Ok(served.numbers));
                }
            }
        }
    }

    /// Tells all of them why they get nothing.
    pub fn refuse(&mut self, refusal: &Refusal) {
        for waiter in self.waiters.drain(..) {
            waiter.demand.take_off(u32::MAX);
            // As in `share`.
            let _ = waiter.answer.send(Err(refusal.clone()));
        }
    }
}

#[cfg(test)]
mod tests;

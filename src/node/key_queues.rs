//! Callers of this node that wait for a later unit of time of a key's ids, because those of the present one are used up.
//!
//! They wait here, in the order of their arrival, and one task for each such key asks the leader for all of them together.
//! Otherwise each would ask for itself, time after time: the last to come might be served first, and one key in demand would
//! keep the leader, and the way to it, busy for all others.
//!
//! Invariant: what the leader took is shared among those who waited when it was asked. A caller who came later may know
//! greater numbers already.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use tokio::{sync::oneshot, time::Instant};
use tonic::Status;

use crate::{proto::peer::IdNumbers, sequence::OwnedKey};

/// A key, and the name of its namespace.
pub type Whose = (String, OwnedKey);

/// The keys that callers of this node wait for.
#[derive(Default)]
pub struct KeyQueues {
    queues: Mutex<HashMap<Whose, Queue>>,
    /// False: nobody waits. Saves the lock.
    is_any: AtomicBool,
}

/// The callers that wait for one key.
#[derive(Default)]
struct Queue {
    /// Those that came since the leader was asked last.
    arrived: Vec<Waiter>,
    /// How many ids all wait for, those included for whom the leader is being asked.
    ids: u64,
    is_asking: Arc<AtomicBool>,
}

/// A caller that waits.
struct Waiter {
    /// How many numbers it still waits for.
    left: u32,
    numbers: IdNumbers,
    deadline: Instant,
    answer: oneshot::Sender<Result<IdNumbers, Status>>,
}

/// A caller's place among those who wait.
pub struct Place {
    /// Its numbers, all at once.
    pub answer: oneshot::Receiver<Result<IdNumbers, Status>>,
    /// Whether the leader is being asked; otherwise a later time is waited for.
    pub is_asking: Arc<AtomicBool>,
    /// How many ids those before it wait for.
    pub ids_before: u64,
    /// Nobody asks the leader for this key yet: the caller must see to that.
    pub is_first: bool,
}

impl KeyQueues {
    /// Whether somebody waits for the key.
    pub fn has(&self, whose: &Whose) -> bool {
        self.is_any() && self.queues.lock().contains_key(whose)
    }

    /// Whether somebody waits for any key.
    pub fn is_any(&self) -> bool {
        self.is_any.load(Relaxed)
    }

    /// Adds a caller that waits for `left` numbers (at least 1) until `deadline`, and has some already.
    pub fn join(&self, whose: &Whose, left: u32, numbers: IdNumbers, deadline: Instant) -> Place {
        let (sender, answer) = oneshot::channel();
        let mut queues = self.queues.lock();
        let is_first = !queues.contains_key(whose);
        let queue = queues.entry(whose.clone()).or_default();
        let place = Place {
            answer,
            is_asking: queue.is_asking.clone(),
            ids_before: queue.ids,
            is_first,
        };
        queue.ids += u64::from(left);
        queue.arrived.push(Waiter {
            left,
            numbers,
            deadline,
            answer: sender,
        });
        self.is_any.store(true, Relaxed);
        place
    }

    /// Adds those who came meanwhile to `batch`, and drops who is gone. False: nobody waits; the queue is gone.
    pub fn collect(&self, whose: &Whose, batch: &mut Batch) -> bool {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.get_mut(whose) {
            batch.waiters.extend(queue.arrived.drain(..));
            batch.is_asking = queue.is_asking.clone();
            batch.waiters.retain(|waiter| !waiter.answer.is_closed());
            queue.ids = batch.ids();
        }
        if batch.waiters.is_empty() {
            queues.remove(whose);
            self.is_any.store(!queues.is_empty(), Relaxed);
        }
        !batch.waiters.is_empty()
    }
}

/// The callers for whom the leader is asked, in the order of their arrival.
#[derive(Default)]
pub struct Batch {
    waiters: VecDeque<Waiter>,
    is_asking: Arc<AtomicBool>,
}

impl Batch {
    /// How many ids they wait for.
    pub fn ids(&self) -> u64 {
        let left = self.waiters.iter().map(|waiter| u64::from(waiter.left));
        left.sum()
    }

    /// Until when the last of them waits.
    pub fn deadline(&self) -> Instant {
        let deadlines = self.waiters.iter().map(|waiter| waiter.deadline);
        deadlines.max().unwrap_or_else(Instant::now)
    }

    /// Notes that the leader is being asked, or is not.
    pub fn set_asking(&self, is_asking: bool) {
        self.is_asking.store(is_asking, Relaxed);
    }

    /// Shares out what the leader took, which is no more than [`Batch::ids`].
    pub fn share(&mut self, taken: &IdNumbers) {
        for (first, count) in taken.firsts.iter().zip(&taken.counts) {
            let (mut first, mut count) = (*first, *count);
            while count > 0
                && let Some(waiter) = self.waiters.front_mut()
            {
                let part = count.min(waiter.left);
                waiter.numbers.firsts.push(first);
                waiter.numbers.counts.push(part);
                waiter.left -= part;
                (first, count) = (first + u64::from(part), count - part);
                if waiter.left == 0
                    && let Some(served) = self.waiters.pop_front()
                {
                    // Nobody hears it if the caller is gone: its numbers are skipped.
                    let _ = served.answer.send(Ok(served.numbers));
                }
            }
        }
    }

    /// Tells all of them why they get nothing.
    pub fn refuse(&mut self, status: &Status) {
        for waiter in self.waiters.drain(..) {
            // As in `share`.
            let _ = waiter.answer.send(Err(status.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn whose(key: u64) -> Whose {
        ("chat".to_owned(), OwnedKey::Id(key))
    }

    fn numbers(ranges: &[(u64, u32)]) -> IdNumbers {
        IdNumbers {
            firsts: ranges.iter().map(|(first, _)| *first).collect(),
            counts: ranges.iter().map(|(_, count)| *count).collect(),
            ..IdNumbers::default()
        }
    }

    fn answered(place: &mut Place) -> Option<IdNumbers> {
        place.answer.try_recv().ok().map(|got| got.expect("ids"))
    }

    #[tokio::test]
    async fn callers_are_served_in_the_order_of_their_arrival_and_only_those_who_waited_when_the_leader_was_asked()
     {
        let queues = KeyQueues::default();
        let deadline = Instant::now() + Duration::from_secs(60);
        let join = |count| queues.join(&whose(1), count, IdNumbers::default(), deadline);
        let mut first = queues.join(&whose(1), 2, numbers(&[(7, 1)]), deadline);
        let gone = join(3);
        let second = join(5);
        assert!(first.is_first && !gone.is_first && !second.is_first);
        assert_eq!((gone.ids_before, second.ids_before), (2, 5));
        assert!(queues.has(&whose(1)) && !queues.has(&whose(2)));
        drop(gone);

        let mut batch = Batch::default();
        assert!(queues.collect(&whose(1), &mut batch));
        assert_eq!(batch.ids(), 7);
        // Who comes while the leader is being asked gets nothing of its answer, although one has gone.
        drop(second.answer);
        let mut late = join(1);
        let mut last = join(1);
        batch.share(&numbers(&[(100, 1), (110, 6)]));
        assert_eq!(
            answered(&mut first),
            Some(numbers(&[(7, 1), (100, 1), (110, 1)]))
        );
        assert_eq!(answered(&mut late), None);

        assert!(queues.collect(&whose(1), &mut batch));
        assert_eq!(batch.ids(), 2);
        batch.share(&numbers(&[(200, 1)]));
        assert_eq!(answered(&mut late), Some(numbers(&[(200, 1)])));
        batch.refuse(&Status::out_of_range("ended"));
        let refused = last.answer.try_recv().expect("an answer");
        assert_eq!(refused.expect_err("refused").message(), "ended");
        assert!(!queues.collect(&whose(1), &mut batch));
        assert!(!queues.has(&whose(1)) && !queues.is_any());
    }
}

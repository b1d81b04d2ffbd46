//! The requests that wait to be sent, and how many of them one batch carries. Pure: time is an argument.
//!
//! Invariant: a queue has one turn if a request waits in it, and none otherwise.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};
use tokio::time::Instant;

use crate::{key::Key, namespaces::InternedNamespace, request::PendingRequest};

/// The largest number of requests in one batch.
pub const BATCH_REQUESTS_MAX: u16 = 8_192;
/// The largest number of bytes of all keys in one batch. A server takes messages of 1 MiB.
const BATCH_KEY_BYTES_MAX: usize = 512 << 10;

/// The keys that one message can carry: keys of one namespace, and either ids (false) or names (true).
type QueueKey = (InternedNamespace, bool);

fn queue_key(request: &PendingRequest) -> QueueKey {
    (request.namespace, matches!(request.key, Key::Name(_)))
}

/// The requests that wait to be sent: one queue for each namespace and kind of key, served in turns.
#[derive(Default)]
pub struct RequestQueues {
    queues: HashMap<QueueKey, VecDeque<PendingRequest>>,
    /// The queues that are not empty, in the order in which they are served.
    turns: VecDeque<QueueKey>,
}

impl RequestQueues {
    /// Adds a request at the end of its queue.
    pub fn push(&mut self, request: PendingRequest) {
        self.queue(queue_key(&request)).push_back(request);
    }

    /// Puts requests back at the front of their queues, in the given order among requests with one
    /// deadline.
    pub fn requeue(&mut self, requests: Vec<PendingRequest>) {
        let mut unsorted = HashSet::new();
        for request in requests.into_iter().rev() {
            let turn = queue_key(&request);
            let queue = self.queue(turn);
            // A request that was sent later may have come back earlier.
            if queue.front().is_some_and(|front| front.deadline < request.deadline) {
                unsorted.insert(turn);
            }
            queue.push_front(request);
        }
        for turn in unsorted {
            if let Some(queue) = self.queues.get_mut(&turn) {
                queue.make_contiguous().sort_by_key(|request| request.deadline);
            }
        }
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Takes the requests of the next batch: the front of the queue whose turn it is, up to the limits of
    /// a batch. Requests that nobody waits for any more are dropped. `None` if no request waits.
    pub fn next_batch(&mut self) -> Option<Vec<PendingRequest>> {
        loop {
            let turn = self.turns.pop_front()?;
            let queue = self.queues.get_mut(&turn)?;
            assert!(!queue.is_empty(), "a turn without a request");
            let len = batch_len(queue);
            // Nearly all of them are awaited.
            let mut requests = Vec::with_capacity(len);
            requests.extend(queue.drain(..len).filter(PendingRequest::is_awaited));
            if !queue.is_empty() {
                self.turns.push_back(turn);
            }
            if !requests.is_empty() {
                return Some(requests);
            }
        }
    }

    /// Takes out all requests.
    pub fn take_all(&mut self) -> Vec<PendingRequest> {
        self.turns.clear();
        self.queues.values_mut().flat_map(std::mem::take).collect()
    }

    /// Takes out the requests whose deadline has come, and tells the next deadline.
    pub fn take_expired(&mut self, now: Instant) -> (Vec<PendingRequest>, Option<Instant>) {
        let (mut expired, mut next) = (Vec::new(), None::<Instant>);
        for queue in self.queues.values_mut() {
            // Deadlines grow along a queue.
            let over = queue.iter().take_while(|request| request.deadline <= now);
            let over = over.count();
            expired.extend(queue.drain(..over));
            let first = queue.front().map(|request| request.deadline);
            next = next.into_iter().chain(first).min();
        }
        self.turns.retain(|turn| self.queues.get(turn).is_some_and(|queue| !queue.is_empty()));
        // A batch looks at its own queue alone: to count them there would cost the more the more queues there are. Here each
        // was looked at already.
        let waiting = self.queues.values().filter(|queue| !queue.is_empty()).count();
        assert_eq!(self.turns.len(), waiting, "turns and queues that are not empty");
        (expired, next)
    }

    /// The queue of a request. The caller adds the request: an empty queue gets its turn here.
    fn queue(&mut self, turn: QueueKey) -> &mut VecDeque<PendingRequest> {
        let queue = self.queues.entry(turn).or_default();
        if queue.is_empty() {
            self.turns.push_back(turn);
        }
        queue
    }
}

/// How many requests from the front of a queue go into one batch; at least 1, if there is one.
fn batch_len(queue: &VecDeque<PendingRequest>) -> usize {
    let (mut bytes, mut max) = (0, BATCH_REQUESTS_MAX);
    let fits = |(before, request): &(usize, &PendingRequest)| {
        bytes += request.key.bytes();
        max = max.min(request.batch_max);
        bytes <= BATCH_KEY_BYTES_MAX && *before < usize::from(max)
    };
    queue.iter().enumerate().take_while(fits).count().max(1)
}

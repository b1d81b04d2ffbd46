//! What waits, and how much of it one message carries. Pure: time is an argument.

use std::collections::VecDeque;

use hashbrown::HashMap;
use tokio::time::Instant;

use crate::{
    key::Key,
    request::{Asked, Travels},
};

/// How many requests one message carries at most.
pub const MESSAGE_ASKS_MAX: usize = 8_192;
/// How many bytes their keys have at most; a server takes messages of 1 MiB.
const MESSAGE_KEY_BYTES_MAX: usize = 512 << 10;
/// What waits, by namespace and kind of key: what one message can carry.
#[derive(Default)]
pub struct Waiting {
    queues: HashMap<(u32, bool), VecDeque<Asked>>,
    /// The queues that are not empty, by turns.
    turns: VecDeque<(u32, bool)>,
}

impl Waiting {
    /// Adds a request behind the others of its kind.
    pub fn push(&mut self, asked: Asked) {
        self.queue(&asked).push_back(asked);
    }

    /// Puts requests back before the others of their kind, in their order.
    pub fn put_back(&mut self, asked: Vec<Asked>) {
        for asked in asked.into_iter().rev() {
            self.queue(&asked).push_front(asked);
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The requests that the next message carries: all of one namespace and kind.
    pub fn next(&mut self) -> Option<Vec<Asked>> {
        let turn = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&turn)?;
        let together = match queue.front() {
            Some(first) if first.travels == Travels::Alone => 1,
            _ => {
                let mut bytes = 0;
                let fits = |asked: &&Asked| {
                    bytes += asked.key.bytes();
                    bytes <= MESSAGE_KEY_BYTES_MAX && asked.travels != Travels::Alone
                };
                let first = queue.iter().take(MESSAGE_ASKS_MAX);
                first.take_while(fits).count().max(1)
            }
        };
        let asked = queue.drain(..together).collect();
        if !queue.is_empty() {
            self.turns.push_back(turn);
        }
        Some(asked)
    }

    /// Takes out all that nobody waits for any more at `now`, and tells when the next one is due.
    pub fn expired(&mut self, now: Instant) -> (Vec<Asked>, Option<Instant>) {
        let (mut expired, mut next) = (Vec::new(), None::<Instant>);
        for queue in self.queues.values_mut() {
            // What was put back is older than what came since.
            let over = queue.iter().take_while(|asked| asked.deadline <= now);
            let over = over.count();
            expired.extend(queue.drain(..over));
            let first = queue.front().map(|asked| asked.deadline);
            next = next.into_iter().chain(first).min();
        }
        self.turns
            .retain(|turn| self.queues.get(turn).is_some_and(|queue| !queue.is_empty()));
        (expired, next)
    }

    fn queue(&mut self, asked: &Asked) -> &mut VecDeque<Asked> {
        let turn = (asked.namespace, matches!(asked.key, Key::Name(_)));
        let queue = self.queues.entry(turn).or_default();
        if queue.is_empty() {
            self.turns.push_back(turn);
        }
        queue
    }
}

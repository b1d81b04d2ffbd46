//! The batches that wait for an answer, by the id of their message. Pure: time is an argument.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::batch::Batch;

/// A batch that waits for its answer.
pub struct InFlight {
    /// The id of the stream on which it was sent.
    pub stream: u64,
    /// The server that was asked.
    pub server: Arc<str>,
    /// The requests.
    pub batch: Batch,
    /// When it was sent.
    pub sent: Instant,
    /// When the server is given up.
    pub until: Instant,
}

/// All batches that wait for an answer.
#[derive(Default)]
pub struct InFlightBatches(BTreeMap<u64, InFlight>);

impl InFlightBatches {
    /// How many batches wait.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds the batch of message `id`.
    pub fn insert(&mut self, id: u64, in_flight: InFlight) {
        let before = self.0.insert(id, in_flight);
        debug_assert!(before.is_none(), "message {id} was sent twice");
    }

    /// Takes out the batch of message `id`; `None` if it was given up.
    pub fn remove(&mut self, id: u64) -> Option<InFlight> {
        self.0.remove(&id)
    }

    /// Takes out the batches for which `wanted` is true, oldest first.
    pub fn take(&mut self, wanted: impl Fn(&InFlight) -> bool) -> Vec<InFlight> {
        let (taken, rest) =
            std::mem::take(&mut self.0).into_iter().partition(|(_, in_flight)| wanted(in_flight));
        self.0 = rest;
        BTreeMap::into_values(taken).collect()
    }

    /// Gives servers up `grace` after their batch was sent, or earlier if that was planned.
    pub fn hasten(&mut self, grace: Duration) {
        for in_flight in self.0.values_mut() {
            in_flight.until = in_flight.until.min(in_flight.sent + grace);
        }
    }

    /// When the first server is given up.
    pub fn next_until(&self) -> Option<Instant> {
        self.0.values().map(|in_flight| in_flight.until).min()
    }

    /// When the oldest batch was sent.
    pub fn oldest_sent(&self) -> Option<Instant> {
        self.0.values().map(|in_flight| in_flight.sent).min()
    }
}

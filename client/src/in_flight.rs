//! The batches that wait for an answer. Pure: time is an argument.

use std::{collections::BTreeMap, mem, sync::Arc};

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

/// Takes out the batches of `all` for which `wanted` is true, oldest first. They are kept by the id of their message.
pub fn take(
    all: &mut BTreeMap<u64, InFlight>, wanted: impl Fn(&InFlight) -> bool,
) -> Vec<InFlight> {
    let (taken, rest) = mem::take(all).into_iter().partition(|(_, in_flight)| wanted(in_flight));
    *all = rest;
    BTreeMap::into_values(taken).collect()
}

/// When the first server is given up.
pub fn next_until(all: &BTreeMap<u64, InFlight>) -> Option<Instant> {
    all.values().map(|in_flight| in_flight.until).min()
}

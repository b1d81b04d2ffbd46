//! What requests and answers hold of the node's memory: requests that wait for numbers, and answers that
//! wait for their caller to read them.
//!
//! A request that is answered at once, by a small answer, is not counted: it is gone before it would
//! matter. The others are counted when they have to wait. Numbers that one has taken by then (under the
//! `quorum` fence, or for some of its keys) are skipped and counted where it is refused.
//!
//! Invariant: what is counted holds no more than the limit, whoever sent it, and by whatever door.

use std::sync::Arc;

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use tonic::Status;

use crate::metrics::Metrics;

/// How soon who was refused may try again, in milliseconds.
pub const RETRY_AFTER_MS: u64 = 100;

/// How many bytes an answer has for each key; with fewer than so many keys it is not counted, since what
/// it is sent with holds more.
const KEY_BYTES: usize = 8;
const ANSWER_KEYS_MIN: usize = 512;

/// The bytes that requests and answers hold, and how many they may.
#[derive(Debug)]
pub struct RequestMemory {
    bytes: Gauge,
    bytes_max: u64,
    refused: Counter,
}

/// A part of it; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    memory: Arc<RequestMemory>,
    bytes: i64,
}

impl RequestMemory {
    /// At most so many megabytes (2^20 bytes).
    pub fn new(max_mb: u64, metrics: &Metrics) -> Arc<RequestMemory> {
        Arc::new(RequestMemory {
            bytes: metrics.request_bytes.clone(),
            bytes_max: max_mb << 20,
            refused: metrics.requests_refused.clone(),
        })
    }

    /// Reserves what a request of `bytes` bytes needs while it waits.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if too much is held already.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Result<Reservation, Status> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let before = self.bytes.inc_by(bytes);
        let reserved = Reservation {
            memory: self.clone(),
            bytes,
        };
        if before.saturating_add(bytes).unsigned_abs() <= self.bytes_max {
            return Ok(reserved);
        }
        drop(reserved);
        self.refused.inc();
        Err(Status::resource_exhausted(format!(
            "requests that wait hold as much memory as they may (memory_requests_max_mb is {}); try \
             again in {RETRY_AFTER_MS} ms",
            self.bytes_max >> 20
        )))
    }

    /// Reserves what the answer to a message of `keys` keys needs until it is sent; `None` where that is
    /// too little to count.
    ///
    /// # Errors
    /// As [`RequestMemory::reserve`].
    pub fn reserve_for_answer(
        self: &Arc<Self>,
        keys: usize,
    ) -> Result<Option<Reservation>, Status> {
        if keys < ANSWER_KEYS_MIN {
            return Ok(None);
        }
        self.reserve(KEY_BYTES * keys).map(Some)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.bytes.dec_by(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_limit_is_refused_and_what_is_dropped_makes_room() {
        let metrics = Metrics::new();
        let memory = RequestMemory::new(16, &metrics);
        let first = memory.reserve(10 << 20).unwrap();
        let refused = memory.reserve(7 << 20).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        for part in ["memory_requests_max_mb is 16", "in 100 ms"] {
            assert!(refused.message().contains(part), "{refused}");
        }
        assert_eq!(metrics.request_bytes.get(), 10 << 20);
        assert_eq!(metrics.requests_refused.get(), 1);
        let _second = memory.reserve(6 << 20).unwrap();
        drop(first);
        let _answer = memory.reserve_for_answer(1 << 20).unwrap();
        assert_eq!(metrics.request_bytes.get(), 14 << 20);
        memory.reserve_for_answer(1 << 20).unwrap_err();
        assert!(memory.reserve_for_answer(100).unwrap().is_none());
    }
}

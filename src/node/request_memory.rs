//! The memory that waiting requests hold, and answers that their callers have not read yet.
//!
//! A request that is answered at once by a small answer is not counted: it is gone before it matters. Any other
//! request is counted when it has to wait. If it is refused then, the numbers that it has taken (under the
//! `quorum` fence, for some of its keys, or for the first 1 024 of many) are skipped, and counted as such.
//!
//! Invariant: everything counted stays within one limit for the node, for all callers and interfaces together, and what a
//! principal, or the callers of one address, hold within their share of it (`callers.rs`).

use std::{sync::Arc, time::Duration};

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use tokio::time::{Instant, sleep_until};

use super::{
    Config,
    callers::{Caller, RETRY_AFTER_MS, share},
};
use crate::{
    metrics::Metrics,
    proto::{Refusal, refusal},
};

/// A request or an answer with fewer bytes is not counted: the connection of its caller holds more. As much is allowed for
/// each call in progress, whatever it does.
pub const COUNTED_BYTES_MIN: usize = 4_096;

/// How soon what waits for memory tries again.
const RETRY: Duration = Duration::from_millis(RETRY_AFTER_MS);

/// The bytes that requests and answers hold, and the limit on them.
#[derive(Debug)]
pub struct RequestMemory {
    bytes: Gauge,
    bytes_max: u64,
    bytes_of_each_max: u64,
    refused: Counter,
}

/// A part of the memory. It is freed when dropped.
#[derive(Debug)]
pub struct Reservation {
    memory: Arc<RequestMemory>,
    /// The caller for which it is held; `None` if it is a peer's, or the node's own.
    caller: Option<Arc<Caller>>,
    bytes: i64,
}

impl RequestMemory {
    /// The memory that `config` allows.
    pub fn new(config: &Config, metrics: &Metrics) -> Arc<RequestMemory> {
        let bytes_max = config.memory_requests_max_mb << 20;
        Arc::new(RequestMemory {
            bytes: metrics.request_bytes.clone(),
            bytes_max,
            bytes_of_each_max: share(bytes_max, config.client_share_percent),
            refused: metrics.requests_refused.clone(),
        })
    }

    /// Reserves `bytes` bytes for a request that waits.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if more than the limit would be held, or more than the caller's share of it.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Result<Reservation, Refusal> {
        self.try_reserve(bytes).inspect_err(|_| {
            self.refused.inc();
        })
    }

    /// As [`RequestMemory::reserve`], for what waits and is not refused for this.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if more than the limit would be held, or more than the caller's share of it.
    pub fn try_reserve(self: &Arc<Self>, bytes: usize) -> Result<Reservation, Refusal> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let caller = Caller::current();
        let own = caller.as_ref().map_or(0, |caller| caller.hold(bytes));
        let whose = caller.as_ref().map_or("your address", |caller| caller.called());
        let before = self.bytes.inc_by(bytes);
        let reserved = Reservation { memory: self.clone(), caller, bytes };
        let whose = match () {
            () if before.saturating_add(bytes).unsigned_abs() > self.bytes_max => String::new(),
            () if own.unsigned_abs() > self.bytes_of_each_max => format!(" of {whose}"),
            () => return Ok(reserved),
        };
        drop(reserved);
        let full = refusal!(
            Busy,
            "waiting requests{whose} hold as much memory as they may (memory_requests_max_mb is {}); try again \
             in {RETRY_AFTER_MS} ms, or ask for fewer keys at a time",
            self.bytes_max >> 20
        );
        Err(full.retry_after(RETRY_AFTER_MS))
    }

    /// As [`RequestMemory::reserve`], for what may wait for `patience`. It tries as often as a caller that is refused is told
    /// to.
    ///
    /// # Errors
    /// As [`RequestMemory::reserve`], if there is no room in time.
    pub async fn reserve_in_time(
        self: Arc<Self>, bytes: usize, patience: Duration,
    ) -> Result<Reservation, Refusal> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Ok(reserved) = self.try_reserve(bytes) {
                return Ok(reserved);
            }
            sleep_until(deadline.min(Instant::now() + RETRY)).await;
        }
        self.reserve(bytes)
    }

    /// Reserves `bytes` bytes; `None` if they are too few to count.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if more than the limit would be held, or more than the caller's share of it.
    pub fn reserve_if_many(self: &Arc<Self>, bytes: usize) -> Result<Option<Reservation>, Refusal> {
        (bytes >= COUNTED_BYTES_MIN).then(|| self.reserve(bytes)).transpose()
    }
}

impl Reservation {
    /// Changes it to `bytes` bytes. That is never refused: they are there already.
    pub fn resize(&mut self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.add(bytes - self.bytes);
    }

    fn add(&mut self, bytes: i64) {
        self.memory.bytes.inc_by(bytes);
        if let Some(caller) = &self.caller {
            caller.hold(bytes);
        }
        self.bytes += bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.add(-self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::callers::{Callers, Port};
    use crate::proto::Code;

    #[test]
    fn a_reservation_beyond_the_limit_is_refused_until_another_is_dropped() {
        let metrics = Metrics::new();
        let config = Config { memory_requests_max_mb: 16, ..Config::default() };
        let memory = RequestMemory::new(&config, &metrics);
        let first = memory.reserve(10 << 20).unwrap();
        let refused = memory.reserve(7 << 20).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        for part in ["memory_requests_max_mb is 16", "in 100 ms"] {
            assert!(refused.message().contains(part), "{refused}");
        }
        assert_eq!(metrics.request_bytes.get(), 10 << 20);
        assert_eq!(metrics.requests_refused.get(), 1);
        let _second = memory.reserve(6 << 20).unwrap();
        drop(first);
        let _answer = memory.reserve_if_many(8 << 20).unwrap();
        assert_eq!(metrics.request_bytes.get(), 14 << 20);
        memory.reserve_if_many(8 << 20).unwrap_err();
        assert!(memory.reserve_if_many(COUNTED_BYTES_MIN - 1).unwrap().is_none());
        let mut small = memory.reserve_if_many(COUNTED_BYTES_MIN).unwrap().expect("it counts");
        for bytes in [3 << 20, 0, 7] {
            small.resize(bytes);
            assert_eq!(metrics.request_bytes.get(), (14 << 20) + bytes as i64);
        }
        drop(small);
        assert_eq!(metrics.request_bytes.get(), 14 << 20);
    }

    #[tokio::test]
    async fn what_a_call_reserves_in_a_task_of_its_own_is_its_callers_and_bounded_by_its_share() {
        let metrics = Metrics::new();
        let config = Config { memory_requests_max_mb: 16, ..Config::default() };
        let memory = RequestMemory::new(&config, &metrics);
        let callers = Callers::new(&config, &metrics, |_| false);
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let guest = callers.connect(Port::Clients, address).expect("a connection");
        let reserve = |bytes| {
            let memory = memory.clone();
            Caller::scope(Some(guest.caller().clone()), async move {
                let reserving = async move { memory.reserve(bytes) };
                tokio::spawn(Caller::go_on(reserving)).await.expect("no panic")
            })
        };
        let _half = reserve(8 << 20).await.expect("its share");
        let refused = reserve(1 << 20).await.expect_err("more than its share");
        assert!(refused.message().contains("waiting requests of your address"), "{refused}");
        // The node's own work is nobody's.
        memory.reserve(1 << 20).expect("there is room");
    }
}

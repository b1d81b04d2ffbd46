//! The load: the callers' requests, and how they are made.

use std::time::Duration;

/// The requests of the callers of a round, and how they are made.
#[derive(Debug, Clone)]
pub struct Load {
    /// Connections (all interfaces but client).
    pub connections: usize,
    /// Requests in flight on each connection; over the interfaces http and redis each has a connection of its own.
    pub in_flight: usize,
    /// Tasks that share one client (interface client).
    pub tasks: usize,
    /// Keys in each message (interface stream).
    pub batch: usize,
    /// Keys to draw from.
    pub keys: u64,
    /// The distance between the ids of two neighbouring keys.
    pub key_stride: u64,
    /// Requests a second in an open loop; `None` for a closed loop.
    pub rate: Option<u64>,
    /// The behaviour of an open loop when too many requests wait for an answer.
    pub overload: Overload,
    /// The seed for drawing keys.
    pub seed: u64,
}

/// The behaviour of an open loop when too many requests wait for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overload {
    /// It aborts the run: the rate is too high to be measured.
    Abort,
    /// It sends the requests that are due when others have been answered. Their latency still counts from when
    /// they were due. For loads that an outage is expected in.
    Wait,
}

impl Load {
    /// The id of a key, which is a number below `keys`.
    pub fn id(&self, key: u64) -> u64 {
        key.saturating_mul(self.key_stride)
    }
}

/// How many calls of an open loop may be due, or wait for an answer: with more the rate is not the one that is asked for.
pub const WAITING_MAX: usize = 100_000;
/// How often the pacer of an open loop looks at the clock.
pub const PACER_INTERVAL: Duration = Duration::from_micros(200);
/// How long a caller waits after a failed request before it asks again, so that callers of a cluster without a
/// leader do not take the processors away from it.
pub const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);

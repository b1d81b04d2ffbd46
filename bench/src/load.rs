//! The load of a round.

use std::time::Duration;

/// What the callers of a round request, and how.
#[derive(Debug, Clone)]
pub struct Load {
    /// Connections (doors unary and stream).
    pub connections: usize,
    /// Requests in flight on each connection.
    pub in_flight: usize,
    /// Tasks that share one client (door client).
    pub tasks: usize,
    /// Keys in each message (door stream).
    pub batch: usize,
    /// Keys to draw from.
    pub keys: u64,
    /// Requests a second in an open loop; `None` for a closed loop.
    pub rate: Option<u64>,
    /// The seed for drawing keys.
    pub seed: u64,
}

/// How often the pacer of an open loop looks at the clock.
pub const PACER_INTERVAL: Duration = Duration::from_micros(200);

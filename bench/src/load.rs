//! The load of a round.

use std::time::Duration;

/// What is asked, and how.
#[derive(Debug, Clone)]
pub struct Load {
    pub connections: usize,
    pub in_flight: usize,
    pub tasks: usize,
    pub batch: usize,
    pub keys: u64,
    pub rate: Option<u64>,
    pub seed: u64,
}

/// The pacer of an open loop looks at the clock this often.
pub const PACE: Duration = Duration::from_micros(200);

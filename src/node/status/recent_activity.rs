//! The activity of a node in the last two minutes, second by second.

use std::{collections::VecDeque, time::Duration};

use parking_lot::Mutex;

/// How many seconds are kept.
pub const SECONDS_KEPT: usize = 120;

/// The activity of a node in one second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Second {
    /// How many numbers it handed out as leader.
    pub numbers: u64,
    /// How many requests of its own clients it answered.
    pub requests: u64,
    /// The time within which half of those were answered; `None` if there were none.
    pub p50: Option<Duration>,
    /// The same for 99 of a hundred.
    pub p99: Option<Duration>,
}

/// The activity of a node in the last seconds, the latest one last.
#[derive(Debug, Default)]
pub struct Activity(Mutex<VecDeque<Second>>);

impl Activity {
    /// The seconds, the latest one last.
    pub fn seconds(&self) -> Vec<Second> {
        self.0.lock().iter().copied().collect()
    }

    /// Adds the latest second, in the place of the oldest one.
    pub fn add(&self, second: Second) {
        let mut seconds = self.0.lock();
        if seconds.len() == SECONDS_KEPT {
            seconds.pop_front();
        }
        seconds.push_back(second);
    }
}

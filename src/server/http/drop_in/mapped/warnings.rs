//! Limits the warnings about requests of clients of other id generators: at most one in some seconds, however many requests
//! come.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// At most one warning is logged in this time.
const EVERY: Duration = Duration::from_secs(10);

/// The warnings of this process about clients of other id generators.
pub(super) static WARNINGS: Warnings = Warnings { last: Mutex::new(None) };

/// When the last warning was logged.
pub(super) struct Warnings {
    last: Mutex<Option<Instant>>,
}

impl Warnings {
    /// Whether a warning is to be logged, because none was logged lately.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let mut last = self.last.lock();
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) > EVERY);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_is_logged_in_ten_seconds() {
        let warnings = Warnings { last: Mutex::new(None) };
        let began = Instant::now();
        let due = |ms| warnings.is_due(began + Duration::from_millis(ms));
        assert_eq!(
            [0, 1, 10_000, 10_001, 10_002, 20_002].map(due),
            [true, false, false, true, false, true]
        );
    }
}

//! What is told now and then only, however often it happens.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Says when to tell something again.
#[derive(Debug)]
pub struct AtMostEvery {
    span: Duration,
    told: Mutex<Option<Instant>>,
}

impl AtMostEvery {
    /// It is told at most once in `span`.
    pub fn new(span: Duration) -> AtMostEvery {
        AtMostEvery { span, told: Mutex::new(None) }
    }

    /// Whether it was not told for so long. Then it counts as told now.
    pub fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut told = self.told.lock();
        let is_due = told.is_none_or(|told| now - told > self.span);
        if is_due {
            *told = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_due_once_in_a_span() {
        let telling = AtMostEvery::new(Duration::from_secs(10));
        assert!(telling.is_due());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!telling.is_due());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(telling.is_due());
        assert!(!telling.is_due());
    }
}

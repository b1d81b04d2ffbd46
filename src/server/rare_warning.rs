//! Warnings that are given now and then only, however often their cause happens.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// At most one warning of a kind is given in this time.
const SPAN: Duration = Duration::from_secs(10);

/// A kind of warning: when the last one was given.
#[derive(Debug, Default)]
pub struct RareWarning(Mutex<Option<Instant>>);

impl RareWarning {
    /// Whether none was given lately. Then one counts as given now.
    pub fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut given = self.0.lock();
        let is_due = given.is_none_or(|given| now - given > SPAN);
        if is_due {
            *given = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_due_once_in_a_span() {
        let warning = RareWarning::default();
        assert!(warning.is_due());
        tokio::time::advance(SPAN).await;
        assert!(!warning.is_due());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(warning.is_due());
        assert!(!warning.is_due());
    }
}

//! Hands the leadership over because the disk of this node is slow, if that helps (`Group::quicker_successor`).
//!
//! It is the warm handover of every other occasion: no number is skipped, and the successor has the memory. It is not
//! repeated at will, because a disk that is slow now and then would send the leadership round: each time doubles the time
//! until the next.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Handovers, handover_max};

/// How long there is no further handover after the first, and after many.
const PAUSE: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(3_600);

impl Handovers {
    /// Until the node stops: hands over whenever the disk here is slow, and another leader would be better off.
    pub(in crate::node) async fn leave_slow_disk(self: Arc<Self>) {
        let mut pauses = Pauses::default();
        let look = Duration::from_millis(self.config.election_timeout_ms / 2);
        loop {
            let term = self.led.until_serving().await.term();
            let early = self.group.slow_flush_in();
            if early > Duration::ZERO {
                tokio::time::sleep(early + Duration::from_millis(1)).await;
                continue;
            }
            let now = Instant::now();
            let better = self.group.quicker_successor(term).filter(|_| pauses.begin(now));
            let Some((successor, takes)) = better else {
                tokio::time::sleep(look).await;
                continue;
            };
            tracing::warn!(
                term,
                successor,
                flush_ms = takes.as_millis(),
                "the disk of this node is slow, and those of a majority are not: handing the leadership over"
            );
            let deadline = now + handover_max(&self.config);
            let handed = self.hand_over(Some(successor), deadline).await;
            if let Err(refusal) = handed {
                tracing::warn!(reason = refusal.message(), "the leadership is not handed over");
            }
        }
    }
}

/// When the next handover may begin.
#[derive(Debug, Default)]
struct Pauses {
    /// The pause after the last one, and when it ends.
    last: Option<(Duration, Instant)>,
}

impl Pauses {
    /// Begins a handover at `now`. False if it is too early after the last one. The pause after it is twice as long as the
    /// one before, unless none was wanted for the longest pause after that.
    fn begin(&mut self, now: Instant) -> bool {
        let pause = match self.last {
            Some((_, until)) if now < until => return false,
            Some((pause, until)) if now < until + PAUSE_MAX => (2 * pause).min(PAUSE_MAX),
            Some(_) | None => PAUSE,
        };
        self.last = Some((pause, now + pause));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handover_doubles_the_time_until_the_next_and_a_long_peace_ends_that() {
        let (mut pauses, start) = (Pauses::default(), Instant::now());
        let mut at = |seconds| pauses.begin(start + Duration::from_secs(seconds));
        assert!(at(0));
        assert!(!at(59));
        assert!(at(60));
        assert!(!at(179), "two minutes after the second");
        assert!(at(180));
        assert!(!at(419), "four minutes after the third");
        assert!(at(420));
        assert!(at(420 + 480 + 3_600), "nothing was wanted for an hour");
        assert!(at(420 + 480 + 3_600 + 60), "it begins anew");
    }

    #[test]
    fn the_time_until_the_next_handover_is_bounded() {
        let (mut pauses, mut now) = (Pauses::default(), Instant::now());
        for _ in 0..20 {
            assert!(pauses.begin(now));
            let (pause, until) = pauses.last.unwrap();
            assert!(pause <= PAUSE_MAX);
            now = until;
        }
    }
}

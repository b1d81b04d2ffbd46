//! How long to rest when every server has failed. Pure: time and chance are arguments.

use std::time::Duration;

use tokio::time::Instant;

/// The longest rest after every server has failed once. It doubles with each further round of failures.
const REST_FIRST: Duration = Duration::from_millis(20);
/// The longest rest after any number of failures.
const REST_MAX: Duration = Duration::from_millis(100);

/// Counts failures in a row, and knows until when to rest.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
    rest_until: Option<Instant>,
}

impl Backoff {
    /// Records that a server answered.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Records that one of `servers` servers failed. True if all of them have failed since the last rest; a
    /// rest begins then.
    ///
    /// `part`, from 0 to 1, is the part of the longest rest to take. Choose it at random, so that clients
    /// that failed together do not come back together.
    pub fn failed(&mut self, servers: u32, part: f64, now: Instant) -> bool {
        assert!(servers > 0 && (0.0..=1.0).contains(&part));
        self.failures += 1;
        if !self.failures.is_multiple_of(servers) {
            return false;
        }
        let doublings = (self.failures / servers - 1).min(16);
        let rest = REST_FIRST.saturating_mul(1 << doublings).min(REST_MAX);
        self.rest_until = Some(now + rest.mul_f64(part));
        true
    }

    /// When the rest ends; `None` if there is none.
    pub fn rest_until(&self) -> Option<Instant> {
        self.rest_until
    }

    /// Ends a rest whose time is over.
    pub fn look(&mut self, now: Instant) {
        self.rest_until = self.rest_until.filter(|until| *until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_begin_when_all_servers_have_failed_double_up_to_a_limit_and_start_over_after_an_answer()
     {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let mut rests = Vec::new();
        for failure in 1..=9 {
            if failure == 9 {
                backoff.succeeded();
            }
            if backoff.failed(2, 1.0, now) {
                rests.push(backoff.rest_until().expect("a rest") - now);
            }
        }
        assert_eq!(rests, [20, 40, 80, 100].map(Duration::from_millis));
        assert!(backoff.failed(2, 0.5, now), "the second since the answer");
        assert_eq!(backoff.rest_until(), Some(now + Duration::from_millis(10)));
        backoff.look(now + Duration::from_millis(9));
        assert!(backoff.rest_until().is_some());
        backoff.look(now + Duration::from_millis(10));
        assert_eq!(backoff.rest_until(), None);
    }
}

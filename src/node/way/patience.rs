//! The times that a request waits on the way to the leader: all of them are decided here.
//!
//! A request has one deadline, from its caller's timeout on. Each wait on its way takes a part of the rest, and no other
//! clock decides when a request ends.

use std::time::Duration;

use tokio::time::Instant;

use crate::node::Config;

/// 1/`SENDING_PART` of the caller's timeout, and at most [`SENDING_MAX`], is left for sending the answer: it must be sent
/// before the caller stops waiting.
const SENDING_PART: u32 = 10;
const SENDING_MAX: Duration = Duration::from_millis(100);

/// How long before the deadline an answer of an operation leaves at the latest that says how far it has come.
const TELLING: Duration = Duration::from_millis(100);

/// How long the leader is asked whether it knows a token. The caller's message is held meanwhile, and counted nowhere.
pub(in crate::node) const FOR_TOKEN: Duration = Duration::from_secs(1);
/// How long to wait for the leader to lease worker ids to this node, or to take them back.
pub(in crate::node) const FOR_LEASE: Duration = Duration::from_secs(3);
/// How long to wait for a leader's status: without it, this node tells what it knows.
pub(in crate::node) const FOR_STATUS: Duration = Duration::from_secs(1);

/// How soon numbers are taken again after the fence failed under a valid lease.
pub(super) const FENCE_RETRY: Duration = Duration::from_millis(50);
/// How soon a leader that did not answer, or says that it does not lead, is asked again.
pub(super) const RETRY: Duration = Duration::from_millis(20);
/// How long to wait still for the answer of a deposed leader: its numbers passed the fence before.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(100);

/// How long this node may work on a request whose caller waits for `timeout`. Without one it is `request_timeout_ms`. It is
/// never more than `request_timeout_max_ms`.
pub fn time_to_answer(timeout: Option<Duration>, config: &Config) -> Duration {
    let default = Duration::from_millis(config.request_timeout_ms);
    let longest = Duration::from_millis(config.request_timeout_max_ms);
    let timeout = timeout.unwrap_or(default).min(longest);
    timeout - (timeout / SENDING_PART).min(SENDING_MAX)
}

/// The deadline of a request that a follower has forwarded with `left_ms` left. The follower has left the time for sending
/// the answer out already.
pub fn deadline_in(left_ms: u64, config: &Config) -> Instant {
    Instant::now() + Duration::from_millis(left_ms.min(config.request_timeout_max_ms))
}

/// The deadline, or so much later than now if that is earlier.
pub(in crate::node) fn within(most: Duration, deadline: Instant) -> Instant {
    // A time that is too long to add is never earlier.
    Instant::now().checked_add(most).map_or(deadline, |latest| latest.min(deadline))
}

/// The time until the deadline, and at most `most`.
pub(super) fn left(deadline: Instant, most: Duration) -> Duration {
    deadline.saturating_duration_since(Instant::now()).min(most)
}

/// When an operation that goes on is to be told of, so that its caller hears of it before the deadline.
pub(in crate::node) fn time_to_tell(deadline: Instant) -> Instant {
    let left = deadline.saturating_duration_since(Instant::now());
    deadline.checked_sub(TELLING.min(left / 2)).unwrap_or(deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_answer_is_shorter_than_the_callers_timeout() {
        let millis = |timeout: Option<u64>| {
            let timeout = timeout.map(Duration::from_millis);
            time_to_answer(timeout, &Config::default()).as_millis()
        };
        assert_eq!(millis(Some(2_000)), 1_900);
        assert_eq!(millis(Some(100)), 90);
        assert_eq!(millis(None), 4_900);
    }

    #[test]
    fn the_time_to_answer_never_exceeds_the_configured_maximum() {
        let config = Config { request_timeout_max_ms: 30_000, ..Config::default() };
        let longest = time_to_answer(Some(Duration::MAX), &config);
        assert_eq!(longest, Duration::from_millis(29_900));
    }

    #[test]
    fn what_may_take_for_ever_ends_at_the_deadline_and_what_may_not_before_it() {
        let deadline = Instant::now() + Duration::from_secs(3_600);
        assert_eq!(within(Duration::MAX, deadline), deadline);
        assert!(within(Duration::from_secs(60), deadline) < deadline);
        assert_eq!(left(deadline, Duration::from_secs(1)), Duration::from_secs(1));
        assert!(left(deadline, Duration::MAX) <= Duration::from_secs(3_600));
        assert!(time_to_tell(deadline) < deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_short_time_half_is_left_to_the_operation() {
        let now = Instant::now();
        let told_after = |ms| time_to_tell(now + Duration::from_millis(ms)) - now;
        assert_eq!(told_after(1_000), Duration::from_millis(900));
        assert_eq!(told_after(80), Duration::from_millis(40));
        assert_eq!(told_after(0), Duration::ZERO);
    }
}

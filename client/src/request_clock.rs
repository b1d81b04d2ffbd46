//! The clock that says how long servers remember request ids. The servers keep it; messages with an id say when they were
//! made by it. Pure: time is an argument.
//!
//! A server that gets a copy of a message too late refuses it, and tells the clock's time. So the client needs to know it
//! only nearly. The clock stands still while there is no leader, and so it is behind a clock that goes on from the time that
//! was told.

use std::time::Duration;

use tokio::time::Instant;

/// The known time of the clock.
#[derive(Debug, Default)]
pub struct RequestClock {
    /// The time that a server told last, in milliseconds, and when it did.
    told: Option<(u64, Instant)>,
}

impl RequestClock {
    /// Notes the time of the clock that a server has told.
    pub fn learn(&mut self, clock_ms: u64, now: Instant) {
        self.told = Some((clock_ms, now));
    }

    /// The least time that the clock may show now, if it stood still for `margin` at most since a server told it; 0 if none
    /// did. A message that was made later than now is refused.
    pub fn read(&self, now: Instant, margin: Duration) -> u64 {
        self.told.map_or(0, |(told_ms, at)| {
            let passed = now.saturating_duration_since(at).saturating_sub(margin);
            told_ms.saturating_add(passed.as_millis() as u64)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_on_from_what_was_told_and_allows_for_a_time_without_a_leader() {
        let (margin, start) = (Duration::from_secs(2), Instant::now());
        let read =
            |clock: &RequestClock, after| clock.read(start + Duration::from_secs(after), margin);
        let mut clock = RequestClock::default();
        assert_eq!(read(&clock, 9), 0);
        clock.learn(500, start);
        assert_eq!([0, 2, 3, 10].map(|after| read(&clock, after)), [500, 500, 1_500, 8_500]);
        // A cluster that was restored may tell less.
        clock.learn(7, start + Duration::from_secs(10));
        assert_eq!(read(&clock, 13), 1_007);
    }
}

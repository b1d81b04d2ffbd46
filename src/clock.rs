//! The clock that leases are measured with, and the time of day for the records. It is passed in, so that tests and
//! simulations use their own.
//!
//! Invariant: a [`Clock`] never goes back, and it goes on while the machine is suspended.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time: nanoseconds since a start that is the same for all readings of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The latest instant: a deadline that never passes.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// The instant `nanos` nanoseconds after the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// Nanoseconds since the clock's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This instant `span` later; saturates at [`Instant::NEVER`].
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Instant(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time from `earlier` to this instant; zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A source of [`Instant`]s.
pub trait Clock: Send + Sync + 'static {
    /// The current instant.
    fn now(&self) -> Instant;

    /// Milliseconds since 1970, as people count time. It may jump, forward and back: nothing that the promise rests on may
    /// depend on it.
    fn wall_ms(&self) -> u64;
}

/// CLOCK_BOOTTIME, which goes on while the machine is suspended. `std::time::Instant` is CLOCK_MONOTONIC
/// on Linux, which does not: a lease measured with it would outlive the followers' promise.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Instant {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        // Neither field is negative for this clock, and u64 nanoseconds last 584 years.
        Instant(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
    }

    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        // A clock that was set to a time before 1970 shows 1970.
        since.map_or(0, whole_ms)
    }
}

/// The whole milliseconds of `span`.
pub fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_reading_of_the_boot_clock_is_not_earlier() {
        let first = BootClock.now();
        let second = BootClock.now();
        assert!(second >= first);
        assert!(first.as_nanos() > 0);
    }

    #[test]
    fn an_instant_after_never_is_never() {
        assert_eq!(Instant::NEVER.after(Duration::from_secs(1)), Instant::NEVER);
    }
}

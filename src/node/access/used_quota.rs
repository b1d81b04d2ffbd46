//! The used part of one quota: calls and numbers in a second, and the numbers that were burnt in a day.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use governor::{
    InsufficientCapacity, RateLimiter,
    clock::Clock,
    middleware::NoOpMiddleware,
    state::{InMemoryState, NotKeyed},
};
use tokio::time::Instant;

use crate::sequence::Quota;

/// In this time a rate is as if nothing had been used: a second's worth may be used at once.
pub(super) const SECOND: Duration = Duration::from_secs(1);
/// For so long numbers that were burnt count.
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// The used part of a quota.
pub(super) struct Used {
    /// The calls of the last second.
    pub calls: Rate,
    /// The numbers that were asked for in the last second.
    pub numbers: Rate,
    /// The numbers that were burnt.
    pub burnt: BurntSince,
    /// When something was used last.
    pub last: Duration,
}

/// How many numbers were burnt since a moment.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct BurntSince {
    since: Duration,
    /// How many.
    pub numbers: u64,
}

/// The time since the node started. Rates are counted by it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Uptime {
    /// When the node started.
    pub since: Instant,
}

impl Clock for Uptime {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.since.elapsed()
    }
}

/// The used part of a limit for each second, if there is one.
pub(super) struct Rate(
    Option<RateLimiter<NotKeyed, InMemoryState, Uptime, NoOpMiddleware<Duration>>>,
);

/// Why there is no room in a quota.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QuotaFull {
    /// There is in so long.
    For(Duration),
    /// There never is for so much at once.
    Always,
}

impl Rate {
    fn none_used(per_second: Option<NonZeroU32>, clock: Uptime) -> Rate {
        let limit = |most| RateLimiter::direct_with_clock(governor::Quota::per_second(most), clock);
        Rate(per_second.map(limit))
    }

    /// Uses so much of it.
    ///
    /// # Errors
    /// [`QuotaFull`] if there is no room. Nothing is used then.
    pub(super) fn take(&self, much: NonZeroU32, now: Duration) -> Result<(), QuotaFull> {
        match self.0.as_ref().map_or(Ok(Ok(())), |rate| rate.check_n(much)) {
            Ok(taken) => taken.map_err(|until| QuotaFull::For(until.wait_time_from(now))),
            Err(InsufficientCapacity(_)) => Err(QuotaFull::Always),
        }
    }
}

impl Used {
    /// That of a quota of which nothing was used.
    pub(super) fn none(quota: &Quota, clock: Uptime) -> Used {
        Used {
            calls: Rate::none_used(quota.calls_per_second, clock),
            numbers: Rate::none_used(quota.numbers_per_second, clock),
            burnt: BurntSince::default(),
            last: clock.now(),
        }
    }

    /// Whether the quota has as much room as if nothing had been used: then this may be forgotten.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.last) > SECOND && self.burnt.now(now).numbers == 0
    }
}

impl BurntSince {
    /// The numbers that still count: none, a day after the first of them.
    fn now(self, now: Duration) -> BurntSince {
        match self.numbers > 0 && now.saturating_sub(self.since) < DAY {
            true => self,
            false => BurntSince { since: now, numbers: 0 },
        }
    }

    /// Counts further numbers.
    pub(super) fn add(&mut self, numbers: u64, now: Duration) {
        let burnt = self.now(now);
        *self = BurntSince { numbers: burnt.numbers.saturating_add(numbers), ..burnt };
    }

    /// Checks that fewer were burnt than `most`.
    ///
    /// # Errors
    /// [`QuotaFull::For`] the rest of the day.
    pub(super) fn check(self, most: NonZeroU64, now: Duration) -> Result<(), QuotaFull> {
        let burnt = self.now(now);
        match burnt.numbers < most.get() {
            true => Ok(()),
            false => Err(QuotaFull::For((burnt.since + DAY).saturating_sub(now))),
        }
    }
}

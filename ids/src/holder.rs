//! A holder of worker ids: it keeps its leases, knows the time, and makes ids. Pure: its driver reads the clocks, and carries
//! its asks to the leader.
//!
//! It begins with one worker id. It asks for a further one while callers have to wait because the ids of the time are used up,
//! and releases worker ids that are of no use for a minute.
//!
//! Invariant: ids are made at times above a lease's `from_ms` and up to its ceiling alone. The clocks decide when an
//! id is made and when a lease is renewed, never whether an id is made twice.

use std::time::Duration;

use crate::{
    encode::{EncodeError, Fixed},
    format::Format,
    generator::{Generator, NotYet, Run},
    generators::Generators,
    lease::{Ask, GrantedLease, HeldWorker},
    shortage::Shortage,
    steady_time::SteadyTime,
};

/// Leases are renewed once one of them has less than this left up to its ceiling. A grant reaches ten seconds ahead, so that
/// a holder costs one log entry every four seconds: renewals that come together share one.
const RENEW_BELOW_MS: u64 = 6_000;
/// How soon to ask again after a failure.
const RETRY_NS: u64 = 300_000_000;
/// How often the wall clock is looked at.
const OBSERVE_NS: u64 = 100_000_000;
/// So far ahead of the time ids may be made, where a unit of time is a millisecond: a caller that has used one up goes on
/// in the next one, and need not wait for so short a time.
const BORROWED_MS: u64 = 5;
/// A clock that is further ahead of the leader's is set back.
const AHEAD_MAX_MS: u64 = 1_000;
/// After a renewal the leader is not asked again sooner, at any times of the clocks.
const RENEWAL_EVERY_NS: u64 = 1_000_000_000;
/// After a further worker id was granted, it is seen for so long whether that was enough.
const GROW_EVERY_NS: u64 = 200_000_000;
/// How soon a further worker id is asked for again where there was none to spare.
const GROW_RETRY_NS: u64 = 10_000_000_000;
/// A worker id is released if it was of no use for so long. The last one stays.
const IDLE_NS: u64 = 60_000_000_000;
/// How soon another one may be released.
const SHRINK_EVERY_NS: u64 = 1_000_000_000;

/// Why there is no id now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// There is one after this time, if no other caller takes it.
    For(Duration),
    /// There is one once the leader has granted the asks of [`Holder::asks`].
    ForLease,
    /// Never: the format's last time is used up, or has passed.
    Ended,
}

/// Holds worker ids of a format, or is about to.
#[derive(Debug, Clone)]
pub struct Holder {
    format: Format,
    /// How many worker ids it may hold.
    workers_max: usize,
    time: SteadyTime,
    observed_ns: u64,
    leases: Generators,
    shortage: Shortage,
    /// Whether the leader is being asked.
    is_asking: bool,
    /// When the leader may be asked for a first lease, or for renewals.
    ask_at_ns: u64,
    /// When it may be asked for a further worker id.
    grow_at_ns: u64,
    /// When a worker id may be released.
    shrink_at_ns: u64,
    /// Whether a lease is wanted where there is none.
    is_wanted: bool,
}

impl Holder {
    /// A holder without a lease. `mono_ns` is a reading of a monotonic clock, in nanoseconds from any point on; `wall_ms`
    /// one of the wall clock, in milliseconds since 1970. It takes up to `workers_max` worker ids, and at least one, as its
    /// callers need them. In a format whose ids the worker does not order, it takes one.
    ///
    /// # Errors
    /// [`EncodeError::NoWorker`] if the format has no worker.
    pub fn new(
        format: Format, workers_max: usize, mono_ns: u64, wall_ms: u64,
    ) -> Result<Holder, EncodeError> {
        if format.workers_max() == 0 {
            return Err(EncodeError::NoWorker);
        }
        Ok(Holder {
            workers_max: match format.is_ordered_by_worker() {
                true => workers_max,
                false => 1,
            },
            shortage: Shortage::new(format.tick_ms()),
            format,
            time: SteadyTime::new(mono_ns, wall_ms),
            observed_ns: mono_ns,
            leases: Generators::default(),
            is_asking: false,
            ask_at_ns: mono_ns,
            grow_at_ns: mono_ns,
            shrink_at_ns: mono_ns,
            is_wanted: false,
        })
    }

    /// The worker ids that are held, from the lowest on.
    pub fn workers(&self) -> impl Iterator<Item = u64> {
        self.leases.held().map(|(held, _)| held.worker)
    }

    /// Takes up to `count_max` ids with the fields that their caller chose, all of one unit of time.
    ///
    /// # Errors
    /// [`Wait`] if there is none now.
    #[inline]
    pub fn take(&mut self, mono_ns: u64, fixed: Fixed, count_max: u64) -> Result<Run, Wait> {
        if self.leases.is_empty() {
            self.is_wanted = true;
            return Err(Wait::ForLease);
        }
        let now_ms = self.time.now_ms(mono_ns);
        let mut taken = self.leases.take(now_ms, mono_ns, fixed, count_max);
        if let Err(NotYet::Until(next_ms)) = taken
            && next_ms.saturating_sub(now_ms) <= self.borrowed_ms()
        {
            taken = self.leases.take(next_ms, mono_ns, fixed, count_max);
        }
        taken.map_err(|not_yet| self.wait(not_yet, now_ms, mono_ns))
    }

    /// How far ids may run ahead of the time.
    fn borrowed_ms(&self) -> u64 {
        match self.format.tick_ms() {
            1 => BORROWED_MS,
            _ => 0,
        }
    }

    /// The event to wait for.
    #[cold]
    fn wait(&mut self, not_yet: NotYet, now_ms: u64, mono_ns: u64) -> Wait {
        match not_yet {
            // A clock that is behind makes this long; the next answer of the leader mends it.
            NotYet::Until(next_ms) => {
                // A caller that waited longer would find that the time has passed by the ids of a millisecond.
                let borrowed_ms = self.borrowed_ms();
                let from_ms = next_ms.saturating_sub(borrowed_ms);
                let left_ms = from_ms.saturating_sub(now_ms).max(1);
                // A longer wait is for a lease that begins late: further ones would as well.
                if left_ms <= self.format.tick_ms() {
                    self.shortage.waits(mono_ns, now_ms, now_ms + left_ms);
                }
                Wait::For(Duration::from_millis(left_ms))
            }
            NotYet::Ceiling => {
                // A lease may begin at its ceiling, above all that may be lost. It is renewed when that has come near.
                let ceilings = self.leases.held().map(|(_, ceiling_ms)| ceiling_ms);
                let left_ms = ceilings.min().unwrap_or(0).saturating_sub(now_ms);
                match left_ms.checked_sub(RENEW_BELOW_MS) {
                    None | Some(0) => Wait::ForLease,
                    Some(early_ms) => Wait::For(Duration::from_millis(early_ms)),
                }
            }
            NotYet::Ended => Wait::Ended,
        }
    }

    /// True if the wall clock is to be looked at: [`Holder::observe`].
    pub fn is_blind(&self, mono_ns: u64) -> bool {
        mono_ns.saturating_sub(self.observed_ns) >= OBSERVE_NS
    }

    /// Takes a reading of the wall clock into account. To be called every 100 ms or so. Returns as [`SteadyTime::observe`]
    /// does.
    pub fn observe(&mut self, mono_ns: u64, wall_ms: u64) -> Option<i64> {
        self.observed_ns = mono_ns;
        self.time.observe(mono_ns, wall_ms)
    }

    /// The time, in milliseconds since 1970.
    #[cfg(test)]
    fn now_ms(&self, mono_ns: u64) -> u64 {
        self.time.now_ms(mono_ns)
    }

    /// The asks to the leader that are due now, all at the same time. The caller that gets asks here says how each one went,
    /// when all are answered: by [`Holder::granted`], [`Holder::lost`] or [`Holder::failed`].
    pub fn asks(&mut self, mono_ns: u64) -> Vec<Ask> {
        if self.is_asking {
            return Vec::new();
        }
        let mut asks = Vec::new();
        if self.ask_at_ns <= mono_ns {
            asks = self.due(mono_ns);
        }
        if !asks.is_empty() {
            // The first answer says when again.
            self.ask_at_ns = u64::MAX;
        }
        if self.lacks_a_worker(mono_ns) {
            asks.push(Ask::Further);
        }
        self.is_asking = !asks.is_empty();
        asks
    }

    /// A first lease, or renewals: of all leases once it is time for one, so that they share a log entry from then on.
    fn due(&self, mono_ns: u64) -> Vec<Ask> {
        if self.leases.is_empty() {
            let lease = self.is_wanted.then_some(Ask::Lease);
            return lease.into_iter().collect();
        }
        let now_ms = self.time.now_ms(mono_ns);
        let is_due = |(_, ceiling_ms): (_, u64)| ceiling_ms.saturating_sub(now_ms) < RENEW_BELOW_MS;
        match self.leases.held().any(is_due) {
            true => self.leases.held().map(|(held, _)| Ask::Renew(held)).collect(),
            false => Vec::new(),
        }
    }

    fn lacks_a_worker(&self, mono_ns: u64) -> bool {
        (1..self.workers_max).contains(&self.leases.len())
            && self.grow_at_ns <= mono_ns
            && self.shortage.lasts(mono_ns)
    }

    /// Sets the earliest time of the next ask.
    fn may_ask_at(&mut self, at_ns: u64) {
        self.is_asking = false;
        self.ask_at_ns = self.ask_at_ns.min(at_ns);
    }

    /// A further worker id may be asked for then, if callers have waited again.
    fn may_grow_at(&mut self, mono_ns: u64, at_ns: u64) {
        self.is_asking = false;
        self.grow_at_ns = at_ns;
        self.shortage.forget(mono_ns);
    }

    /// The leader has granted `ask`, which was made at `asked_ns`, and its answer is here at `mono_ns`. A renewal of a lease
    /// that was given up meanwhile is ignored: ids of its times were made. Returns as [`SteadyTime::told`] does.
    ///
    /// # Errors
    /// [`EncodeError`] if the format has no such worker. The leases are as they were.
    pub fn granted(
        &mut self, ask: Ask, asked_ns: u64, mono_ns: u64, grant: GrantedLease,
    ) -> Result<Option<i64>, EncodeError> {
        if let Ask::Renew(held) = ask {
            self.leases.extend(held, grant.ceiling_ms);
        } else {
            let (from_ms, ceiling_ms) = (grant.from_ms, grant.ceiling_ms);
            let joined = Generator::new(&self.format, grant.worker, from_ms, ceiling_ms);
            let joined = joined.inspect_err(|_| {
                self.failed(ask, mono_ns);
            })?;
            self.leases.join(grant.held(), joined, mono_ns);
            self.is_wanted = false;
        }
        match ask {
            Ask::Further => self.may_grow_at(mono_ns, mono_ns.saturating_add(GROW_EVERY_NS)),
            _ => self.may_ask_at(mono_ns.saturating_add(RENEWAL_EVERY_NS)),
        }
        let rtt_ms = mono_ns.saturating_sub(asked_ns) / 1_000_000;
        // The leader's time by now lies in between.
        let latest_ms = grant.now_ms.saturating_add(rtt_ms);
        let leader_ms = self.time.now_ms(mono_ns).clamp(grant.now_ms, latest_ms);
        let followed = self.told(mono_ns, leader_ms);
        self.leave_if_stuck(mono_ns);
        Ok(followed)
    }

    /// Gives all used leases up if they lie behind: their leader's time is so far below the ceilings that none was raised.
    /// Another worker id makes ids sooner.
    fn leave_if_stuck(&mut self, mono_ns: u64) {
        let now_ms = self.time.now_ms(mono_ns);
        let is_behind = |(_, ceiling_ms): (_, u64)| ceiling_ms <= now_ms;
        if self.leases.used_ms() > 0 && self.leases.held().all(is_behind) {
            self.leases.drop_used();
            self.may_ask_at(mono_ns);
        }
    }

    /// Heeds the leader's time. A clock that is far ahead would lie above every ceiling: it is set back, as far as no id was
    /// made.
    fn told(&mut self, mono_ns: u64, leader_ms: u64) -> Option<i64> {
        let from_ms = leader_ms.max(self.leases.used_ms());
        let ahead_ms = self.time.now_ms(mono_ns).saturating_sub(from_ms);
        if ahead_ms <= AHEAD_MAX_MS {
            return self.time.told(mono_ns, leader_ms);
        }
        self.time = SteadyTime::new(mono_ns, from_ms);
        self.time.told(mono_ns, leader_ms);
        Some(i64::try_from(ahead_ms).map_or(i64::MIN, |ahead_ms| -ahead_ms))
    }

    /// The lease that `ask` was to renew is another's by now. It goes, and the others stay. Without any, the next ask is for a
    /// new one, once somebody wants ids.
    pub fn lost(&mut self, ask: Ask, mono_ns: u64) {
        if let Ask::Renew(held) = ask {
            self.leases.remove(held);
        }
        self.may_ask_at(mono_ns);
    }

    /// The leader did not answer, or refused. The next ask comes a little later; where there is no lease, or its ceiling has
    /// passed, once somebody wants ids. Returns true if callers may have waited for it, and false if it was for a further
    /// worker id.
    pub fn failed(&mut self, ask: Ask, mono_ns: u64) -> bool {
        if ask == Ask::Further {
            self.may_grow_at(mono_ns, mono_ns.saturating_add(GROW_RETRY_NS));
            return false;
        }
        if let Ask::Renew(held) = ask {
            let now_ms = self.time.now_ms(mono_ns);
            let has_ended = |(lease, ceiling_ms): (_, u64)| lease == held && ceiling_ms < now_ms;
            if self.leases.held().any(has_ended) {
                self.leases.remove(held);
            }
        }
        self.is_wanted = false;
        self.may_ask_at(mono_ns.saturating_add(RETRY_NS));
        true
    }

    /// When to call [`Holder::asks`] and [`Holder::give_idle_up`] again.
    pub fn look_again(&self, mono_ns: u64) -> Duration {
        let ask_in = match self.ask_at_ns.checked_sub(mono_ns) {
            None | Some(0) => OBSERVE_NS,
            Some(ask_in) => ask_in,
        };
        Duration::from_nanos(ask_in.clamp(1_000_000, OBSERVE_NS))
    }

    /// Gives all leases up: no id is made any more under them. Returns the leases to release at the leader: each lease, and
    /// the greatest time in an id of it (0 if there is none).
    pub fn give_up(&mut self) -> Vec<(HeldWorker, u64)> {
        self.is_wanted = false;
        self.leases.clear()
    }

    /// Gives one lease up if it was of no use for a minute, one a second and never the last one, while the leader is not
    /// asked. Returns the lease to release at the leader, as [`Holder::give_up`] does.
    pub fn give_idle_up(&mut self, mono_ns: u64) -> Option<(HeldWorker, u64)> {
        if self.is_asking || mono_ns < self.shrink_at_ns {
            return None;
        }
        let idle = self.leases.idle(mono_ns.checked_sub(IDLE_NS)?)?;
        self.shrink_at_ns = mono_ns.saturating_add(SHRINK_EVERY_NS);
        self.leases.remove(idle)
    }
}

#[cfg(test)]
mod tests;

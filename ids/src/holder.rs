//! What a holder of a worker id does: it keeps its lease, knows the time, and makes ids. Pure: whoever drives it reads
//! the clocks, and carries what it asks for to the leader.
//!
//! Invariant: ids are made at times above the lease's `from_ms` and up to its ceiling alone. The clocks decide when an
//! id is made and when the lease is renewed, never whether an id is made twice.

use std::time::Duration;

use crate::{
    encode::EncodeError,
    format::Format,
    generator::{Generator, NotYet, Run},
    steady_time::{Observed, SteadyTime},
};

/// A lease is renewed once less than this is left up to its ceiling. A grant reaches ten seconds ahead, so that each worker
/// id costs one log entry every four seconds.
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
/// After a renewal the leader is not asked again sooner, whatever the clocks show.
const RENEWAL_EVERY_NS: u64 = 1_000_000_000;

/// What the leader granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The worker id.
    pub worker: u64,
    /// Names this lease among those of the worker id.
    pub token: u64,
    /// Ids are made above this time, in milliseconds since 1970.
    pub from_ms: u64,
    /// Ids are made up to this time.
    pub ceiling_ms: u64,
    /// The leader's time.
    pub now_ms: u64,
}

impl Grant {
    /// The lease that was granted.
    pub fn held(&self) -> HeldWorker {
        HeldWorker {
            worker: self.worker,
            token: self.token,
        }
    }
}

/// A lease, as the leader knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldWorker {
    /// The worker id.
    pub worker: u64,
    /// As in [`Grant`].
    pub token: u64,
}

/// What the leader is to be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// A worker id.
    Lease,
    /// More time for this one.
    Renew(HeldWorker),
}

/// Why there is no id now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// There is one after this time, if no other caller takes it.
    For(Duration),
    /// There is one once the leader has granted what [`Holder::ask`] asks for.
    ForLease,
    /// Never: the format's last time is used up, or has passed.
    Ended,
}

/// Holds a worker id of a format, or is about to.
#[derive(Debug, Clone)]
pub struct Holder {
    format: Format,
    time: SteadyTime,
    observed_ns: u64,
    lease: Option<Lease>,
    /// When the leader may be asked. `None` while it is being asked.
    ask_at_ns: Option<u64>,
    /// Whether a lease is wanted where there is none.
    is_wanted: bool,
}

#[derive(Debug, Clone)]
struct Lease {
    held: HeldWorker,
    generator: Generator,
}

impl Holder {
    /// A holder without a lease. `mono_ns` is a reading of a monotonic clock, in nanoseconds from any point on; `wall_ms`
    /// one of the wall clock, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`EncodeError::NoWorker`] if the format has no worker.
    pub fn new(format: Format, mono_ns: u64, wall_ms: u64) -> Result<Holder, EncodeError> {
        if format.workers_max() == 0 {
            return Err(EncodeError::NoWorker);
        }
        Ok(Holder {
            format,
            time: SteadyTime::new(mono_ns, wall_ms),
            observed_ns: mono_ns,
            lease: None,
            ask_at_ns: Some(mono_ns),
            is_wanted: false,
        })
    }

    /// The format of the ids.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// The worker id that is held.
    pub fn worker(&self) -> Option<u64> {
        self.lease.as_ref().map(|lease| lease.held.worker)
    }

    /// Takes up to `count_max` ids, all of one unit of time.
    ///
    /// # Errors
    /// [`Wait`] if there is none now.
    #[inline]
    pub fn take(&mut self, mono_ns: u64, count_max: u64) -> Result<Run, Wait> {
        let Some(lease) = &mut self.lease else {
            self.is_wanted = true;
            return Err(Wait::ForLease);
        };
        let now_ms = self.time.now_ms(mono_ns);
        let mut taken = lease.generator.take(now_ms, count_max);
        if let Err(NotYet::Until(next_ms)) = taken
            && self.format.tick_ms() == 1
            && next_ms.saturating_sub(now_ms) <= BORROWED_MS
        {
            taken = lease.generator.take(next_ms, count_max);
        }
        match taken {
            Ok(run) => Ok(run),
            // A clock that is behind makes this long; the next answer of the leader mends it.
            Err(NotYet::Until(ms)) => {
                let left_ms = ms.saturating_sub(now_ms).max(1);
                Err(Wait::For(Duration::from_millis(left_ms)))
            }
            Err(NotYet::Ceiling) => {
                // A lease may begin at its ceiling, above all that may be lost. It is renewed when that has come near.
                let left_ms = lease.generator.ceiling_ms().saturating_sub(now_ms);
                Err(match left_ms.checked_sub(RENEW_BELOW_MS) {
                    None | Some(0) => Wait::ForLease,
                    Some(early_ms) => Wait::For(Duration::from_millis(early_ms)),
                })
            }
            Err(NotYet::Ended) => Err(Wait::Ended),
        }
    }

    /// True if the wall clock is to be looked at: [`Holder::observe`].
    pub fn is_blind(&self, mono_ns: u64) -> bool {
        mono_ns.saturating_sub(self.observed_ns) >= OBSERVE_NS
    }

    /// Takes a reading of the wall clock into account. To be called every 100 ms or so.
    pub fn observe(&mut self, mono_ns: u64, wall_ms: u64) -> Observed {
        self.observed_ns = mono_ns;
        self.time.observe(mono_ns, wall_ms)
    }

    /// The time, in milliseconds since 1970.
    #[cfg(test)]
    fn now_ms(&self, mono_ns: u64) -> u64 {
        self.time.now_ms(mono_ns)
    }

    /// What to ask the leader for now, if anything. Whoever gets an answer here says how it went: by
    /// [`Holder::granted`], [`Holder::lost`] or [`Holder::failed`].
    pub fn ask(&mut self, mono_ns: u64) -> Option<Ask> {
        let may = self.ask_at_ns.is_some_and(|at| at <= mono_ns);
        if !may {
            return None;
        }
        let now_ms = self.time.now_ms(mono_ns);
        let ask = match &self.lease {
            None if !self.is_wanted => return None,
            None => Ask::Lease,
            Some(lease) => {
                let left = lease.generator.ceiling_ms().saturating_sub(now_ms);
                if left >= RENEW_BELOW_MS {
                    return None;
                }
                Ask::Renew(lease.held)
            }
        };
        self.ask_at_ns = None;
        Some(ask)
    }

    /// The leader has granted `ask`, which was made at `asked_ns`, and its answer is here at `mono_ns`. A renewal of a lease
    /// that was given up meanwhile is ignored: ids of its times were made.
    ///
    /// # Errors
    /// [`EncodeError`] if the format has no such worker. The lease is as it was.
    pub fn granted(
        &mut self,
        ask: Ask,
        asked_ns: u64,
        mono_ns: u64,
        grant: Grant,
    ) -> Result<Observed, EncodeError> {
        self.ask_at_ns = Some(mono_ns.saturating_add(RETRY_NS));
        match (ask, &mut self.lease) {
            (Ask::Renew(held), Some(lease)) if lease.held == held => {
                lease.generator.extend(grant.ceiling_ms);
            }
            (Ask::Renew(_), _) => {}
            (Ask::Lease, lease) => {
                let (from, ceiling) = (grant.from_ms, grant.ceiling_ms);
                let generator = Generator::new(&self.format, grant.worker, from, ceiling)?;
                let held = grant.held();
                *lease = Some(Lease { held, generator });
                self.is_wanted = false;
            }
        }
        self.ask_at_ns = Some(mono_ns.saturating_add(RENEWAL_EVERY_NS));
        let rtt_ms = mono_ns.saturating_sub(asked_ns) / 1_000_000;
        // The leader's time by now lies in between.
        let latest_ms = grant.now_ms.saturating_add(rtt_ms);
        let leader_ms = self.time.now_ms(mono_ns).clamp(grant.now_ms, latest_ms);
        let observed = self.told(mono_ns, leader_ms);
        self.leave_if_stuck(mono_ns);
        Ok(observed)
    }

    /// Gives a lease up that lies behind: its leader's time is so far below the ceiling that it was not raised. Another
    /// worker id makes ids sooner.
    fn leave_if_stuck(&mut self, mono_ns: u64) {
        let now_ms = self.time.now_ms(mono_ns);
        let is_stuck = |lease: &Lease| {
            let used_ms = lease.generator.used_ms();
            used_ms > 0 && lease.generator.ceiling_ms() <= now_ms
        };
        if self.lease.as_ref().is_some_and(is_stuck) {
            self.lost(mono_ns);
        }
    }

    /// Heeds the leader's time. A clock that is far ahead would lie above every ceiling: it is set back, as far as no id was
    /// made.
    fn told(&mut self, mono_ns: u64, leader_ms: u64) -> Observed {
        let used_ms = (self.lease.as_ref()).map_or(0, |lease| lease.generator.used_ms());
        let from_ms = leader_ms.max(used_ms);
        let ahead_ms = self.time.now_ms(mono_ns).saturating_sub(from_ms);
        if ahead_ms <= AHEAD_MAX_MS {
            return self.time.told(mono_ns, leader_ms);
        }
        self.time = SteadyTime::new(mono_ns, from_ms);
        self.time.told(mono_ns, leader_ms);
        let step_ms = i64::try_from(ahead_ms).map_or(i64::MIN, |ahead_ms| -ahead_ms);
        Observed::Followed { step_ms }
    }

    /// The lease that was to be renewed is another's by now. The next ask is for a new one, once somebody wants ids.
    pub fn lost(&mut self, mono_ns: u64) {
        self.lease = None;
        self.ask_at_ns = Some(mono_ns);
    }

    /// The leader did not answer, or refused. The next ask comes a little later; where there is no lease, or its ceiling has
    /// passed, once somebody wants ids.
    pub fn failed(&mut self, mono_ns: u64) {
        let now_ms = self.time.now_ms(mono_ns);
        let has_ended = |lease: &Lease| lease.generator.ceiling_ms() < now_ms;
        if self.lease.as_ref().is_some_and(has_ended) {
            self.lease = None;
        }
        self.is_wanted = false;
        self.ask_at_ns = Some(mono_ns.saturating_add(RETRY_NS));
    }

    /// When to call [`Holder::ask`] again.
    pub fn look_again(&self, mono_ns: u64) -> Duration {
        let ask_in = match self.ask_at_ns {
            Some(at) if at > mono_ns => at - mono_ns,
            Some(_) | None => OBSERVE_NS,
        };
        Duration::from_nanos(ask_in.clamp(1_000_000, OBSERVE_NS))
    }

    /// Gives the lease up: no id is made any more under it. Returns what to tell the leader: the lease, and the greatest
    /// time in an id (0 if there is none).
    pub fn give_up(&mut self) -> Option<(HeldWorker, u64)> {
        self.is_wanted = false;
        let lease = self.lease.take()?;
        Some((lease.held, lease.generator.used_ms()))
    }
}

#[cfg(test)]
mod tests;

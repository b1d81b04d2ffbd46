//! The worker ids that one maker holds, and in which order it uses them. Pure.
//!
//! Each worker id keeps its own lease: its times, its ceiling, its token. Within a unit of time the worker ids are used from
//! the lowest on. So the ids of the maker increase, because the worker stands above the counter
//! ([`Format::is_ordered_by_worker`](crate::Format::is_ordered_by_worker); other formats have one worker id for a maker),
//! unless the counter runs on.
//!
//! Invariant: no id is made in a unit of time before the last one that was used, nor in that one under a worker id below the
//! last one that was used. Whether leases are joined, extended or lost does not matter. It ends with the last lease.

use crate::{
    encode::Fixed,
    generator::{Generator, NotYet, Run},
    lease::HeldWorker,
};

/// Makes ids under several worker ids.
#[derive(Debug, Clone, Default)]
pub(crate) struct Generators {
    /// The leases, in the order of their worker ids, which differ.
    leases: Vec<Lease>,
    turn: Turn,
}

/// The unit of time in which ids were made last, and under which worker id.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    /// Its first millisecond. 0 if none was made.
    first_ms: u64,
    /// The first millisecond of the one after it.
    next_ms: u64,
    worker: u64,
}

#[derive(Debug, Clone)]
struct Lease {
    held: HeldWorker,
    generator: Generator,
    /// When it was last of use, by the monotonic clock.
    used_ns: u64,
}

impl Lease {
    fn given_up(&self) -> (HeldWorker, u64) {
        (self.held, self.generator.used_ms())
    }
}

impl Generators {
    /// Whether there is no lease.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// How many worker ids there are.
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// The leases, in the order of their worker ids, with their ceilings.
    pub fn held(&self) -> impl Iterator<Item = (HeldWorker, u64)> {
        let leases = self.leases.iter();
        leases.map(|lease| (lease.held, lease.generator.ceiling_ms()))
    }

    /// Takes up to `count_max` ids with the fields that their caller chose, all of one unit of time and one worker id. If
    /// `now_ms` goes back, the ids go on in the last unit of time.
    ///
    /// # Errors
    /// [`NotYet`] if there is no id at `now_ms`.
    #[inline]
    pub fn take(
        &mut self, now_ms: u64, mono_ns: u64, fixed: Fixed, count_max: u64,
    ) -> Result<Run, NotYet> {
        let (at_ms, lowest) = match now_ms < self.turn.next_ms {
            true => (self.turn.first_ms, self.turn.worker),
            false => (now_ms, 0),
        };
        let leases = self.leases.iter_mut();
        for lease in leases.skip_while(|lease| lease.held.worker < lowest) {
            if let Ok(run) = lease.generator.take(at_ms, fixed, count_max) {
                let (first_ms, next_ms) = lease.generator.unit();
                self.turn = Turn { first_ms, next_ms, worker: lease.held.worker };
                lease.used_ns = mono_ns;
                return Ok(run);
            }
        }
        Err(self.when(at_ms))
    }

    /// When there is an id, where the unit of time of `at_ms` has none.
    #[cold]
    fn when(&self, at_ms: u64) -> NotYet {
        let Some(any) = self.leases.first() else {
            return NotYet::Ceiling;
        };
        let next_ms = any.generator.unit_after(at_ms);
        let (mut soonest_ms, mut ends_at_ceiling) = (None, false);
        for lease in &self.leases {
            match lease.generator.when(next_ms) {
                NotYet::Until(ms) => {
                    soonest_ms = Some(soonest_ms.map_or(ms, |soonest: u64| soonest.min(ms)));
                }
                NotYet::Ceiling => ends_at_ceiling = true,
                NotYet::Ended => {}
            }
        }
        match soonest_ms {
            // A lease that begins late is no reason not to renew another one.
            Some(ms) if ms == next_ms || !ends_at_ceiling => NotYet::Until(ms),
            _ if ends_at_ceiling => NotYet::Ceiling,
            _ => NotYet::Ended,
        }
    }

    /// The greatest time in an id, in milliseconds since 1970; 0 if there is none. Also of a lease that was lost since.
    pub fn used_ms(&self) -> u64 {
        self.turn.first_ms
    }

    /// Adds a lease. One of the same worker id is over, and goes.
    pub fn join(&mut self, held: HeldWorker, generator: Generator, mono_ns: u64) {
        let joined = Lease { held, generator, used_ns: mono_ns };
        let place = |lease: &Lease| lease.held.worker;
        match self.leases.binary_search_by_key(&held.worker, place) {
            Ok(at) => self.leases[at] = joined,
            Err(at) => self.leases.insert(at, joined),
        }
    }

    /// Raises the ceiling of a lease, if it is still held.
    pub fn extend(&mut self, held: HeldWorker, ceiling_ms: u64) {
        if let Some(lease) = self.leases.iter_mut().find(|lease| lease.held == held) {
            lease.generator.extend(ceiling_ms);
        }
    }

    /// Takes a lease out. Returns it, with the greatest time in an id that was made under it (0 if there is none). `None` if
    /// it is not held.
    pub fn remove(&mut self, held: HeldWorker) -> Option<(HeldWorker, u64)> {
        let at = self.leases.iter().position(|lease| lease.held == held)?;
        let removed = self.leases.remove(at);
        if self.leases.is_empty() {
            // There is no order to keep: the next lease's times may lie below.
            self.turn = Turn::default();
        }
        Some(removed.given_up())
    }

    /// Takes all leases out, and returns them as [`Generators::remove`] does.
    pub fn clear(&mut self) -> Vec<(HeldWorker, u64)> {
        self.turn = Turn::default();
        let leases = self.leases.drain(..);
        leases.map(|lease| lease.given_up()).collect()
    }

    /// Takes the leases out under which ids were made.
    pub fn drop_used(&mut self) {
        self.leases.retain(|lease| lease.generator.used_ms() == 0);
        self.turn = Turn::default();
    }

    /// The lease with the greatest worker id of the leases that were of no use since `since_ns`. None if it is the only one.
    pub fn idle(&self, since_ns: u64) -> Option<HeldWorker> {
        if self.leases.len() < 2 {
            return None;
        }
        let mut leases = self.leases.iter().rev();
        let idle = leases.find(|lease| lease.used_ns < since_ns);
        idle.map(|lease| lease.held)
    }
}

#[cfg(test)]
mod tests;

//! Raises the floors of keys, of one or of many, or of whole sections.
//!
//! Every number up to the floor is taken, for nobody, as if a caller had asked for it: *then* the fence, then the
//! answer. So what holds for a range that a caller got holds for them: a caller that asks after the answer gets a greater
//! number, in this term, and in every later one, because the ceiling that is committed lies at the floor or above.

use tokio::time::Instant;

use super::{Term, Why};
use crate::{
    allocator::{
        floor::{FloorOf, Raised},
        memory::KEYS_AT_ONCE,
        outcome::{ManyUnserved, Unserved},
        section::answers::{RaiseAnswer, RaiseNewAnswer, RaisedLater},
    },
    laps::{self, Phase},
    planted_bugs::{Bug, is_planted},
    sequence::{Key, Namespace},
};

/// To raise a section may cost a walk over all slots of its shard. It counts as this many keys: after each section others get
/// their turn.
pub const SECTION_COUNTS: usize = KEYS_AT_ONCE;

impl Term {
    /// Raises the floor of a key to `at_least` (at least 1), unless it is there or higher: every number that is handed
    /// out later is greater.
    ///
    /// # Errors
    /// [`Why::AboveMax`] if `at_least` is above the namespace's `max`, [`Why::OverKeysMax`] if the key is new and the
    /// namespace has `keys_max` keys; otherwise as [`Term::next`].
    pub async fn raise(
        &self, namespace: &Namespace, key: Key<'_>, at_least: u64, deadline: Instant,
    ) -> Result<Raised, Unserved> {
        let _inside = self.enter()?;
        let answer = self.begin_to_raise(namespace, (FloorOf::Key, key), at_least);
        let raised = self.raised_in_time(answer, deadline).await?;
        self.fenced(namespace, raised, deadline).await
    }

    /// Raises the floor of a key to `at_least` (at least 1) if no number of it was ever handed out, and its floor was never
    /// raised. Otherwise answers its last number, and that nothing was raised. Its section must be its own.
    ///
    /// # Errors
    /// [`Why::AboveMax`] if `at_least` is above the namespace's `max`, [`Why::OverKeysMax`] if the key is new and the namespace
    /// has `keys_max` keys; otherwise as for any number ([`Term::next`]).
    pub async fn raise_new(
        &self, namespace: &Namespace, key: Key<'_>, at_least: u64, deadline: Instant,
    ) -> Result<Raised, Unserved> {
        assert!(!namespace.config.shares_sections(), "its ceiling tells nothing of one key");
        let _inside = self.enter()?;
        let raised = loop {
            let (answer, need) = self.memory.raise_new(namespace, key, at_least);
            if let Some(need) = need {
                self.ask_for(need);
            }
            match answer {
                RaiseNewAnswer::Unknown(later) => {
                    self.raised_in_time(RaiseAnswer::Later(later), deadline).await?;
                }
                RaiseNewAnswer::Known(answer) => {
                    break self.raised_in_time(answer, deadline).await?;
                }
            }
        };
        self.fenced(namespace, raised, deadline).await
    }

    /// The new floor of a key, once it is raised.
    async fn raised_in_time(
        &self, answer: RaiseAnswer, deadline: Instant,
    ) -> Result<Raised, Unserved> {
        let later = match answer {
            RaiseAnswer::Done(raised) => return Ok(raised?),
            RaiseAnswer::Later(later) => later,
        };
        let raised = Box::pin(self.in_time(later, deadline)).await;
        Ok(raised.map_err(|why| Unserved { why, may_be_done: 1 })??)
    }

    /// The new floor of a key, as its caller is told it: after the check of the fence, as in `next`.
    async fn fenced(
        &self, namespace: &Namespace, raised: Raised, deadline: Instant,
    ) -> Result<Raised, Unserved> {
        let passed = self.pass_fence_with_nothing(namespace, deadline).await;
        passed.map_err(|why| Unserved { why, may_be_done: 1 })?;
        Ok(within_numbers(raised, namespace))
    }

    /// Raises `count` floors, either all of keys or all of sections, with one check of the fence. `ask` says for each place
    /// which key it is, and what the floor is to be at least (at least 1). Answers the floors in force, in the order of the
    /// places.
    ///
    /// With [`FloorOf::Section`] all keys of a section, asked for or not, go on above the floor. The namespace must be one
    /// of shared sections.
    ///
    /// `may_wait` is asked as in [`Term::next_many`].
    ///
    /// # Errors
    /// As [`Term::raise`], for all together, and [`ManyUnserved::MayNotWait`]; with how many of the floors, from the first
    /// one on, may be raised all the same.
    pub async fn raise_many<'k, R>(
        &self, namespace: &Namespace, floors: (FloorOf, usize),
        ask: impl Fn(usize) -> (Key<'k>, u64), may_wait: impl FnMut(usize) -> Result<(), R>,
        deadline: Instant,
    ) -> Result<Vec<u64>, (ManyUnserved<R>, usize)> {
        let mut begun = 0;
        let raised = self.raise_each(namespace, floors, ask, may_wait, deadline, &mut begun).await;
        raised.map_err(|unserved| (unserved, begun))
    }

    /// As [`Term::raise_many`]. The first `begun` of the floors may be raised in any case.
    async fn raise_each<'k, R>(
        &self, namespace: &Namespace, (of, count): (FloorOf, usize),
        ask: impl Fn(usize) -> (Key<'k>, u64), mut may_wait: impl FnMut(usize) -> Result<(), R>,
        deadline: Instant, begun: &mut usize,
    ) -> Result<Vec<u64>, ManyUnserved<R>> {
        let _inside = self.enter()?;
        let mut floors = vec![0; count];
        let (mut waiting, mut work, mut told) = (Vec::new(), 0, 0);
        let mut full = None;
        for (place, floor) in floors.iter_mut().enumerate() {
            let (key, at_least) = ask(place);
            match self.begin_to_raise(namespace, (of, key), at_least) {
                RaiseAnswer::Done(Err(error @ Why::MemoryFull { .. })) => {
                    full = Some(error);
                    break;
                }
                RaiseAnswer::Done(raised) => *floor = within_numbers(raised?, namespace).floor,
                RaiseAnswer::Later(later) => waiting.push((place, later)),
            }
            *begun = place + 1;
            work += match of {
                FloorOf::Key => 1,
                FloorOf::Section => SECTION_COUNTS,
            };
            if work >= KEYS_AT_ONCE {
                work = 0;
                may_wait(waiting.len() - told).map_err(ManyUnserved::MayNotWait)?;
                told = waiting.len();
                tokio::task::yield_now().await;
                laps::lap(Phase::Queue);
                // A caller that asks again raises the rest.
                if self.memory.gate().is_closed() {
                    return Err(Why::AskLeader.into());
                }
            }
        }
        may_wait(waiting.len() - told).map_err(ManyUnserved::MayNotWait)?;
        for (place, later) in waiting {
            match Box::pin(self.raised_later(later, deadline)).await {
                Ok(raised) => floors[place] = within_numbers(raised, namespace).floor,
                // There is no room for these either.
                Err(Why::DeadlineExceeded) if full.is_some() => break,
                Err(error) => return Err(error.into()),
            }
        }
        // Not before the others are raised: who asks again gets further.
        if let Some(full) = full {
            return Err(full.into());
        }
        // Not earlier: if a successor answered before the floors were raised, the fence fails now.
        self.pass_fence_with_nothing(namespace, deadline).await?;
        Ok(floors)
    }

    /// Raises a floor if this term has the numbers, or waits for them behind the calls that came before.
    fn begin_to_raise(
        &self, namespace: &Namespace, of: (FloorOf, Key<'_>), at_least: u64,
    ) -> RaiseAnswer {
        let (answer, need) = self.memory.raise(namespace, of, at_least);
        if let Some(need) = need {
            self.ask_for(need);
        }
        match answer {
            RaiseAnswer::Later(_) if is_planted(Bug::RaiseBeforeCommit) => {
                RaiseAnswer::Done(Ok(Raised { floor: at_least, is_higher: true, passed: 0 }))
            }
            answer => answer,
        }
    }

    /// Waits until a floor is raised.
    pub(super) async fn raised_later(
        &self, later: RaisedLater, deadline: Instant,
    ) -> Result<Raised, Why> {
        self.in_time(later, deadline).await?
    }
}

/// The floor as callers are told it: a ceiling that it comes from may lie above all numbers that could be handed out.
fn within_numbers(raised: Raised, namespace: &Namespace) -> Raised {
    Raised {
        floor: raised.floor.min(namespace.greatest_number().max(namespace.config.max)),
        ..raised
    }
}

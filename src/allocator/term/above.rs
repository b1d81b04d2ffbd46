//! Takes numbers above a floor that the caller's clock moves on: the numbers of ids that hold a time.

use tokio::time::Instant;

use super::{Term, Why};
use crate::{
    allocator::{
        floor::Floor,
        held_numbers::HeldNumbers,
        section::answers::{AboveAnswer, TakeAnswer},
    },
    sequence::{Key, Namespace, Range},
};

/// The answer to a call for numbers above a floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Above {
    /// Numbers.
    Numbers(Range),
    /// None: `count_of` answered 0. Whether this node leads was not checked.
    None {
        /// The last number of the key that was handed out, or passed over.
        last: u64,
    },
}

impl Term {
    /// Raises a key above `floor` (at least 1; it may reach further), and takes as many of its next numbers as `count_of`
    /// says, given the last number before them. No other call takes numbers of the key in between. `count_of` may be asked
    /// several times; only the numbers of the last time are taken.
    ///
    /// The numbers that are handed out lie further up than `count_of` was told if they come from a chunk that is not adjacent
    /// to the one before, or the namespace begins further up.
    ///
    /// # Errors
    /// As [`Term::next`], and [`Why::AboveMax`] if `floor` is above the namespace's `max`. The floor may be raised all
    /// the same.
    pub async fn next_above(
        &self, namespace: &Namespace, key: Key<'_>, floor: Floor, count_of: impl Fn(u64) -> u64,
        deadline: Instant,
    ) -> Result<Above, Why> {
        assert!(!namespace.config.gapless, "a chunk would leave a gap");
        let _inside = self.enter()?;
        loop {
            let (answer, need) = self.memory.take_above(namespace, key, floor, &count_of);
            if let Some(need) = need {
                self.ask_for(need);
            }
            let (count, answer) = match answer {
                AboveAnswer::Later(later) => {
                    Box::pin(self.raised_later(later, deadline)).await?;
                    continue;
                }
                AboveAnswer::Refused(why) => return Err(why),
                AboveAnswer::None { last } => return Ok(Above::None { last }),
                AboveAnswer::Numbers { count, answer } => (count, answer),
            };
            let taken = match answer {
                TakeAnswer::Done(taken) => taken,
                TakeAnswer::Later(later) => Box::pin(self.wait(later, deadline)).await?,
            };
            let counts = self.counts(namespace);
            let held = HeldNumbers::new(&*counts, if taken.is_ok() { count } else { 0 });
            // Not earlier: if a successor answered before the numbers were taken, the fence fails now.
            self.pass_fence(namespace, held, taken.is_ok().into(), deadline).await?;
            let range = taken?;
            self.hot_keys.note(namespace, key, count);
            return Ok(Above::Numbers(range));
        }
    }
}

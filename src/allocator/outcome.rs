//! The outcome of a call: numbers, or the reason for none, and whether it may be done all the same.
//!
//! A call that fails with a [`Why`] has done nothing. One that may have done a part of what it was asked for fails with
//! [`Unserved`], which says how much. One for many keys that may not wait fails with [`ManyUnserved`].

use crate::{
    sequence::{IdsFull, OwnedKey, Range, SkippedBy},
    storage::{LowDisk, StoreError},
};

/// Why a call, or a key of it, gets nothing. Large contents are boxed: `Result<Range, Why>` is on the way of every number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Ask the node that leads, which may be this one again. The term is over, its lease has run out for now, or the namespace
    /// was deleted or replaced meanwhile. Callers do not have to tell these apart.
    #[error("the node that leads is to be asked")]
    AskLeader,
    /// Of a key of a message whose other keys may have numbers: the term was closed before its turn, or while it waited.
    /// It gets nothing here: the next leader has its numbers. If the message has the key several times, the places behind the
    /// first one that is left get nothing either, and the numbers that they took are counted as skipped.
    #[error("the key is left to the next leader")]
    LeftToNextLeader,
    /// The caller's deadline passed before the numbers were there.
    #[error("the deadline passed")]
    DeadlineExceeded,
    /// Too few are left under the namespace's `max`.
    #[error("only {left} numbers are left below the namespace's max")]
    Exhausted {
        /// How many are left.
        left: u64,
    },
    /// The key's section is new, and the namespace has as many keys as it may have.
    #[error("the namespace has {keys_max} keys already")]
    OverKeysMax {
        /// The namespace's `keys_max`.
        keys_max: u64,
    },
    /// The key is new to the term, and the memory has no room for it, nor for one more that waits.
    #[error("the leader's memory of {max_mb} MB is full")]
    MemoryFull {
        /// How large the memory may be, in megabytes (2^20 bytes).
        max_mb: u64,
    },
    /// The key's section is new, and disks are low.
    #[error("{0}")]
    LowDisk(LowDisk),
    /// The floor lies above the namespace's `max`.
    #[error("the floor is above the namespace's max {max}")]
    AboveMax {
        /// The namespace's `max`.
        max: u64,
    },
    /// So many numbers may not be taken at once. Gapless keys alone.
    #[error("a call may take {count_max} numbers of a key")]
    TooLarge {
        /// The most that could be when they were asked for first.
        count_max: u64,
    },
    /// An earlier try of the message gave none to any key of its part. Gapless keys alone.
    #[error("an earlier try of the message left the key out")]
    LeftOut,
    /// The request id was used for another request; for which one, unless that took nothing.
    #[error("the request id was used for other keys or counts")]
    Reused(Option<Box<UsedId>>),
    /// Nothing more can be remembered under request ids for the caller, or for the namespace.
    #[error("{} bytes of request ids are remembered", .0.held)]
    IdsFull(Box<IdsFull>),
    /// The message was made so long ago that its request id may be forgotten, or later than now.
    #[error("the message is older than its request id is remembered, or was made later than now")]
    IdExpired {
        /// When it was made, by the clock of request ids.
        made_ms: u64,
        /// The reading of the clock of request ids.
        clock_ms: u64,
    },
    /// The applied table cannot be read, as this text of the store says.
    #[error("{0}")]
    Unreadable(Box<str>),
}

/// The request that a request id was used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedId {
    /// How many keys it was used for.
    pub keys: u64,
    /// The first of them.
    pub key: OwnedKey,
    /// How many numbers of that key it was used for.
    pub count: u64,
}

impl Why {
    /// Why numbers that were taken before this count as skipped.
    pub fn skipped_by(&self) -> SkippedBy {
        match self {
            Why::DeadlineExceeded => SkippedBy::Deadline,
            Why::AskLeader
            | Why::LeftToNextLeader
            | Why::Exhausted { .. }
            | Why::OverKeysMax { .. }
            | Why::MemoryFull { .. }
            | Why::LowDisk(_)
            | Why::AboveMax { .. }
            | Why::TooLarge { .. }
            | Why::LeftOut
            | Why::Reused(_)
            | Why::IdsFull(_)
            | Why::IdExpired { .. }
            | Why::Unreadable(_) => SkippedBy::Fence,
        }
    }
}

impl From<StoreError> for Why {
    fn from(error: StoreError) -> Self {
        Why::Unreadable(error.to_string().into())
    }
}

/// The outcome of a call that got nothing, and that may be done in part.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Unserved {
    /// Why it got nothing.
    pub why: Why,
    /// The places before this one may be done all the same. Nothing was done of the others.
    pub may_be_done: usize,
}

impl From<Why> for Unserved {
    /// Nothing was done.
    fn from(why: Why) -> Self {
        Unserved { why, may_be_done: 0 }
    }
}

/// The outcome of a call for many keys that was not served.
#[derive(Debug)]
pub enum ManyUnserved<R> {
    /// Keys would have to wait. The code that made the call says that they may not, and with `R` why.
    MayNotWait(R),
    /// The term has another reason.
    Why(Why),
}

impl<R> From<Why> for ManyUnserved<R> {
    fn from(why: Why) -> Self {
        ManyUnserved::Why(why)
    }
}

/// The answer to a message that asks for numbers of many keys.
#[derive(Debug)]
pub struct ManyNumbers {
    /// The first number of each key, in the order of the keys. 0 for a key that got none.
    pub firsts: Vec<u64>,
    /// The keys that got none, by the reason.
    pub refused: Vec<RefusedPlaces>,
}

/// The keys of a message that got no numbers for one reason.
#[derive(Debug, PartialEq, Eq)]
pub struct RefusedPlaces {
    /// Why. Of keys whose numbers are used up: of one of them.
    pub why: Why,
    /// The place of each of them, and how many numbers it has left if its numbers are used up, else 0.
    pub places: Vec<(usize, u64)>,
}

impl ManyNumbers {
    /// No key of `keys` has any yet.
    pub(super) fn of(keys: usize) -> Self {
        ManyNumbers { firsts: vec![0; keys], refused: Vec::new() }
    }

    /// How many of the keys got none.
    pub(super) fn refused(&self) -> usize {
        self.refused.iter().map(|refused| refused.places.len()).sum()
    }

    /// Notes what the key at `place` got, and returns how many numbers that is. Inlined, as `Shard::take_fast`.
    #[inline(always)]
    pub(super) fn note(&mut self, place: usize, taken: Result<Range, Why>, count: u64) -> u64 {
        match taken {
            Ok(range) => {
                self.firsts[place] = range.first;
                count
            }
            Err(why) => {
                self.refuse(place, why);
                0
            }
        }
    }

    /// Notes why the key at `place` gets none.
    #[cold]
    pub(super) fn refuse(&mut self, place: usize, why: Why) {
        let left = match why {
            Why::Exhausted { left } => left,
            _ => 0,
        };
        let kind = std::mem::discriminant(&why);
        match self.refused.iter_mut().find(|one| std::mem::discriminant(&one.why) == kind) {
            Some(refused) => refused.places.push((place, left)),
            None => self.refused.push(RefusedPlaces { why, places: vec![(place, left)] }),
        }
    }

    /// Takes out those that got none for this reason.
    pub fn take_out(&mut self, is_meant: impl Fn(&Why) -> bool) -> Option<RefusedPlaces> {
        let found = self.refused.iter().position(|refused| is_meant(&refused.why))?;
        Some(self.refused.remove(found))
    }

    /// Brings the places of each reason in order.
    pub(super) fn sort(&mut self) {
        self.refused.iter_mut().for_each(|refused| refused.places.sort_unstable());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::section::answers::TakeAnswer;

    #[test]
    fn a_reason_takes_no_more_room_than_numbers_do() {
        assert_eq!(size_of::<Why>(), size_of::<Range>());
        assert_eq!(size_of::<Result<Range, Why>>(), size_of::<Range>() + size_of::<u64>());
        assert_eq!(size_of::<Result<Range, Unserved>>(), size_of::<Result<Range, Why>>());
        assert_eq!(size_of::<Result<(), Why>>(), size_of::<Why>());
        assert_eq!(size_of::<TakeAnswer>(), size_of::<Result<Range, Why>>());
    }

    #[test]
    fn keys_without_numbers_are_grouped_by_the_reason_and_keep_what_each_has_left() {
        let mut many = ManyNumbers::of(6);
        let range = Range { first: 7, last: 9, increment: 1 };
        assert_eq!(many.note(2, Ok(range), 3), 3);
        for (place, why) in [
            (4, Why::Exhausted { left: 5 }),
            (0, Why::LeftToNextLeader),
            (1, Why::Exhausted { left: 2 }),
            (3, Why::OverKeysMax { keys_max: 9 }),
        ] {
            assert_eq!(many.note(place, Err(why), 3), 0);
        }
        many.sort();
        assert_eq!((&many.firsts[..], many.refused()), (&[0, 0, 7, 0, 0, 0][..], 4));
        let exhausted = many.take_out(|why| matches!(why, Why::Exhausted { .. })).unwrap();
        assert_eq!(exhausted.places, [(1, 2), (4, 5)]);
        let late = many.take_out(|why| *why == Why::LeftToNextLeader).unwrap();
        assert_eq!(late.places, [(0, 0)]);
        let over = RefusedPlaces { why: Why::OverKeysMax { keys_max: 9 }, places: vec![(3, 0)] };
        assert_eq!(many.refused, [over]);
    }
}

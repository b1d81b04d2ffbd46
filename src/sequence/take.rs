//! Taking numbers of a gapless key: the log says which numbers were taken, not up to where they may be.
//!
//! The record of such a section has the last number taken as its ceiling and its floor, and a step of 0. So a lift
//! gives nothing of it, there is nothing to settle, to trim or to inherit, and a change of the leader skips nothing.

use serde::{Deserialize, Serialize};

use super::{
    ids::{NamespaceId, SectionKey},
    progression::{Progression, Range},
    request_id::PartId,
    section::SectionRecord,
};

/// What one message takes, or a part of it: one entry takes all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagePart {
    /// The namespace of the keys.
    pub namespace: NamespaceId,
    /// What the caller calls it. If that is known, what was taken the first time is the answer.
    pub id: Option<PartId>,
    /// When the message was made, by the table's clock. A copy of it that comes when its id may be forgotten takes nothing.
    pub made_ms: Option<u64>,
    /// The checksum of all that the message takes, if it has an id and several parts. So the first part tells whether the id
    /// was used for another message, before anything is taken.
    pub whole: Option<u32>,
    /// What it takes, in this order.
    pub takes: Vec<Take>,
}

/// Take the next numbers of a gapless key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Take {
    /// The key, which has a section of its own.
    pub section: SectionKey,
    /// How many numbers. At least 1.
    pub count: u64,
}

/// The answer to a part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartTaken {
    /// An answer for each take, in order.
    Taken(Vec<Taken>),
    /// As before: an earlier entry took this, under the same id.
    Repeated(Vec<Taken>),
    /// The id was used for another message.
    Reused(Used),
    /// Nothing more can be remembered.
    IdsFull {
        /// How many bytes are, at most.
        bytes_max: u64,
    },
    /// There is no gapless namespace with that id.
    NoNamespace,
    /// The message was made so long ago that its id may be forgotten, or later than now.
    Expired {
        /// When it was made.
        made_ms: u64,
        /// What the table's clock shows.
        clock_ms: u64,
    },
}

/// What a request id was used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// How many keys that part of the message had.
    pub keys: u64,
    /// The first of them.
    pub first: Take,
}

/// The leader's disk is low, so that keys without a record take nothing. In megabytes (2^20 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoRoom {
    /// How much is free.
    pub free_mb: u32,
    /// How much should be.
    pub reserve_mb: u32,
}

/// The answer to one take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Taken {
    /// The numbers are the caller's.
    Range(Range),
    /// Too few numbers are left.
    Exhausted {
        /// How many are left.
        left: u64,
    },
    /// The key is new, and there is no room for it.
    NoRoom(NoRoom),
    /// The key is new, and the namespace has as many keys as it may have.
    OverQuota {
        /// The namespace's `keys_max` when the take was applied.
        keys_max: u64,
    },
    /// The count is greater than it may be.
    TooLarge {
        /// The most that a count could be when the take was applied.
        count_max: u64,
    },
}

impl SectionRecord {
    /// Takes the next `count` numbers.
    ///
    /// # Errors
    /// How many numbers are left, if those are too few.
    pub fn take(
        self, progression: Progression, lift: u64, count: u64,
    ) -> Result<(Self, Range), u64> {
        let last = self.ceiling_at(lift, progression.increment);
        let left = progression.count_between(last, progression.max);
        let range = progression.range_above(last, count.max(1)).ok_or(left)?;
        let record = SectionRecord {
            max_seq: range.last,
            floor: range.last,
            lift,
            step: 0,
            unused_max: 0,
            skipped: self.skipped_at(progression, lift),
            written_ms: self.written_ms,
        };
        Ok((record, range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::NUMBER_MAX;

    fn progression(max: u64) -> Progression {
        Progression { start: 100, increment: 10, max }
    }

    #[test]
    fn takes_follow_one_another_without_a_gap_whatever_lifts_come_between() {
        let mut record = SectionRecord::default();
        let mut expected = 100;
        for (lift, count) in [(1, 1), (1, 3), (2, 1), (9, 2), (9, 1)] {
            let (after, range) = record.take(progression(NUMBER_MAX), lift, count).unwrap();
            assert_eq!(range.first, expected);
            assert_eq!(range.last, expected + (count - 1) * 10);
            expected = range.last + 10;
            record = after;
        }
        // A lift gives nothing, there is nothing to settle, and a trim takes nothing back.
        assert_eq!(record.lifted(progression(NUMBER_MAX), 10), None);
        assert_eq!(record.settle(progression(NUMBER_MAX), 10), None);
        assert_eq!(record.trim(progression(NUMBER_MAX), 9, 0).unwrap().max_seq, record.max_seq);
        assert_eq!(record.ceiling_at(99, 10), record.max_seq);
        assert_eq!(record.floor_at(99, 10), record.max_seq);
    }

    #[test]
    fn a_take_beyond_the_max_takes_nothing_and_says_what_is_left() {
        let (record, _) = SectionRecord::default().take(progression(139), 1, 2).unwrap();
        assert_eq!(record.take(progression(139), 1, 3), Err(2));
        let (record, range) = record.take(progression(139), 1, 2).unwrap();
        assert_eq!((range.first, range.last), (120, 130));
        assert_eq!(record.take(progression(139), 1, 1), Err(0));
        let wide = Progression { start: NUMBER_MAX, increment: NUMBER_MAX, max: NUMBER_MAX };
        let (record, _) = SectionRecord::default().take(wide, 1, 1).unwrap();
        assert_eq!(record.take(wide, 1, u64::MAX), Err(0));
    }
}

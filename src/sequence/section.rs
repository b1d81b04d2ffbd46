//! A section's record, and the arithmetic of its ceiling `max_seq`: bump, trim, raise.
//!
//! Invariant: `floor <= max_seq`, and `max_seq` falls only by a trim of the term that owns what lies
//! above the floor.

use serde::{Deserialize, Serialize};

use super::progression::{NUMBER_MAX, Progression};

/// A section's record in the replicated table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SectionRecord {
    /// The ceiling. No number above it was handed out.
    pub max_seq: u64,
    /// What `max_seq` was when `term` first bumped it. Numbers up to here may belong to earlier terms.
    pub floor: u64,
    /// The term that last bumped the section. 0 if none did.
    pub term: u64,
    /// How many numbers were unused at most after the last bump. A crash can skip as many.
    pub unused_max: u64,
}

/// The numbers above `old`, up to and including `new`. They belong to the proposer of the bump alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// The ceiling before the bump.
    pub old: u64,
    /// The ceiling after it.
    pub new: u64,
    /// How many numbers the term before may have left unused, at most. 0 for further bumps of the same
    /// term, and after a trim.
    pub left: u64,
}

/// No number is left under the namespace's `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exhausted;

impl SectionRecord {
    /// Raises the ceiling by `numbers` (at least 1) numbers for `term`, which then has at most
    /// `unused_max` unused. If fewer are left, the chunk is smaller.
    ///
    /// # Errors
    /// [`Exhausted`] if not one number is left.
    pub fn bump(
        self,
        progression: Progression,
        term: u64,
        numbers: u64,
        unused_max: u64,
    ) -> Result<(Self, Chunk), Exhausted> {
        let old = self.max_seq;
        let first = progression.first_above(old).ok_or(Exhausted)?;
        let new = progression
            .range_above(old, numbers.max(1))
            .map_or(progression.last_at_or_below(progression.max), |range| {
                range.last
            })
            .max(first);
        let left = if self.term == term {
            0
        } else {
            let of_the_term = progression.count_between(self.floor, self.max_seq);
            of_the_term.min(self.unused_max)
        };
        let record = SectionRecord {
            max_seq: new,
            floor: if self.term == term { self.floor } else { old },
            term,
            unused_max,
        };
        debug_assert!(old < new && new <= progression.max, "{old} to {new}");
        debug_assert!(record.floor <= old, "{record:?}");
        Ok((record, Chunk { old, new, left }))
    }

    /// Lowers the ceiling to `used`, the greatest number that `term` took, answered or not, so that the rest of its
    /// chunks can be handed out later. Never goes below the floor: earlier terms may have used what lies
    /// there. `None`, and no change, if `term` does not own the chunks.
    pub fn trim(self, term: u64, used: u64) -> Option<Self> {
        if self.term != term || used > self.max_seq {
            return None;
        }
        let max_seq = used.max(self.floor);
        debug_assert!(max_seq <= self.max_seq, "a trim never raises: {self:?}");
        Some(SectionRecord {
            max_seq,
            // A second trim of the same term cannot take back what this one said was used.
            floor: max_seq,
            term,
            unused_max: 0,
        })
    }

    /// Raises the ceiling by `distance`, because nobody knows any more which of the numbers below were
    /// handed out. No term can lower it again.
    pub fn raised(self, distance: u64) -> Self {
        let max_seq = self.max_seq.saturating_add(distance).min(NUMBER_MAX);
        SectionRecord {
            max_seq,
            floor: max_seq,
            term: self.term,
            unused_max: 0,
        }
    }

    /// The last number of the section that a term other than `term` may have handed out.
    pub fn used_before(self, term: u64) -> u64 {
        if self.term == term {
            self.floor
        } else {
            self.max_seq
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONES: Progression = Progression {
        start: 1,
        increment: 1,
        max: NUMBER_MAX,
    };

    #[test]
    fn chunks_of_one_term_are_adjacent_and_those_of_the_next_lie_above() {
        let (record, first) = SectionRecord::default()
            .bump(ONES, 3, 10_000, 10_000)
            .unwrap();
        let (record, second) = record.bump(ONES, 3, 10_000, 10_000).unwrap();
        assert_eq!((first.old, first.new), (0, 10_000));
        assert_eq!((second.old, second.new), (10_000, 20_000));
        assert_eq!(record.floor, 0);
        let (record, third) = record.bump(ONES, 4, 10_000, 10_000).unwrap();
        assert_eq!((third.old, third.new), (20_000, 30_000));
        assert_eq!((record.floor, record.term), (20_000, 4));
        assert_eq!((first.left, second.left, third.left), (0, 0, 10_000));
    }

    #[test]
    fn a_lost_term_may_have_left_as_many_numbers_as_its_last_bump_said() {
        let (record, _) = SectionRecord::default()
            .bump(ONES, 3, 10_000, 10_000)
            .unwrap();
        let (record, _) = record.bump(ONES, 3, 1_000_000, 1_000_400).unwrap();
        let (record, chunk) = record.bump(ONES, 4, 10_000, 10_000).unwrap();
        assert_eq!(chunk.left, 1_000_400);
        let (_, chunk) = record.bump(ONES, 5, 10_000, 10_000).unwrap();
        assert_eq!(chunk.left, 10_000);
    }

    #[test]
    fn a_trim_returns_unused_numbers_if_the_term_owns_them() {
        let (record, _) = SectionRecord::default()
            .bump(ONES, 3, 10_000, 10_000)
            .unwrap();
        assert_eq!(record.trim(4, 17), None, "another term");
        assert_eq!(record.trim(3, 10_001), None, "more than it was given");
        let trimmed = record.trim(3, 17).unwrap();
        assert_eq!(trimmed.max_seq, 17);
        assert_eq!(trimmed.trim(3, 5).unwrap().max_seq, 17, "said to be used");
        let (_, next) = trimmed.bump(ONES, 4, 10_000, 10_000).unwrap();
        assert_eq!((next.old, next.left), (17, 0));
    }

    #[test]
    fn a_trim_stops_at_the_floor_which_earlier_terms_may_have_used() {
        let (record, _) = SectionRecord::default().bump(ONES, 3, 100, 100).unwrap();
        let (record, _) = record.bump(ONES, 4, 100, 100).unwrap();
        assert_eq!(record.trim(4, 0).unwrap().max_seq, 100);
    }

    #[test]
    fn a_raised_ceiling_is_not_lowered_by_a_trim() {
        let (record, _) = SectionRecord::default().bump(ONES, 3, 100, 100).unwrap();
        let raised = record.raised(1_000);
        assert_eq!(raised.max_seq, 1_100);
        assert_eq!(raised.trim(3, 50).unwrap().max_seq, 1_100);
        let (_, next) = raised.bump(ONES, 4, 10, 10).unwrap();
        assert_eq!((next.old, next.new, next.left), (1_100, 1_110, 0));
        assert_eq!(raised.raised(u64::MAX).max_seq, NUMBER_MAX);
    }

    #[test]
    fn the_last_chunk_ends_at_the_max_and_then_the_section_is_exhausted() {
        let tens = Progression {
            start: 10,
            increment: 10,
            max: 55,
        };
        let (record, chunk) = SectionRecord::default().bump(tens, 1, 3, 3).unwrap();
        assert_eq!(chunk.new, 30);
        let (record, chunk) = record.bump(tens, 1, 3, 3).unwrap();
        assert_eq!((chunk.old, chunk.new), (30, 50));
        assert_eq!(record.bump(tens, 1, 1, 1), Err(Exhausted));
    }

    proptest! {
        /// The heart of the promise: in any order of bumps and trims, no two chunks that were used
        /// overlap, and chunks of later terms lie above all numbers used before.
        #[test]
        fn used_numbers_never_repeat(
            steps in prop::collection::vec((1u64..5, 1u64..50, 0u64..60, any::<bool>()), 1..60)
        ) {
            let mut record = SectionRecord::default();
            let mut term = 1;
            let mut used_by_all = 0u64; // the greatest number handed out by any term
            let mut owned: Option<(u64, u64)> = None; // of this term: used, ceiling
            for (advance, numbers, take, graceful) in steps {
                if advance == 1 {
                    if graceful && let Some((used, _)) = owned {
                        record = record.trim(term, used).unwrap();
                        prop_assert!(record.max_seq >= used_by_all);
                    }
                    term += 1;
                    owned = None;
                }
                let (after, chunk) = record.bump(ONES, term, numbers, numbers).unwrap();
                record = after;
                let (used, _) = owned.unwrap_or((chunk.old, chunk.old));
                prop_assert!(chunk.old >= used_by_all);
                let used = (used + take).min(chunk.new);
                owned = Some((used, chunk.new));
                used_by_all = used_by_all.max(used);
                prop_assert!(record.max_seq >= used_by_all);
            }
        }
    }
}

//! Ranges of ids: rows that stand for whole sections.

use crate::server::written::integer;

/// How many sections a row stands for at most.
const ROW_SECTIONS_MAX: u64 = 1_000_000;

/// Some neighbouring ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdRange {
    /// The first one.
    pub first: u64,
    /// The last one.
    pub last: u64,
}

impl std::fmt::Display for IdRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl IdRange {
    /// The range that a text is, `first-last`.
    pub fn of(text: &[u8]) -> Option<IdRange> {
        let hyphen = text.iter().position(|byte| *byte == b'-')?;
        let (first, last) = (integer(&text[..hyphen])?, integer(&text[hyphen + 1..])?);
        Some(IdRange { first, last })
    }

    /// The sections of `size` ids that it is made of.
    pub fn sections(self, size: u64) -> impl Iterator<Item = IdRange> {
        (self.first / size..=self.last / size).map(move |number| IdRange {
            first: number * size,
            last: (number * size).saturating_add(size - 1),
        })
    }

    /// How many sections of `size` ids it is made of.
    pub fn count(self, size: u64) -> u64 {
        self.last / size - self.first / size + 1
    }

    /// Checks that it is made of whole sections of a namespace, of `size` ids each.
    ///
    /// # Errors
    /// A text that says what is wrong with it, and what to do.
    pub fn check(self, namespace: &str, size: u64) -> Result<(), String> {
        let IdRange { first, last } = self;
        if first > last {
            return Err(format!("the range {self} begins after its end; a range is first-last"));
        }
        // The last section of all may be shorter.
        let after = last.checked_add(1);
        let is_whole = |end: u64| end.is_multiple_of(size);
        if !is_whole(first) || !after.is_none_or(is_whole) {
            let ids = u128::from(last - first) + 1;
            let ends = match after {
                Some(after) => format!("{first} and {after}"),
                None => first.to_string(),
            };
            return Err(format!(
                "the range {self} has {ids} ids, which are no whole sections of namespace {namespace:?}: its sections have \
                 {size} ids, and begin at multiples of that; create it with a --section-size that divides {ends}"
            ));
        }
        let sections = self.count(size);
        if sections > ROW_SECTIONS_MAX {
            return Err(format!(
                "the range {self} has {sections} sections of namespace {namespace:?}; a row has {ROW_SECTIONS_MAX} at \
                 most: write several rows"
            ));
        }
        Ok(())
    }
}

/// A range, and its line.
pub type Ranged = (IdRange, u64);

/// A range that overlaps another one, which is on an earlier line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// The range.
    pub range: Ranged,
    /// The other one.
    pub other: Ranged,
}

impl std::fmt::Display for Overlap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ((range, _), (other, on)) = (self.range, self.other);
        write!(f, "the range {range} overlaps {other}, which is on line {on}")
    }
}

/// Sorts ranges, and says which of them overlap one that begins before or with them, in the order of their lines.
pub fn overlaps(ranges: &mut [Ranged]) -> Vec<Overlap> {
    ranges.sort_unstable();
    let mut found = Vec::new();
    let mut widest: Option<Ranged> = None;
    for ranged in ranges.iter().copied() {
        if let Some(before) = widest.filter(|(before, _)| ranged.0.first <= before.last) {
            let (range, other) = match ranged.1 > before.1 {
                true => (ranged, before),
                false => (before, ranged),
            };
            found.push(Overlap { range, other });
        }
        if widest.is_none_or(|(before, _)| ranged.0.last > before.last) {
            widest = Some(ranged);
        }
    }
    found.sort_unstable_by_key(|overlap| (overlap.range.1, overlap.other));
    found
}

/// The range that an id is in. `ranges` are sorted as by [`overlaps`]. Of ranges that overlap, which refuses the file, the
/// one that begins last is looked at.
pub fn around(ranges: &[Ranged], id: u64) -> Option<Ranged> {
    let after = ranges.partition_point(|(range, _)| range.first <= id);
    let before = ranges[..after].last()?;
    (id <= before.0.last).then_some(*before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64) -> IdRange {
        IdRange { first, last }
    }

    #[test]
    fn a_range_is_two_integers_with_a_hyphen_between_them() {
        assert_eq!(IdRange::of(b"0-99"), Some(range(0, 99)));
        let end = range(7, u64::MAX);
        assert_eq!(IdRange::of(end.to_string().as_bytes()), Some(end));
        for text in ["", "-", "5", "5-", "-5", "1-2-3", "+1-2", " 1-2", "1-99999999999999999999"] {
            assert_eq!(IdRange::of(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn the_last_section_of_all_may_be_shorter_than_the_others() {
        let first = u64::MAX / 1_000 * 1_000;
        let mut sections = range(first, u64::MAX).sections(1_000);
        assert_eq!(sections.next(), Some(range(first, u64::MAX)));
        assert_eq!(sections.next(), None);
        let two: Vec<IdRange> = range(20, 39).sections(10).collect();
        assert_eq!(two, [range(20, 29), range(30, 39)]);
        assert_eq!(range(20, 39).count(10), 2);
    }

    #[test]
    fn ranges_that_overlap_are_told_with_both_lines() {
        let mut apart = [(range(10, 19), 1), (range(0, 9), 2), (range(20, 29), 3)];
        assert_eq!(overlaps(&mut apart), []);
        assert_eq!(around(&apart, 19), Some((range(10, 19), 1)));
        assert_eq!(around(&apart, 30), None);
        let mut same =
            [(range(0, 99), 4), (range(10, 19), 2), (range(30, 39), 9), (range(10, 19), 7)];
        let told = overlaps(&mut same).into_iter();
        let told: Vec<(u64, String)> = told.map(|one| (one.range.1, one.to_string())).collect();
        let expected = [
            (4, "the range 0-99 overlaps 10-19, which is on line 2"),
            (7, "the range 10-19 overlaps 0-99, which is on line 4"),
            (9, "the range 30-39 overlaps 0-99, which is on line 4"),
        ];
        assert_eq!(told, expected.map(|(line, why)| (line, why.to_owned())));
    }
}

//! A range of numbers as a segment that clients of Tinyid share out themselves.
//!
//! The clients hand out the numbers above `currentId`, up to `maxId`, whose remainder after a division by `delta` is
//! `remainder`. They begin with the smallest of these numbers, and go up by `delta`.
//!
//! Invariant: they hand out the numbers of the range, and no others, because `currentId` lies right below the first one.

use serde::Serialize;

use crate::sequence::Range;

/// The greatest `maxId`. The clients compute with signed 64-bit integers, and notice the end of a segment only once they
/// are beyond it: each call adds `delta` again. From here they cannot get to a number that does not fit.
const MAX_ID_MAX: u64 = 1 << 62;

/// The greatest `delta`: the clients read it as a signed 32-bit integer.
const DELTA_MAX: u64 = i32::MAX as u64;

/// The part of a segment that is used when a client asks for the next one: a fifth, as Tinyid has it.
const LOADING_PART: u64 = 5;

/// A segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Segment {
    /// Right below the first number.
    pub current_id: u64,
    /// From this number on a client asks for the next segment.
    pub loading_id: u64,
    /// The last number.
    pub max_id: u64,
    /// The distance between two numbers.
    pub delta: u64,
    /// The remainder of each number after a division by `delta`.
    pub remainder: u64,
}

impl Segment {
    /// The segment of a range.
    ///
    /// # Errors
    /// A text that says why the clients cannot compute with it.
    pub fn of(range: Range) -> Result<Segment, String> {
        let Range { first, last, increment } = range;
        check_increment(increment)?;
        if last > MAX_ID_MAX {
            return Err(format!(
                "the segment ends at {last}; clients that take segments compute with numbers up to {MAX_ID_MAX}: use a \
                 key with smaller numbers"
            ));
        }
        let current_id = first.saturating_sub(1);
        Ok(Segment {
            current_id,
            loading_id: current_id + (last - current_id) / LOADING_PART,
            max_id: last,
            delta: increment,
            remainder: first % increment,
        })
    }
}

/// Checks that clients can compute with an increment.
///
/// # Errors
/// A text that says why not.
pub(super) fn check_increment(increment: u64) -> Result<(), String> {
    match increment > DELTA_MAX {
        true => Err(format!(
            "the namespace's increment is {increment}; clients that take segments compute with at most {DELTA_MAX}: use a \
             namespace with a smaller one"
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, count: u64, increment: u64) -> Range {
        Range { first, last: first + (count - 1) * increment, increment }
    }

    /// The numbers that a client of Tinyid hands out of a segment. If the remainder of `current_id` does not fit, the client
    /// goes up one by one until it fits, and then back by `delta`. Each number is `delta` above the one before.
    fn shared_out(segment: Segment) -> Vec<u64> {
        let signed = |number: u64| i64::try_from(number).expect("a signed number");
        let (delta, remainder) = (signed(segment.delta), signed(segment.remainder));
        let mut at = signed(segment.current_id);
        if at % delta != remainder {
            let fits = (1..=delta + 1).find(|up| (at + up) % delta == remainder);
            at += fits.expect("one of delta neighbours fits") - delta;
        }
        let mut numbers = Vec::new();
        loop {
            at += delta;
            if at > signed(segment.max_id) {
                return numbers;
            }
            numbers.push(u64::try_from(at).expect("not below 0"));
        }
    }

    #[test]
    fn a_client_hands_out_the_numbers_of_the_range_and_no_others() {
        for increment in [1, 2, 3, 10, 1_000] {
            for first in [1, 2, 5, 9, 10, 11, 999, 1_000, 1_001, 12_345] {
                for count in [1, 2, 7, 100] {
                    let range = range(first, count, increment);
                    let segment = Segment::of(range).unwrap();
                    let expected: Vec<u64> =
                        (0..count).map(|step| first + step * increment).collect();
                    assert_eq!(shared_out(segment), expected, "{segment:?}");
                    assert!(segment.current_id <= segment.loading_id, "{segment:?}");
                    assert!(segment.loading_id <= segment.max_id, "{segment:?}");
                }
            }
        }
    }

    #[test]
    fn what_a_client_cannot_compute_with_is_refused_with_its_value() {
        let at_most = Segment::of(range(MAX_ID_MAX, 1, DELTA_MAX)).unwrap();
        assert_eq!(at_most.max_id, MAX_ID_MAX);
        let refused = Segment::of(range(MAX_ID_MAX, 2, 1)).unwrap_err();
        assert!(refused.contains("4611686018427387905"), "{refused}");
        let refused = Segment::of(range(1, 1, DELTA_MAX + 1)).unwrap_err();
        assert!(refused.contains("2147483648"), "{refused}");
    }
}

//! The answers to callers of gapless keys, and whether callers may see them. Pure, but for its locks.
//!
//! The numbers of a key are 1, 2, 3, ... up to the last one taken. Each belongs to one answer, or to a call of which its
//! caller was told that the outcome is not known. A call that failed in any other way took nothing. So each hole is filled by
//! such calls: by all numbers of some of them, and by calls that began before the numbers above the hole were answered.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::client::FirstAndLast;

/// The answers, and the errors in them.
#[derive(Default)]
pub struct GaplessAnswers {
    accounts: Mutex<BTreeMap<String, Account>>,
    violations: Mutex<Vec<String>>,
}

/// The answers of a key.
#[derive(Default)]
struct Account {
    /// The ranges that were answered, by their first numbers.
    given: BTreeMap<u64, Given>,
    unknown: Vec<Unknown>,
}

struct Given {
    last: u64,
    returned_ns: u64,
}

/// A call of which its caller was told that the outcome is not known.
struct Unknown {
    count: u64,
    invoked_ns: u64,
}

impl GaplessAnswers {
    /// Notes an answer. `request` is the name of its request.
    pub(super) fn answered(
        &self, key: &str, (first, last): FirstAndLast, returned_ns: u64, request: &str,
    ) {
        let given = Given { last, returned_ns };
        let mut accounts = self.accounts.lock();
        let account = accounts.entry(key.to_owned()).or_default();
        if account.given.insert(first, given).is_some() {
            drop(accounts);
            self.violated(format!(
                "gapless key {key}: {first} was handed out twice, to {request} as well"
            ));
        }
    }

    /// Notes a call whose caller was told that its outcome is not known.
    pub(super) fn unknown(&self, key: &str, count: u64, invoked_ns: u64) {
        let mut accounts = self.accounts.lock();
        let account = accounts.entry(key.to_owned()).or_default();
        account.unknown.push(Unknown { count, invoked_ns });
    }

    /// Notes a violation.
    pub(super) fn violated(&self, why: String) {
        self.violations.lock().push(why);
    }

    /// The violations so far.
    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().clone()
    }

    /// How many ranges of a key were answered.
    pub(super) fn answered_ranges(&self, key: &str) -> usize {
        self.accounts.lock().get(key).map_or(0, |account| account.given.len())
    }

    /// Notes the first number of a key that nobody was told of, once all calls have ended. `last` is the last one that was
    /// taken.
    pub(super) fn judge(&self, key: &str, last: u64) {
        let judged = self.accounts.lock().get(key).map_or(Ok(()), |account| account.judge(last));
        if let Err(why) = judged {
            self.violated(format!("gapless key {key}: {why}"));
        }
    }
}

impl Account {
    fn judge(&self, last: u64) -> Result<(), String> {
        let given = self.given.iter().map(|(first, given)| (*first, given.last, given.returned_ns));
        let end = (last.saturating_add(1), last, u64::MAX);
        let (mut expected, mut holes) = (1, 0);
        for (first, last, returned_ns) in given.chain([end]) {
            if first < expected {
                return Err(format!(
                    "{first} comes after {}: numbers twice, or above the last one",
                    expected - 1
                ));
            }
            if first > expected {
                holes += first - expected;
                self.explain(expected, first - expected, holes, returned_ns)?;
            }
            expected = last.saturating_add(1);
        }
        Ok(())
    }

    /// Whether calls of unknown outcome that began before `until_ns` can have taken the `missing` numbers from `first` on,
    /// and `holes` in all.
    fn explain(&self, first: u64, missing: u64, holes: u64, until_ns: u64) -> Result<(), String> {
        let before = self.unknown.iter().filter(|call| call.invoked_ns < until_ns);
        let counts: Vec<u64> = before.map(|call| call.count).collect();
        let told: u64 = counts.iter().sum();
        if holes <= told && is_sum(missing, &counts) {
            return Ok(());
        }
        Err(format!(
            "nobody was answered the {missing} numbers from {first} on; by then {holes} were missing, and {} callers were told \
             that they may have taken {told} numbers, {counts:?}",
            counts.len()
        ))
    }
}

/// Whether some of the counts are `sum` together.
fn is_sum(sum: u64, counts: &[u64]) -> bool {
    // The caller has seen that it is at most that of all counts.
    let sum = sum as usize;
    let mut reached = vec![false; sum + 1];
    reached[0] = true;
    for count in counts.iter().map(|count| *count as usize) {
        for to in (count..=sum).rev() {
            reached[to] |= reached[to - count];
        }
    }
    reached[sum]
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    /// The violations of key "k" after answers, calls of unknown outcome and the last number.
    fn judged(given: &[FirstAndLast], unknown: &[(u64, u64)], last: u64) -> String {
        let answers = GaplessAnswers::default();
        for range in given {
            // Each is answered at the moment that its first number says.
            answers.answered("k", *range, range.0, "somebody");
        }
        for (count, invoked_ns) in unknown {
            answers.unknown("k", *count, *invoked_ns);
        }
        answers.judge("k", last);
        answers.violations().join("\n")
    }

    #[test]
    fn numbers_without_a_hole_up_to_the_last_one_are_right_and_a_number_twice_is_not() {
        assert_eq!(judged(&[(3, 3), (1, 2)], &[], 3), "");
        assert_eq!(judged(&[], &[], 0), "");
        let twice = [
            judged(&[(1, 2), (1, 1), (3, 3)], &[], 3),
            judged(&[(1, 2), (2, 3)], &[], 3),
            judged(&[(1, 2), (3, 5)], &[], 4),
        ];
        expect![[r#"
            gapless key k: 1 was handed out twice, to somebody as well
            gapless key k: nobody was answered the 1 numbers from 2 on; by then 1 were missing, and 0 callers were told that they may have taken 0 numbers, []
            gapless key k: 2 comes after 2: numbers twice, or above the last one
            gapless key k: 5 comes after 5: numbers twice, or above the last one"#]]
        .assert_eq(&twice.join("\n"));
    }

    #[test]
    fn a_hole_is_explained_by_callers_who_were_told_and_who_asked_before_the_numbers_above_it() {
        assert_eq!(judged(&[(1, 2), (6, 6)], &[(2, 0), (1, 5)], 6), "");
        // A hole at the end is explained, too.
        assert_eq!(judged(&[(1, 2)], &[(2, 900)], 4), "");
        // A call that took nothing explains nothing.
        assert_eq!(judged(&[(1, 2)], &[(2, 900)], 2), "");
        let unexplained = [
            judged(&[(1, 2), (6, 6)], &[], 6),
            judged(&[(1, 2), (6, 6)], &[(2, 0), (1, 6)], 6),
            // Each call explains one hole alone.
            judged(&[(1, 2), (5, 5), (8, 8)], &[(2, 0), (1, 0)], 8),
            // A call explains all of its numbers, or none.
            judged(&[(1, 2), (5, 5)], &[(3, 0), (1, 0)], 5),
        ];
        expect![[r#"
            gapless key k: nobody was answered the 3 numbers from 3 on; by then 3 were missing, and 0 callers were told that they may have taken 0 numbers, []
            gapless key k: nobody was answered the 3 numbers from 3 on; by then 3 were missing, and 1 callers were told that they may have taken 2 numbers, [2]
            gapless key k: nobody was answered the 2 numbers from 6 on; by then 4 were missing, and 2 callers were told that they may have taken 3 numbers, [2, 1]
            gapless key k: nobody was answered the 2 numbers from 3 on; by then 2 were missing, and 2 callers were told that they may have taken 4 numbers, [3, 1]"#]]
        .assert_eq(&unexplained.join("\n"));
    }
}

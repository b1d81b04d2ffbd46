//! Tests as transcripts. Each line is a command and, behind ` -> `, its result.
//!
//! The expected text is the script as well: a line's result is computed again and compared. To add a
//! case, write the commands alone, run the test with `UPDATE_EXPECT=1`, and read what was filled in.

use std::time::Duration;

use expect_test::Expect;

use crate::sequence::{NamespaceConfig, Range};

/// Runs each command of `expected` and compares the results. `run` gets the words of a command; an
/// empty result is not shown. Empty lines and those that begin with `#` are left as they are.
pub fn check(expected: Expect, mut run: impl FnMut(&[&str]) -> String) {
    let mut actual = String::new();
    for line in expected.data().trim().lines() {
        let command = line.split(" -> ").next().unwrap_or_default().trim();
        actual.push_str(command);
        if !command.is_empty() && !command.starts_with('#') {
            let words: Vec<&str> = command.split(' ').collect();
            let result = run(&words);
            if !result.is_empty() {
                actual.push_str(" -> ");
                actual.push_str(&result);
            }
        }
        actual.push('\n');
    }
    expected.assert_eq(&actual);
}

/// Reads a number.
pub fn number(word: &str) -> u64 {
    let parsed = word.parse();
    parsed.unwrap_or_else(|_| panic!("{word:?} is not a number"))
}

/// Reads a time such as `12ms`.
pub fn time(word: &str) -> Duration {
    let units = [("ms", 1_000_000), ("us", 1_000), ("s", 1_000_000_000)];
    let found = units.iter().find_map(|(unit, nanos)| Some((word.strip_suffix(unit)?, nanos)));
    let (value, nanos) = found.unwrap_or_else(|| panic!("{word:?} has no unit: us, ms, s"));
    Duration::from_nanos(number(value) * nanos)
}

/// Changes the fields of a namespace that `words` name: `step=100 max=50`.
pub fn set(config: &mut NamespaceConfig, words: &[&str]) {
    for word in words {
        let (field, value) = word.split_once('=').expect("field=value");
        let value = number(value);
        match field {
            "step" => config.step = value,
            "step_min" => config.step_min = Some(value),
            "step_max" => config.step_max = Some(value),
            "increment" => config.increment = value,
            "start" => config.start = value,
            "max" => config.max = value,
            "section_size" => config.section_size = value,
            "keys_max" => config.keys_max = (value > 0).then_some(value),
            other => panic!("there is no field {other:?}"),
        }
    }
}

/// A range as a transcript shows it.
pub fn show(range: Range) -> String {
    format!("{}..{}", range.first, range.last)
}

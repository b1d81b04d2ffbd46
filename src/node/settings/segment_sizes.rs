//! How many numbers a segment has that a client of Tinyid takes.

use std::{collections::BTreeMap, str::FromStr};

use serde::Deserialize;

use super::mapped_names::{TINYID_PARAMETER, in_braces};
use crate::node::text_table::TextTable;

/// How many numbers a segment has unless the setting says otherwise.
const SEGMENT_NUMBERS: u64 = 100_000;

/// How many numbers the segments of each type have, as it is given: one number for all types, "type=numbers,...", or a table
/// in TOML.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "GivenSegments")]
pub struct SegmentSizes(BTreeMap<String, u64>);

#[derive(Deserialize)]
#[serde(untagged, expecting = "write a number, a table of numbers, or a text as bizType=100000")]
enum GivenSegments {
    OfAny(u64),
    List(String),
    Table(BTreeMap<String, u64>),
}

impl SegmentSizes {
    /// Of as many numbers, whatever the type.
    fn of_any(numbers: u64) -> Self {
        SegmentSizes(BTreeMap::from([(in_braces(TINYID_PARAMETER), numbers)]))
    }

    /// Of these types. Those without a row have the default.
    fn of(mut rows: BTreeMap<String, u64>) -> Self {
        rows.entry(in_braces(TINYID_PARAMETER)).or_insert(SEGMENT_NUMBERS);
        SegmentSizes(rows)
    }
}

impl Default for SegmentSizes {
    fn default() -> Self {
        SegmentSizes::of_any(SEGMENT_NUMBERS)
    }
}

impl TryFrom<GivenSegments> for SegmentSizes {
    type Error = String;

    fn try_from(given: GivenSegments) -> Result<Self, String> {
        match given {
            GivenSegments::OfAny(numbers) => Ok(SegmentSizes::of_any(numbers)),
            GivenSegments::List(list) => list.parse(),
            GivenSegments::Table(rows) => Ok(SegmentSizes::of(rows)),
        }
    }
}

impl FromStr for SegmentSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(numbers) = text.trim().parse() {
            return Ok(SegmentSizes::of_any(numbers));
        }
        let rows = BTreeMap::from(TextTable::parse(text, "bizType=100000")?).into_iter();
        let rows = rows.map(|(of_type, numbers)| match numbers.parse() {
            Ok(numbers) => Ok((of_type, numbers)),
            Err(_) => Err(format!("{of_type:?} has segments of {numbers:?}; give an integer")),
        });
        Ok(SegmentSizes::of(rows.collect::<Result<_, String>>()?))
    }
}

impl From<SegmentSizes> for BTreeMap<String, u64> {
    fn from(SegmentSizes(rows): SegmentSizes) -> Self {
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_one_number_or_some_types_and_the_default_for_the_others() {
        #[derive(Deserialize)]
        struct File {
            of: SegmentSizes,
        }
        let in_file = |text: &str| toml::from_str::<File>(text).map(|file| file.of);
        for text in ["of = 7", "of = \"7\"", "of = \"{bizType}=7\""] {
            assert_eq!(in_file(text).unwrap(), SegmentSizes::of_any(7), "{text}");
        }
        let types = BTreeMap::from(in_file("[of]\na = 5\n").unwrap());
        assert_eq!((types["a"], types["{bizType}"]), (5, 100_000));
        assert_eq!("a=5".parse::<SegmentSizes>().map(BTreeMap::from), Ok(types));
        let refused = "a=x".parse::<SegmentSizes>().unwrap_err();
        assert!(refused.contains("\"a\" has segments of \"x\""), "{refused}");
        assert!("7x".parse::<SegmentSizes>().unwrap_err().contains("\"7x\" has no '='"));
        assert!(in_file("of = true").is_err());
    }
}

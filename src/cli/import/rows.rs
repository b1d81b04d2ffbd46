//! The rows of an import: which key, or which sections, are to be raised to which number.

use clap::ValueEnum;
use ratchet_client::{Key, api as v1};
use serde::{Deserialize, Serialize};

use super::{
    super::exit::CommandError,
    ranges::{IdRange, integer},
};
use crate::sequence::KEY_NAME_BYTES_MAX;

/// How many faults of a file are shown.
pub const FAULTS_SHOWN: usize = 20;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Rows of "key,number", or of "first-last,number" for the ids of sections. A first row of "key,number" or
    /// "ids,number" is skipped
    Csv,
    /// Rows of Leaf's table leaf_alloc: biz_tag and max_id
    Leaf,
    /// Rows of Tinyid's table tiny_id_info: biz_type, max_id, delta and remainder
    Tinyid,
}

/// What a row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its line, from 1.
    pub line: u64,
    /// Whose floor it is.
    pub of: RowOf,
    /// What the floor is to be at least.
    pub number: u64,
}

/// Whose floor a row tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowOf {
    /// A key.
    Key(Key),
    /// The ids of whole sections.
    Sections(IdRange),
}

/// A row that is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Its line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
}

/// What rows must be, so that the namespace takes them.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The namespace's name.
    pub namespace: String,
    takes_ids: bool,
    max: u64,
    start: u64,
    increment: u64,
    keys_max: Option<u64>,
    section_size: u64,
}

impl Expected {
    /// What the namespace takes.
    ///
    /// # Errors
    /// If the server tells of a kind of keys that this release does not know.
    pub fn new(namespace: &v1::Namespace) -> Result<Self, CommandError> {
        let takes_ids = match namespace.key_kind() {
            v1::KeyKind::Id => true,
            v1::KeyKind::Name => false,
            v1::KeyKind::Unspecified => {
                return Err(CommandError::other(format!(
                    "namespace {:?} has keys of a kind that this release does not know",
                    namespace.name
                )));
            }
        };
        Ok(Expected {
            namespace: namespace.name.clone(),
            takes_ids,
            max: namespace.max,
            start: namespace.start,
            increment: namespace.increment.max(1),
            keys_max: namespace.keys_max,
            section_size: namespace.section_size.max(1),
        })
    }

    /// Checks that the namespace takes ranges of ids.
    ///
    /// # Errors
    /// What the namespace has, and what to do.
    pub fn check_ranges(&self) -> Result<(), String> {
        let namespace = &self.namespace;
        match (self.takes_ids, self.section_size) {
            (false, _) => Err(format!(
                "the rows are of ranges of ids, and the keys of namespace {namespace:?} are names; import into a namespace \
                 of ids"
            )),
            (true, 1) => Err(format!(
                "a range of ids is a section, and each key of namespace {namespace:?} has a section of its own; create it \
                 with --section-size N, so that sections begin and end where the ranges do"
            )),
            (true, _) => Ok(()),
        }
    }

    /// Checks that the namespace's numbers are `delta` apart, and that dividing them leaves `remainder`, which is less.
    ///
    /// # Errors
    /// What the namespace's numbers are, and what to do.
    pub fn check_progression(&self, delta: u64, remainder: u64) -> Result<(), String> {
        if (self.increment, self.start % self.increment) == (delta, remainder) {
            return Ok(());
        }
        // No number is 0.
        let start = if remainder == 0 { delta } else { remainder };
        Err(format!(
            "namespace {:?} goes up by {} from {}; import it into one with --increment {delta} --start {start}",
            self.namespace, self.increment, self.start
        ))
    }

    /// How many neighbouring ids share a section.
    pub fn section_size(&self) -> u64 {
        self.section_size
    }

    /// Why the namespace has no room for keys of so many sections, if it has not.
    pub fn beyond_quota(&self, sections: u64) -> Option<String> {
        let keys_max = self.keys_max?;
        // The last section is begun while those before it leave room for a key.
        let needed = sections.saturating_sub(1).saturating_mul(self.section_size) + 1;
        (sections > 0 && needed > keys_max).then(|| {
            let namespace = &self.namespace;
            format!(
                "nothing was raised: namespace {namespace:?} may have keys_max {keys_max} keys, and the file needs {needed} \
                 at least, beside those that are there; raise it with: ratchet namespace update {namespace} --keys-max N"
            )
        })
    }

    /// The row that a key and a number make.
    ///
    /// # Errors
    /// If the namespace takes no such key, or the number is none.
    pub fn row(&self, line: u64, key: &[u8], number: &[u8]) -> MaybeRow {
        let key = self.key(key, "");
        self.row_of(line, key.map(RowOf::Key), number)
    }

    /// As [`Expected::row`], where a range of ids may stand in the place of the key.
    ///
    /// # Errors
    /// As [`Expected::row`], and if the range is not one of whole sections.
    pub fn row_or_range(&self, line: u64, key: &[u8], number: &[u8]) -> MaybeRow {
        let of = match IdRange::of(key).filter(|_| self.takes_ids) {
            Some(range) => (self.check_ranges())
                .and_then(|()| range.check(&self.namespace, self.section_size))
                .map(|()| RowOf::Sections(range)),
            None => {
                let and_ranges = match self.check_ranges() {
                    Ok(()) => ", and ranges of them, first-last",
                    Err(_) => "",
                };
                self.key(key, and_ranges).map(RowOf::Key)
            }
        };
        self.row_of(line, of, number)
    }

    /// The key that a text is. `and_ranges` says what an id could be beside an integer.
    fn key(&self, key: &[u8], and_ranges: &str) -> Result<Key, String> {
        match self.takes_ids {
            true => integer(key).map(Key::Id).ok_or_else(|| {
                format!(
                    "key '{}' is no id; namespace {:?} takes integers from 0 to {}{and_ranges}",
                    key.escape_ascii(),
                    self.namespace,
                    u64::MAX
                )
            }),
            false if key.is_empty() || key.len() > KEY_NAME_BYTES_MAX => Err(format!(
                "the key has {} bytes; a name has 1 to {KEY_NAME_BYTES_MAX}",
                key.len()
            )),
            false => Ok(Key::from(key)),
        }
    }

    fn row_of(&self, line: u64, of: Result<RowOf, String>, number: &[u8]) -> MaybeRow {
        let bad = |why: String| BadRow { line, why };
        let of = of.map_err(bad)?;
        let in_range = integer(number).filter(|number| (1..=self.max).contains(number));
        let number = in_range.ok_or_else(|| {
            bad(format!(
                "number '{}' is none between 1 and {}, the max of namespace {:?}",
                number.escape_ascii(),
                self.max,
                self.namespace
            ))
        })?;
        Ok(Row { line, of, number })
    }

    /// The last number of a key whose floor is `number`, as the server tells it: it lies on the namespace's
    /// progression. 0 if the first number is above the floor.
    pub fn last_number(&self, number: u64) -> u64 {
        match number.checked_sub(self.start) {
            None => 0,
            Some(above) => self.start + above / self.increment * self.increment,
        }
    }
}

/// A row, or what is wrong with it.
pub type MaybeRow = Result<Row, BadRow>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_beyond_the_quota_if_its_last_section_could_not_be_begun() {
        let beyond = |keys_max, section_size, sections| {
            let namespace = v1::Namespace {
                name: "few".to_owned(),
                key_kind: v1::KeyKind::Id.into(),
                keys_max,
                section_size,
                ..v1::Namespace::default()
            };
            let expected = Expected::new(&namespace).expect("a namespace");
            expected.beyond_quota(sections)
        };
        assert_eq!(beyond(None, 1, u64::MAX), None);
        assert_eq!(beyond(Some(2), 1, 2), None);
        assert!(beyond(Some(2), 1, 3).is_some_and(|why| why.contains("needs 3 at least")));
        // Sections are counted whole, and begun while there is room for a key.
        assert_eq!(beyond(Some(15), 10, 2), None);
        assert!(beyond(Some(15), 10, 3).is_some_and(|why| why.contains("needs 21 at least")));
        assert_eq!(beyond(Some(15), 10, 0), None);
    }
}

//! The rows of an import: which key, or which sections, are to be raised to which number. All kinds of files become such rows
//! (`reader.rs`). Faults are collected with their lines, so that one check of a file shows many of them.

use std::fmt::Display;

use clap::ValueEnum;
use ratchet_client::{Key, api as v1};
use ratchet_ids::Source;
use serde::{Deserialize, Serialize};

use super::ranges::IdRange;
use crate::{
    cli::command_error::CommandError, sequence::KEY_NAME_BYTES_MAX, server::written::integer,
};

/// How many faults of a file are shown, and how many warnings.
const FAULTS_SHOWN: usize = 20;

/// The faults of a file, or the warnings about it.
#[derive(Debug, Default)]
pub struct Faults {
    /// How many faults there are.
    pub all: u64,
    /// The first of them.
    shown: Vec<String>,
}

impl Faults {
    /// Adds a fault of a line, or a warning about it.
    pub fn note(&mut self, line: u64, why: impl Display) {
        self.all += 1;
        if self.shown.len() < FAULTS_SHOWN {
            self.shown.push(format!("line {line}: {why}"));
        }
    }

    /// Those that are shown, each on a line of its own, and how many there are beside them.
    pub fn listed(&self) -> String {
        let more = match self.all - self.shown.len() as u64 {
            0 => None,
            more => Some(format!("and {more} more")),
        };
        self.shown.iter().chain(&more).map(|line| format!("\n  {line}")).collect()
    }

    /// Those that are shown, each with its line.
    pub fn shown(&self) -> &[String] {
        &self.shown
    }
}

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowFormat {
    /// Rows of "key,number", or of "first-last,number" for the ids of sections, or of "key,order" for chapters. A first row
    /// that says so is skipped
    Csv,
    /// Rows of Leaf's table leaf_alloc: biz_tag and max_id
    Leaf,
    /// Rows of Tinyid's table tiny_id_info: biz_type, max_id, delta and remainder
    Tinyid,
}

/// The content of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its line, from 1.
    pub line: u64,
    /// The key or the sections whose floor it is.
    pub of: RowOf,
    /// The least that the floor is to be.
    pub number: u64,
}

/// The owner of a floor.
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
    /// The fault of the row.
    pub why: String,
}

/// The conditions on rows, so that the namespace takes them.
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
    /// How far apart the order numbers of a key are in ids, if it has those.
    order_step: Option<u64>,
}

impl Expected {
    /// The conditions of `namespace`.
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
            order_step: order_step(namespace)?,
        })
    }

    /// Checks what the first row says of the numbers: that they are order numbers as ids have them, or, in a namespace that
    /// has those, that they are not. `None` says nothing.
    ///
    /// # Errors
    /// A text that says what the namespace has, and what to write.
    pub fn check_orders(&self, are_orders: Option<bool>) -> Result<(), String> {
        let namespace = &self.namespace;
        match (self.order_step, are_orders) {
            (None, None | Some(false)) | (Some(_), Some(_)) => Ok(()),
            (None, Some(true)) => Err(format!(
                "the rows have order numbers, and namespace {namespace:?} hands out plain numbers; begin with key,number"
            )),
            (Some(step), None) => Err(format!(
                "begin with a row that says what the numbers are: key,order if they are order numbers as ids of namespace \
                 {namespace:?} have them ({step}, {}), key,number if they count as ratchet export does (1, 2)",
                2 * step
            )),
        }
    }

    /// Checks that the namespace takes ranges of ids.
    ///
    /// # Errors
    /// A text that says what the namespace has, and what to do.
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
    /// A text that says what the namespace's numbers are, and what to do.
    pub fn check_progression(&self, delta: u64, remainder: u64) -> Result<(), String> {
        if self.order_step.is_some() {
            return Err(format!(
                "namespace {:?} has order numbers beside a date; import rows of key,order",
                self.namespace
            ));
        }
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
    pub fn beyond_keys_max(&self, sections: u64) -> Option<String> {
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

    /// The row that a key and an order number make, as ids have it. `None` if the key's first order number is greater.
    ///
    /// # Errors
    /// If the namespace takes no such key, or the order number is none.
    pub fn row_of_order(&self, line: u64, key: &[u8], order: &[u8]) -> Option<MaybeRow> {
        let bad = |why: String| Some(Err(BadRow { line, why }));
        let key = match self.key(key, "") {
            Ok(key) => key,
            Err(why) => return bad(why),
        };
        let step = self.order_step.unwrap_or(1);
        let max = self.max.saturating_mul(step);
        let Some(order) = integer(order).filter(|order| *order <= max) else {
            return bad(format!(
                "order '{}' is none between 0 and {max}, the last of namespace {:?}",
                order.escape_ascii(),
                self.namespace
            ));
        };
        // One that lies between two of the namespace is passed by the next one.
        let number = order / step;
        (number > 0).then_some(Ok(Row { line, of: RowOf::Key(key), number }))
    }

    /// The row that a key and a number make. `None` if the number is 0: nothing was handed out of the key.
    ///
    /// # Errors
    /// If the namespace takes no such key, or the number is none.
    pub fn row(&self, line: u64, key: &[u8], number: &[u8]) -> Option<MaybeRow> {
        let key = self.key(key, "");
        self.row_of(line, key.map(RowOf::Key), number)
    }

    /// As [`Expected::row`], where a range of ids may stand in the place of the key.
    ///
    /// # Errors
    /// As [`Expected::row`], and if the range is not one of whole sections.
    pub fn row_or_range(&self, line: u64, key: &[u8], number: &[u8]) -> Option<MaybeRow> {
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

    fn row_of(&self, line: u64, of: Result<RowOf, String>, number: &[u8]) -> Option<MaybeRow> {
        let bad = |why: String| Some(Err(BadRow { line, why }));
        let of = match of {
            Ok(of) => of,
            Err(why) => return bad(why),
        };
        let Some(number) = integer(number).filter(|number| *number <= self.max) else {
            return bad(format!(
                "number '{}' is none between 0 and {}, the max of namespace {:?}",
                number.escape_ascii(),
                self.max,
                self.namespace
            ));
        };
        (number > 0).then_some(Ok(Row { line, of, number }))
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

/// How far apart the order numbers of a namespace's keys are in ids. `None` if it hands out plain numbers.
fn order_step(namespace: &v1::Namespace) -> Result<Option<u64>, CommandError> {
    let Some(format) = &namespace.format else {
        return Ok(None);
    };
    let name = &namespace.name;
    let format = ratchet_ids::Format::parse(format).map_err(|invalid| {
        CommandError::other(format!(
            "this release does not know the format of namespace {name:?}: {invalid}"
        ))
    })?;
    match format.source() {
        Source::Date => Ok(Some(format.step())),
        Source::Worker | Source::Key => Err(CommandError::refused(format!(
            "namespace {name:?} hands out ids with a time, which follow the clock: there is nothing to import"
        ))),
    }
}

/// A key, for what is told of it.
pub fn written(key: &Key) -> String {
    match key {
        Key::Id(id) => id.to_string(),
        Key::Name(name) => format!("'{}'", name.escape_ascii()),
    }
}

/// A row, or what is wrong with it.
pub type MaybeRow = Result<Row, BadRow>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_number_is_the_number_of_the_last_one_that_is_not_above_it() {
        let namespace = v1::Namespace {
            name: "chapters".to_owned(),
            key_kind: v1::KeyKind::Id.into(),
            max: 9_999,
            format: Some("yuewen-chapter".to_owned()),
            ..v1::Namespace::default()
        };
        let expected = Expected::new(&namespace).expect("a namespace");
        let number = |order: &str| {
            let row = expected.row_of_order(1, b"42", order.as_bytes());
            row.map(|row| row.map(|row| row.number).map_err(|bad| bad.why))
        };
        for (order, is) in [("0", None), ("99", None), ("100", Some(1)), ("1299", Some(12))] {
            assert_eq!(number(order), is.map(Ok), "{order}");
        }
        assert_eq!(number("999900"), Some(Ok(9_999)));
        for order in ["999901", "x", ""] {
            let why = number(order).and_then(Result::err).expect("a refusal");
            assert!(why.starts_with(&format!("order '{order}' is none")), "{why}");
        }
        assert!(matches!(expected.row_of_order(1, b"x", b"0"), Some(Err(_))));
        assert!(expected.check_progression(1, 0).is_err());
        let of =
            |format: &str| v1::Namespace { format: Some(format.to_owned()), ..namespace.clone() };
        assert!(Expected::new(&of("snowflake")).is_err());
        assert!(Expected::new(&of("rongcloud")).is_err());
    }

    #[test]
    fn a_file_is_beyond_keys_max_if_its_last_section_could_not_be_begun() {
        let beyond = |keys_max, section_size, sections| {
            let namespace = v1::Namespace {
                name: "few".to_owned(),
                key_kind: v1::KeyKind::Id.into(),
                keys_max,
                section_size,
                ..v1::Namespace::default()
            };
            let expected = Expected::new(&namespace).expect("a namespace");
            expected.beyond_keys_max(sections)
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

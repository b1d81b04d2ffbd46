//! The rows of an import: which key is to be raised to which number.

use clap::ValueEnum;
use ratchet_client::{Key, api as v1};
use serde::{Deserialize, Serialize};

use super::super::exit::CommandError;
use crate::sequence::KEY_NAME_BYTES_MAX;

/// How many faults of a file are shown.
pub const FAULTS_SHOWN: usize = 20;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Rows of "key,number"; a first row of these words is skipped
    Csv,
    /// A dump of Leaf's table leaf_alloc
    Leaf,
    /// A dump of Tinyid's table tiny_id_info
    Tinyid,
}

/// What a row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its line, from 1.
    pub line: u64,
    /// The key.
    pub key: Key,
    /// What the key's floor is to be at least.
    pub number: u64,
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
            increment: namespace.increment,
        })
    }

    /// The row that these texts make.
    ///
    /// # Errors
    /// If the namespace takes no such key, or the number is none.
    pub fn row(&self, line: u64, key: &[u8], number: &[u8]) -> Result<Row, BadRow> {
        let bad = |why: String| BadRow { line, why };
        let key = match self.takes_ids {
            true => Key::Id(integer(key).ok_or_else(|| {
                bad(format!(
                    "key '{}' is no id; namespace {:?} takes integers from 0 to {}",
                    key.escape_ascii(),
                    self.namespace,
                    u64::MAX
                ))
            })?),
            false if key.is_empty() || key.len() > KEY_NAME_BYTES_MAX => {
                return Err(bad(format!(
                    "the key has {} bytes; a name has 1 to {KEY_NAME_BYTES_MAX}",
                    key.len()
                )));
            }
            false => Key::from(key),
        };
        let in_range = integer(number).filter(|number| (1..=self.max).contains(number));
        let number = in_range.ok_or_else(|| {
            bad(format!(
                "number '{}' is none between 1 and {}, the max of namespace {:?}",
                number.escape_ascii(),
                self.max,
                self.namespace
            ))
        })?;
        Ok(Row { line, key, number })
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

/// An unsigned integer, in digits alone.
pub fn integer(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let are_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| are_digits)
}

/// A row, or what is wrong with it.
pub type MaybeRow = Result<Row, BadRow>;

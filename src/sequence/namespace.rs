//! Namespaces: named families of sequences, each with one configuration.

use serde::{Deserialize, Serialize};

use super::{
    ids::{NamespaceId, SectionId, SectionKey},
    key::{Key, KeyKind},
    progression::{NUMBER_MAX, Progression},
};

/// The greatest length of a namespace's name, in characters.
pub const NAMESPACE_NAME_CHARS_MAX: usize = 64;

/// What an operator chooses when creating a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceConfig {
    /// 1 to 64 characters out of `A-Z a-z 0-9 . _ -`.
    pub name: String,
    /// The kind of its keys.
    pub key_kind: KeyKind,
    /// How many numbers one bump of `max_seq` makes available at first.
    pub step: u64,
    /// The smallest step of a section, to which it shrinks while few numbers are taken. `None`: the step
    /// does not shrink.
    pub step_min: Option<u64>,
    /// The greatest step of a section, to which it grows while many numbers are taken. `None`: the step
    /// does not grow. It is also the most that an unclean leader change skips.
    pub step_max: Option<u64>,
    /// The distance between two neighbouring numbers of a key.
    pub increment: u64,
    /// The first number of every key.
    pub start: u64,
    /// The greatest value that a number may have.
    pub max: u64,
    /// How many neighbouring ids share one section, and so one `max_seq`.
    pub section_size: u64,
    /// True if every number is committed before it is answered, so that none is skipped. It never changes.
    pub gapless: bool,
    /// What the namespace is for, in the operator's words. May be empty.
    pub description: String,
    /// The most numbers of a key in one request. `None`: the node's own limit alone counts.
    pub count_max: Option<u64>,
    /// How many keys may get numbers, in whole sections. `None`: any number of them.
    pub keys_max: Option<u64>,
}

/// A namespace as the cluster knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// The namespace's id inside the cluster.
    pub id: NamespaceId,
    /// What the operator chose.
    pub config: NamespaceConfig,
    /// The greatest `max` that it ever had. No number above it was handed out, whatever a ceiling says.
    pub max_ever: u64,
    /// Numbers up to here may have been handed out by a deleted namespace of this name. 0 if there was none, or it was
    /// forgotten.
    pub floor: u64,
}

/// Why a namespace's configuration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNamespace {
    /// The name is empty.
    #[error("the namespace is empty; name one, for example \"book\"")]
    EmptyName,
    /// The name is too long.
    #[error(
        "the namespace name has {0} characters; it may have at most {NAMESPACE_NAME_CHARS_MAX}"
    )]
    LongName(usize),
    /// The name holds a character that is not allowed.
    #[error("the namespace name {0:?} holds {1:?}; it may hold A-Z a-z 0-9 . _ - only")]
    BadCharacter(String, char),
    /// A field lies outside its range.
    #[error("{field} is {value}; it must lie between {min} and {max}")]
    OutOfRange {
        /// The field's name.
        field: &'static str,
        /// The value that was given.
        value: u64,
        /// The smallest value allowed.
        min: u64,
        /// The greatest value allowed.
        max: u64,
    },
    /// `step_max` (or `step`, if there is none) x `increment` does not fit the number space.
    #[error("step {step} x increment {increment} exceeds the number space; lower one of them")]
    WideStep {
        /// The greatest step.
        step: u64,
        /// The increment.
        increment: u64,
    },
    /// The keys are names, and `section_size` is not 1. Byte strings have no neighbours to share a section
    /// with.
    #[error(
        "section_size is {0}, but keys of kind name have a section each; leave section_size at 1"
    )]
    SectionedNames(u64),
    /// The namespace is gapless, and `section_size` is not 1.
    #[error(
        "section_size is {0}, but a gapless namespace commits the numbers of each key by themselves; leave \
         section_size at 1"
    )]
    SectionedGapless(u64),
    /// The namespace is gapless, and has bounds for steps.
    #[error(
        "{field} is {value}, but a gapless namespace raises no ceiling by steps; leave {field} out"
    )]
    SteppedGapless {
        /// The field's name.
        field: &'static str,
        /// The value that was given.
        value: u64,
    },
    /// The description is too long.
    #[error("the description has {0} characters; it may have at most 256")]
    LongDescription(usize),
    /// The description holds a control character.
    #[error("the description holds the control character {0:?}; write it on one line")]
    ControlCharacter(char),
}

/// Checks a namespace's name.
///
/// # Errors
/// [`InvalidNamespace`] if the name is empty, too long, or holds a character that is not allowed.
pub fn check_name(name: &str) -> Result<(), InvalidNamespace> {
    let length = name.chars().count();
    if length == 0 {
        return Err(InvalidNamespace::EmptyName);
    }
    if length > NAMESPACE_NAME_CHARS_MAX {
        return Err(InvalidNamespace::LongName(length));
    }
    match name
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')))
    {
        Some(c) => Err(InvalidNamespace::BadCharacter(name.to_owned(), c)),
        None => Ok(()),
    }
}

impl NamespaceConfig {
    /// The defaults: ids as keys, step 10 000, increment 1, start 1, the whole number space, and a
    /// section for each key.
    pub fn new(name: impl Into<String>) -> Self {
        NamespaceConfig {
            name: name.into(),
            key_kind: KeyKind::Id,
            step: 10_000,
            step_min: None,
            step_max: None,
            increment: 1,
            start: 1,
            max: NUMBER_MAX,
            section_size: 1,
            gapless: false,
            description: String::new(),
            count_max: None,
            keys_max: None,
        }
    }

    /// The namespaces of a fresh cluster, unless its founders want none.
    pub fn fresh_cluster() -> [NamespaceConfig; 2] {
        [
            NamespaceConfig::new("book"),
            NamespaceConfig {
                section_size: 100_000,
                ..NamespaceConfig::new("uid")
            },
        ]
    }

    /// Checks every field, and that the fields fit together.
    ///
    /// # Errors
    /// [`InvalidNamespace`] if a field is out of its range or does not fit the others. The error names the
    /// field, its value and what it may be.
    pub fn check(&self) -> Result<(), InvalidNamespace> {
        check_name(&self.name)?;
        in_range("step", self.step, 1, NUMBER_MAX)?;
        in_range("increment", self.increment, 1, NUMBER_MAX)?;
        in_range("max", self.max, 1, NUMBER_MAX)?;
        in_range("start", self.start, 1, self.max)?;
        in_range("section_size", self.section_size, 1, u64::MAX)?;
        let (step_min, step_max) = self.step_bounds();
        in_range("step_min", step_min, 1, self.step)?;
        in_range("step_max", step_max, self.step, NUMBER_MAX)?;
        if step_max
            .checked_mul(self.increment)
            .is_none_or(|span| span > NUMBER_MAX)
        {
            return Err(InvalidNamespace::WideStep {
                step: step_max,
                increment: self.increment,
            });
        }
        if self.key_kind == KeyKind::Name && self.section_size != 1 {
            return Err(InvalidNamespace::SectionedNames(self.section_size));
        }
        self.check_gapless()
    }

    fn check_gapless(&self) -> Result<(), InvalidNamespace> {
        if !self.gapless {
            return Ok(());
        }
        if self.section_size != 1 {
            return Err(InvalidNamespace::SectionedGapless(self.section_size));
        }
        let bounds = [("step_min", self.step_min), ("step_max", self.step_max)];
        let given = |(field, value): (_, Option<u64>)| Some((field, value?));
        match bounds.into_iter().find_map(given) {
            Some((field, value)) => Err(InvalidNamespace::SteppedGapless { field, value }),
            None => Ok(()),
        }
    }

    /// The smallest and the greatest step of a section.
    pub fn step_bounds(&self) -> (u64, u64) {
        (
            self.step_min.unwrap_or(self.step),
            self.step_max.unwrap_or(self.step),
        )
    }

    /// True if ids share sections with their neighbours. Names never do.
    pub fn shares_sections(&self) -> bool {
        self.section_size > 1
    }

    /// The numbers that the namespace's keys hand out.
    pub fn progression(&self) -> Progression {
        Progression {
            start: self.start,
            increment: self.increment,
            max: self.max,
        }
    }
}

impl Namespace {
    /// A new namespace.
    pub fn new(id: NamespaceId, config: NamespaceConfig) -> Self {
        let max_ever = config.max;
        Namespace {
            id,
            config,
            max_ever,
            floor: 0,
        }
    }

    /// No number above this one was ever handed out.
    pub fn greatest_number(&self) -> u64 {
        let progression = Progression {
            max: self.max_ever,
            ..self.config.progression()
        };
        progression.last_at_or_below(self.max_ever)
    }

    /// The section that a key belongs to.
    pub fn section_of(&self, key: Key<'_>) -> SectionId {
        SectionId {
            namespace: self.id,
            key: match key {
                Key::Id(id) => SectionKey::Id(id / self.config.section_size),
                Key::Name(name) => SectionKey::Name(name.into()),
            },
        }
    }

    /// The first and the last id of section number `number`.
    pub fn ids_of_section(&self, number: u64) -> (u64, u64) {
        let size = self.config.section_size;
        let first = number.saturating_mul(size);
        (first, first.saturating_add(size - 1))
    }
}

/// Refuses a value outside of `min` to `max`.
pub(super) fn in_range(
    field: &'static str,
    value: u64,
    min: u64,
    max: u64,
) -> Result<(), InvalidNamespace> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(InvalidNamespace::OutOfRange {
            field,
            value,
            min,
            max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_empty_long_or_has_a_slash_is_refused() {
        assert_eq!(check_name(""), Err(InvalidNamespace::EmptyName));
        assert_eq!(
            check_name(&"x".repeat(65)),
            Err(InvalidNamespace::LongName(65))
        );
        assert_eq!(
            check_name("a/b"),
            Err(InvalidNamespace::BadCharacter("a/b".into(), '/'))
        );
        assert_eq!(check_name("message-box.v2_x"), Ok(()));
    }

    #[test]
    fn a_configuration_that_cannot_work_is_refused_and_the_error_names_the_field_and_its_value() {
        let good = NamespaceConfig::new("book");
        assert_eq!(good.check(), Ok(()));
        let refused = |change: fn(&mut NamespaceConfig)| {
            let mut config = good.clone();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(refused(|c| c.step = 0).contains("step is 0"));
        assert!(refused(|c| c.step_min = Some(10_001)).contains("step_min is 10001"));
        assert!(refused(|c| c.step_max = Some(9_999)).contains("step_max is 9999"));
        assert!(refused(|c| c.step_max = Some(1 << 63)).contains("step_max is"));
        assert!(
            refused(|c| (c.step_max, c.increment) = (Some(1 << 40), 1 << 40))
                .contains("number space")
        );
        assert!(refused(|c| c.increment = 0).contains("increment is 0"));
        assert!(refused(|c| c.start = 0).contains("start is 0"));
        assert!(refused(|c| c.max = u64::MAX).contains("max is"));
        assert!(refused(|c| (c.start, c.max) = (11, 10)).contains("start is 11"));
        assert!(refused(|c| c.section_size = 0).contains("section_size is 0"));
        assert!(refused(|c| (c.step, c.increment) = (1 << 40, 1 << 40)).contains("number space"));
        assert!(
            refused(|c| (c.key_kind, c.section_size) = (KeyKind::Name, 2))
                .contains("section_size is 2")
        );
        let gapless = refused(|c| (c.gapless, c.section_size) = (true, 2));
        assert!(gapless.contains("section_size is 2, but a gapless namespace"));
        let gapless = refused(|c| (c.gapless, c.step_min) = (true, Some(7)));
        assert!(gapless.contains("step_min is 7, but a gapless namespace"));
        let gapless = refused(|c| (c.gapless, c.step_max) = (true, Some(10_000)));
        assert!(gapless.contains("step_max is 10000, but a gapless namespace"));
    }

    /// Steps count numbers, not distances: a step of 1 makes one number available, whatever the increment.
    #[test]
    fn a_step_that_is_smaller_than_the_increment_works() {
        let chapters = NamespaceConfig {
            step: 1,
            increment: 100,
            start: 100,
            ..NamespaceConfig::new("chapter")
        };
        assert_eq!(chapters.check(), Ok(()));
        let record = crate::sequence::SectionRecord::default();
        let raise = crate::sequence::Raise {
            numbers: 1,
            unused_max: 1,
            step: 1,
            up_to: 0,
        };
        let (_, chunk) = record.bump(chapters.progression(), 1, raise).unwrap();
        assert_eq!((chunk.old, chunk.new), (0, 100));
    }

    #[test]
    fn ids_share_a_section_with_their_neighbours_within_section_size() {
        let config = NamespaceConfig::fresh_cluster()[1].clone();
        let uid = Namespace::new(NamespaceId(2), config);
        let section = |id| uid.section_of(Key::Id(id)).key;
        assert_eq!(section(0), section(99_999));
        assert_ne!(section(99_999), section(100_000));
        assert_eq!(section(u64::from(u32::MAX)), SectionKey::Id(42_949));
    }
}

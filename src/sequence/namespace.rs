//! Namespaces: named families of sequences, each with one configuration. This file has the configuration and its check.
//! `namespace_limits.rs` has limits that only a proposal is checked for, and `namespace_change.rs` the changes.

use serde::{Deserialize, Serialize};

use super::{
    identifiers::{NamespaceId, SectionId, SectionKey},
    key::{Key, KeyKind},
    progression::{NUMBER_MAX, Progression},
    workers::LeaseBound,
};

/// The greatest length of a namespace's name, in characters.
pub const NAMESPACE_NAME_CHARS_MAX: usize = 64;

/// How many steps a key has at least, unless it has one for each of its numbers: each crash of a leader skips one.
const STEPS_OF_KEY_MIN: u64 = 1_024;

/// The configuration of a namespace, as its operator chooses it.
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
    /// True if numbers of a gapless namespace may be asked for without a request id. A caller that does so and gets no answer
    /// may leave a gap.
    pub request_id_optional: bool,
    /// The purpose of the namespace, in the operator's words. May be empty.
    pub description: String,
    /// The most numbers of a key in one request. `None`: the node's own limit alone counts.
    pub count_max: Option<u64>,
    /// How many keys may get numbers, in whole sections. `None`: any number of them.
    pub keys_max: Option<u64>,
    /// The format of the ids that it hands out, written in full. It never changes. `None`: it hands out plain numbers.
    pub format: Option<String>,
    /// True if Redis clients get its numbers and ids as strings, not as integers.
    pub redis_strings: bool,
}

/// A namespace as the cluster knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// The namespace's id inside the cluster.
    pub id: NamespaceId,
    /// The configuration.
    pub config: NamespaceConfig,
    /// The greatest `max` that it ever had. No number above it was handed out, whatever a ceiling says.
    pub max_ever: u64,
    /// Numbers up to here may have been handed out by a deleted namespace of this name. 0 if there was none, or it was
    /// forgotten.
    pub floor: u64,
    /// No worker id of a deleted namespace of this name was leased beyond this.
    pub lease_floor: LeaseBound,
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
    /// The namespace is not gapless, and says that request ids are optional.
    #[error(
        "request_id_optional is true, but only a gapless namespace knows request ids; leave it out, or make the namespace \
         gapless"
    )]
    OptionalWithoutGapless,
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
    /// The ids have a format, and another field does not fit that.
    #[error(
        "{field} is {value}, but the ids of a namespace with a format are made of its fields; leave {field} out"
    )]
    DoesNotFitFormat {
        /// The field's name.
        field: &'static str,
        /// The value that was given.
        value: String,
    },
    /// The format is refused. The text says why.
    #[error("{0}")]
    Format(String),
    /// The description is too long.
    #[error("the description has {length} characters; it may have at most {length_max}")]
    LongDescription {
        /// How many it has.
        length: usize,
        /// How many it may have.
        length_max: usize,
    },
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
    match name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
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
            request_id_optional: false,
            description: String::new(),
            count_max: None,
            keys_max: None,
            format: None,
            redis_strings: false,
        }
    }

    /// The namespaces of a fresh cluster, unless its founders want none.
    pub fn fresh_cluster() -> [NamespaceConfig; 2] {
        [
            NamespaceConfig::new("book"),
            NamespaceConfig { section_size: 100_000, ..NamespaceConfig::new("uid") },
        ]
    }

    /// Checks every field, and that the fields fit together.
    ///
    /// # Errors
    /// [`InvalidNamespace`] if a field is out of its range or does not fit the others. The error names the
    /// field, its value and what it may be.
    pub fn check(&self) -> Result<(), InvalidNamespace> {
        // Without `..`: the compiler leads here from a field that is new. The bounds of the last five, if they have any, may
        // change, and are checked before a namespace is proposed (`namespace_limits`).
        let &NamespaceConfig {
            ref name,
            key_kind,
            step,
            step_min: _,
            step_max: _,
            increment,
            start,
            max,
            section_size,
            gapless: _,
            request_id_optional: _,
            description: _,
            count_max: _,
            keys_max: _,
            format: _,
            redis_strings: _,
        } = self;
        check_name(name)?;
        in_range("step", step, 1, NUMBER_MAX)?;
        in_range("increment", increment, 1, NUMBER_MAX)?;
        in_range("max", max, 1, NUMBER_MAX)?;
        in_range("start", start, 1, max)?;
        in_range("section_size", section_size, 1, u64::MAX)?;
        let (step_min, step_max) = self.step_bounds();
        in_range("step_min", step_min, 1, step)?;
        in_range("step_max", step_max, step, NUMBER_MAX)?;
        if step_max.checked_mul(increment).is_none_or(|span| span > NUMBER_MAX) {
            return Err(InvalidNamespace::WideStep { step: step_max, increment });
        }
        if key_kind == KeyKind::Name && section_size != 1 {
            return Err(InvalidNamespace::SectionedNames(section_size));
        }
        self.check_beside_format()?;
        self.check_gapless()
    }

    /// Whether the format is one is checked before a namespace is proposed (`namespace_limits`): a later release may know
    /// other formats.
    fn check_beside_format(&self) -> Result<(), InvalidNamespace> {
        if self.format.is_none() {
            return Ok(());
        }
        let unfit = |field, value| Err(InvalidNamespace::DoesNotFitFormat { field, value });
        match (self.gapless, self.section_size, self.increment) {
            (true, _, _) => unfit("gapless", "true".to_owned()),
            (_, 2.., _) => unfit("section_size", self.section_size.to_string()),
            (_, _, 2..) => unfit("increment", self.increment.to_string()),
            (false, 0 | 1, 0 | 1) => Ok(()),
        }
    }

    fn check_gapless(&self) -> Result<(), InvalidNamespace> {
        if !self.gapless {
            return match self.request_id_optional {
                true => Err(InvalidNamespace::OptionalWithoutGapless),
                false => Ok(()),
            };
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

    /// The configuration with steps that leave a key some thousand of them. Otherwise a few crashes would use its numbers up.
    #[must_use]
    pub fn with_fitting_steps(self) -> Self {
        let numbers = self.max.saturating_sub(self.start) / self.increment.max(1);
        let step_max = (numbers / STEPS_OF_KEY_MIN).max(1);
        NamespaceConfig {
            step: self.step.min(step_max),
            step_min: self.step_min.map(|step| step.min(step_max)),
            step_max: self.step_max.map(|step| step.min(step_max)),
            ..self
        }
    }

    /// The smallest and the greatest step of a section.
    pub fn step_bounds(&self) -> (u64, u64) {
        (self.step_min.unwrap_or(self.step), self.step_max.unwrap_or(self.step))
    }

    /// True if ids share sections with their neighbours. Names never do.
    pub fn shares_sections(&self) -> bool {
        self.section_size > 1
    }

    /// The numbers that the namespace's keys hand out.
    pub fn progression(&self) -> Progression {
        Progression { start: self.start, increment: self.increment, max: self.max }
    }
}

impl Namespace {
    /// A new namespace.
    pub fn new(id: NamespaceId, config: NamespaceConfig) -> Self {
        let max_ever = config.max;
        Namespace { id, config, max_ever, floor: 0, lease_floor: LeaseBound::default() }
    }

    /// No number above this one was ever handed out.
    pub fn greatest_number(&self) -> u64 {
        let progression = Progression { max: self.max_ever, ..self.config.progression() };
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
    field: &'static str, value: u64, min: u64, max: u64,
) -> Result<(), InvalidNamespace> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(InvalidNamespace::OutOfRange { field, value, min, max })
    }
}

#[cfg(test)]
mod tests;

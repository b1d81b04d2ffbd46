//! What of a namespace is refused before it is proposed, and what of it may be changed.

use ratchet_ids::{Format, Source};
use serde::{Deserialize, Serialize};

use super::{
    ids::KeyKind,
    namespace::{InvalidNamespace, NamespaceConfig, in_range},
    progression::NUMBER_MAX,
};

/// The greatest step that is accepted. An unclean leader change may skip one step, so the number space
/// lasts for eight million of them.
pub const STEP_MAX: u64 = 1 << 40;

/// The greatest section_size that is accepted. At an unclean leader change all ids of a section rise together.
pub const SECTION_SIZE_MAX: u64 = 1_000_000;

/// The greatest length of a description, in characters.
pub const DESCRIPTION_CHARS_MAX: usize = 256;

/// Refuses steps above [`STEP_MAX`] before they are proposed.
///
/// # Errors
/// [`InvalidNamespace::OutOfRange`] if a step is above [`STEP_MAX`].
pub fn check_steps(
    step: Option<u64>, step_min: Option<u64>, step_max: Option<u64>,
) -> Result<(), InvalidNamespace> {
    let steps = [("step", step), ("step_min", step_min), ("step_max", step_max)];
    steps.into_iter().try_for_each(|(field, value)| match value {
        Some(value) if value > STEP_MAX => in_range(field, value, 1, STEP_MAX),
        _ => Ok(()),
    })
}

/// Refuses a section_size of 0 or above 1 000 000 before it is proposed.
///
/// # Errors
/// [`InvalidNamespace::OutOfRange`].
pub fn check_section_size(section_size: Option<u64>) -> Result<(), InvalidNamespace> {
    match section_size {
        Some(size) => in_range("section_size", size, 1, SECTION_SIZE_MAX),
        None => Ok(()),
    }
}

/// Refuses what a namespace could not hold as a limit: a count or a quota of 0 when it is created, or one that is no
/// number of ours.
///
/// # Errors
/// [`InvalidNamespace::OutOfRange`].
pub fn check_limits(
    count_max: Option<u64>, keys_max: Option<u64>, least: u64,
) -> Result<(), InvalidNamespace> {
    for (field, limit) in [("count_max", count_max), ("keys_max", keys_max)] {
        if let Some(limit) = limit {
            in_range(field, limit, least, NUMBER_MAX)?;
        }
    }
    Ok(())
}

/// Refuses a description that is too long or holds a control character before it is proposed.
///
/// # Errors
/// [`InvalidNamespace`].
pub fn check_description(description: Option<&str>) -> Result<(), InvalidNamespace> {
    let description = description.unwrap_or_default();
    let length = description.chars().count();
    if length > DESCRIPTION_CHARS_MAX {
        return Err(InvalidNamespace::LongDescription(length));
    }
    match description.chars().find(|c| c.is_control()) {
        Some(c) => Err(InvalidNamespace::ControlCharacter(c)),
        None => Ok(()),
    }
}

/// The format that `text` writes or names. A namespace keeps it in full, so that it stays what it is.
///
/// # Errors
/// [`InvalidNamespace::Format`] if it is none; [`InvalidNamespace::DoesNotFitFormat`] if keys of this kind
/// do not fit it: ids that any holder of a worker id makes know no keys, and a field for the key holds an id.
pub fn check_format(text: &str, key_kind: KeyKind) -> Result<Format, InvalidNamespace> {
    let format =
        Format::parse(text).map_err(|invalid| InvalidNamespace::Format(invalid.to_string()))?;
    let unfit = || {
        Err(InvalidNamespace::DoesNotFitFormat { field: "key_kind", value: key_kind.to_string() })
    };
    match (format.source(), key_kind) {
        (Source::Worker, KeyKind::Name) => unfit(),
        (_, KeyKind::Name) if format.has_key() => unfit(),
        _ => Ok(format),
    }
}

// What may be changed of a namespace, and what may not once it has handed out numbers.

/// A change of a namespace. `None` leaves a field as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NamespaceChange {
    /// The new step.
    pub step: Option<u64>,
    /// The new smallest step; 0 for none.
    pub step_min: Option<u64>,
    /// The new greatest step; 0 for none.
    pub step_max: Option<u64>,
    /// The new maximum.
    pub max: Option<u64>,
    /// The new description.
    pub description: Option<String>,
    /// The new limit on the numbers of a key in one request; 0 for none.
    pub count_max: Option<u64>,
    /// The new quota of keys; 0 for none.
    pub keys_max: Option<u64>,
    /// The new distance between numbers.
    pub increment: Option<u64>,
    /// The new first number.
    pub start: Option<u64>,
    /// The new size of sections.
    pub section_size: Option<u64>,
    /// The new kind of keys.
    pub key_kind: Option<KeyKind>,
    /// Whether numbers may be asked for without a request id from now on.
    pub request_id_optional: Option<bool>,
    /// Whether Redis clients get strings from now on.
    pub redis_strings: Option<bool>,
}

impl NamespaceChange {
    /// The configuration with this change.
    pub fn applied_to(&self, config: NamespaceConfig) -> NamespaceConfig {
        NamespaceConfig {
            step: self.step.unwrap_or(config.step),
            step_min: none_for_0(self.step_min, config.step_min),
            step_max: none_for_0(self.step_max, config.step_max),
            max: self.max.unwrap_or(config.max),
            description: self.description.clone().unwrap_or(config.description),
            count_max: none_for_0(self.count_max, config.count_max),
            keys_max: none_for_0(self.keys_max, config.keys_max),
            increment: self.increment.unwrap_or(config.increment),
            start: self.start.unwrap_or(config.start),
            section_size: self.section_size.unwrap_or(config.section_size),
            key_kind: self.key_kind.unwrap_or(config.key_kind),
            gapless: config.gapless,
            request_id_optional: self.request_id_optional.unwrap_or(config.request_id_optional),
            format: config.format,
            redis_strings: self.redis_strings.unwrap_or(config.redis_strings),
            name: config.name,
        }
    }
}

impl NamespaceChange {
    /// Refuses another kind of keys for ids with a format. Which kind fits was checked when the namespace was created.
    ///
    /// # Errors
    /// [`InvalidNamespace::DoesNotFitFormat`].
    pub fn check_keys_of(&self, config: &NamespaceConfig) -> Result<(), InvalidNamespace> {
        match self.key_kind.filter(|kind| *kind != config.key_kind) {
            Some(kind) if config.format.is_some() => Err(InvalidNamespace::DoesNotFitFormat {
                field: "key_kind",
                value: kind.to_string(),
            }),
            Some(_) | None => Ok(()),
        }
    }
}

/// Why the configuration `old` cannot become `new` once keys have numbers: a reason for each field. `None` if it can.
pub fn why_fixed(old: &NamespaceConfig, new: &NamespaceConfig) -> Option<String> {
    let fields = [
        (
            old.increment != new.increment,
            "increment (ceilings are counted in it: later numbers of a key could lie below earlier ones)",
        ),
        (
            old.start != new.start,
            "start (it says which numbers there are: keys would go on between the numbers that they had)",
        ),
        (
            old.section_size != new.section_size,
            "section_size (keys would move to other sections, with lower ceilings)",
        ),
        (
            old.key_kind != new.key_kind,
            "key_kind (the keys that have numbers would be keys no more)",
        ),
    ];
    let reasons: Vec<&str> =
        (fields.into_iter()).filter_map(|(differs, reason)| differs.then_some(reason)).collect();
    (!reasons.is_empty()).then(|| reasons.join(", "))
}

fn none_for_0(new: Option<u64>, old: Option<u64>) -> Option<u64> {
    new.map_or(old, |new| (new > 0).then_some(new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::NamespaceConfig;

    #[test]
    fn a_step_above_the_bound_is_refused_before_it_is_proposed_but_applied_if_it_was() {
        let refused = |steps: [Option<u64>; 3]| check_steps(steps[0], steps[1], steps[2]);
        let above = Some(STEP_MAX + 1);
        for (steps, field) in [
            ([above, None, None], "step is 1099511627777"),
            ([None, above, None], "step_min is 1099511627777"),
            ([None, None, above], "step_max is 1099511627777"),
        ] {
            let text = refused(steps).unwrap_err().to_string();
            assert!(text.contains(field) && text.contains("1099511627776"), "{text}");
        }
        assert_eq!(refused([Some(STEP_MAX), Some(0), None]), Ok(()));
        let of_another_release =
            NamespaceConfig { step: STEP_MAX + 1, ..NamespaceConfig::new("book") };
        assert_eq!(of_another_release.check(), Ok(()));
    }

    #[test]
    fn a_limit_that_cannot_work_is_refused_and_the_error_names_it_and_its_value() {
        let size = |size| check_section_size(Some(size)).unwrap_err().to_string();
        assert_eq!(size(0), "section_size is 0; it must lie between 1 and 1000000");
        assert_eq!(size(1_000_001), "section_size is 1000001; it must lie between 1 and 1000000");
        assert_eq!(check_section_size(Some(1_000_000)), Ok(()));
        let limits = |count_max, keys_max| {
            let refused = check_limits(count_max, keys_max, 1).unwrap_err();
            refused.to_string()
        };
        assert!(limits(Some(0), None).contains("count_max is 0"));
        assert!(limits(None, Some(0)).contains("keys_max is 0"));
        assert!(limits(None, Some(1 << 63)).contains("keys_max is 9223372036854775808"));
        let long = check_description(Some(&"é".repeat(257))).unwrap_err();
        assert!(long.to_string().contains("257"), "{long}");
        assert_eq!(check_description(Some(&"é".repeat(256))), Ok(()));
        let control = check_description(Some("two\nlines")).unwrap_err();
        assert!(control.to_string().contains("'\\n'"), "{control}");
    }

    #[test]
    fn a_format_that_is_none_or_does_not_fit_the_keys_is_refused_and_a_name_stands_for_its_full_text()
     {
        let format = check_format("snowflake", KeyKind::Id).unwrap();
        let full = format.to_string();
        assert!(full.starts_with("bits "), "{full}");
        assert_eq!(check_format(&full, KeyKind::Id).as_ref(), Ok(&format));
        let refused = |text: &str, kind| check_format(text, kind).unwrap_err().to_string();
        let unknown = refused("snowflakes", KeyKind::Id);
        assert!(unknown.contains("snowflakes"), "{unknown}");
        let names = refused("snowflake", KeyKind::Name);
        assert!(names.starts_with("key_kind is name"), "{names}");
    }
}

//! The limits of a namespace that are checked before it is proposed. An entry that is in the log is applied whatever they are,
//! so another release may have others.

use ratchet_ids::{Format, Source};

use super::{
    key::KeyKind,
    namespace::{InvalidNamespace, in_range},
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

/// Refuses a section_size of 0 or above `SECTION_SIZE_MAX` before it is proposed.
///
/// # Errors
/// [`InvalidNamespace::OutOfRange`].
pub fn check_section_size(section_size: Option<u64>) -> Result<(), InvalidNamespace> {
    match section_size {
        Some(size) => in_range("section_size", size, 1, SECTION_SIZE_MAX),
        None => Ok(()),
    }
}

/// Refuses what a namespace could not hold as a limit: a limit of 0 when it is created, or one that is no
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
        let length_max = DESCRIPTION_CHARS_MAX;
        return Err(InvalidNamespace::LongDescription { length, length_max });
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

//! Checks of a request before anything is done: of its namespace, the kind of its keys, and its counts.

use crate::{
    consensus::Group,
    node::Config,
    proto::{Refusal, refusal, v1::Reason},
    sequence::{Key, KeyKind, Namespace, NamespaceRefused, check_name},
};

/// Refuses a key that is not of the namespace's kind.
///
/// # Errors
/// INVALID_ARGUMENT, with what to give instead.
pub(in crate::node) fn check_kind(namespace: &Namespace, key: Key<'_>) -> Result<(), Refusal> {
    if key.kind() == namespace.config.key_kind {
        return Ok(());
    }
    let give = match namespace.config.key_kind {
        KeyKind::Id => "give an id (key.id)",
        KeyKind::Name => "give a name (key.name, ratchet next --name)",
    };
    Err(refusal!(
        KeyKindMismatch,
        "namespace {:?} takes keys of kind {}; {key} is of kind {}: {give}",
        namespace.config.name,
        namespace.config.key_kind,
        key.kind()
    ))
}

/// Refuses a count of 0, or above the namespace's `count_max` or the node's.
///
/// # Errors
/// INVALID_ARGUMENT.
pub fn check_count_of(namespace: &Namespace, config: &Config, count: u64) -> Result<(), Refusal> {
    let most = namespace.config.count_max.unwrap_or(u64::MAX).min(config.count_max);
    match (1..=most).contains(&count) {
        true => Ok(()),
        false => Err(too_large(namespace, count, most)),
    }
}

/// Why a count is refused of which the namespace's `count_max` and the node's allow `most`.
pub fn too_large(namespace: &Namespace, count: u64, most: u64) -> Refusal {
    match namespace.config.count_max {
        Some(own) if own <= most && count > 0 => refusal!(
            CountTooLarge,
            "count is {count}; namespace {:?} gives between 1 and {most} numbers of a key in one request (its \
             count_max)",
            namespace.config.name
        ),
        _ => not_within(count, most),
    }
}

/// Refuses a count of 0, and one above `most`.
///
/// # Errors
/// INVALID_ARGUMENT.
pub fn check_count(count: u64, most: u64) -> Result<(), Refusal> {
    match (1..=most).contains(&count) {
        true => Ok(()),
        false => Err(not_within(count, most)),
    }
}

fn not_within(count: u64, most: u64) -> Refusal {
    let reason = if count == 0 { Reason::InvalidRequest } else { Reason::CountTooLarge };
    Refusal::new(reason, format!("count is {count}; it must lie between 1 and {most}"))
}

/// Checks a namespace's name.
///
/// # Errors
/// INVALID_ARGUMENT if no namespace can have it.
pub(in crate::node) fn check_namespace(name: &str) -> Result<(), Refusal> {
    check_name(name).map_err(|invalid| refusal!(InvalidRequest, "{invalid}"))
}

/// NOT_FOUND for a namespace's name; INVALID_ARGUMENT if no namespace can have it. So a text never holds a long one.
pub(in crate::node) fn no_namespace(name: &str) -> Refusal {
    let not_found = || NamespaceRefused::NotFound(name.to_owned()).to_string();
    check_namespace(name)
        .map_or_else(|refused| refused, |()| refusal!(NamespaceNotFound, "{}", not_found()))
}

/// A namespace, for a request that only reads.
///
/// # Errors
/// NOT_FOUND if there is none of that name.
pub(in crate::node) fn namespace_named(group: &Group, name: &str) -> Result<Namespace, Refusal> {
    let namespaces = group.view.namespaces();
    (namespaces.by_name(name).cloned()).ok_or_else(|| no_namespace(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Code;

    #[test]
    fn a_name_that_no_namespace_can_have_is_malformed_and_not_repeated_if_it_is_long() {
        assert_eq!(no_namespace("film").code(), Code::NotFound);
        for name in ["", "a b", "film/1", &"x".repeat(1 << 20)] {
            let refused = no_namespace(name);
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
            assert!(refused.message().len() < 300);
        }
    }
}

//! What callers are told of requests that several files refuse: one text each.

use crate::{
    consensus::Group,
    proto::{Refusal, refusal},
    sequence::{Namespace, NamespaceRefused, check_name},
};

/// Checks a namespace's name.
///
/// # Errors
/// INVALID_ARGUMENT if no namespace can have it.
pub(super) fn check_namespace(name: &str) -> Result<(), Refusal> {
    check_name(name).map_err(|invalid| refusal!(InvalidRequest, "{invalid}"))
}

/// NOT_FOUND for a namespace's name; INVALID_ARGUMENT if no namespace can have it. So a text never holds a long one.
pub(super) fn no_namespace(name: &str) -> Refusal {
    let not_found = || NamespaceRefused::NotFound(name.to_owned()).to_string();
    check_namespace(name)
        .map_or_else(|refused| refused, |()| refusal!(NamespaceNotFound, "{}", not_found()))
}

/// A namespace, for a request that only reads.
///
/// # Errors
/// NOT_FOUND if there is none of that name.
pub(super) fn namespace_named(group: &Group, name: &str) -> Result<Namespace, Refusal> {
    let namespaces = group.view().namespaces();
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

//! The grant that an action needs, and whether some grants are enough for it.

use std::fmt;

use super::{
    grant::{Grant, Verb},
    pattern::ALL_NAMESPACES,
};

/// The grant that an action needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// None: any known caller may do it.
    Anything,
    /// This, on the namespace of that name.
    On(Verb, &'a str),
    /// This, on all namespaces.
    OnAll(Verb),
    /// This, on whatever namespaces it is granted.
    OnSome(Verb),
    /// One that is granted to nobody: the nodes of the cluster alone may do it.
    OfNodes,
}

impl<'a> Wanted<'a> {
    /// The verb that has to be granted. `None` if it is no single one.
    pub fn verb(self) -> Option<Verb> {
        match self {
            Wanted::On(verb, _) | Wanted::OnAll(verb) | Wanted::OnSome(verb) => Some(verb),
            Wanted::Anything | Wanted::OfNodes => None,
        }
    }

    /// The namespace on which it has to be granted, if it is one.
    pub fn namespace(self) -> Option<&'a str> {
        match self {
            Wanted::On(_, namespace) => Some(namespace),
            Wanted::Anything | Wanted::OnAll(_) | Wanted::OnSome(_) | Wanted::OfNodes => None,
        }
    }
}

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Anything => f.write_str("anything"),
            Wanted::On(verb, namespace) => write!(f, "{verb}:{namespace}"),
            Wanted::OnAll(verb) => write!(f, "{verb}:{ALL_NAMESPACES}"),
            Wanted::OnSome(verb) => write!(f, "{verb} on any namespace"),
            Wanted::OfNodes => f.write_str("what only nodes do"),
        }
    }
}

/// Whether one of these grants allows it.
pub(super) fn grants(grants: &[Grant], wanted: Wanted<'_>) -> bool {
    grants.iter().any(|grant| match wanted {
        Wanted::Anything => true,
        Wanted::On(verb, namespace) => grant.verb == verb && grant.namespaces.fits(namespace),
        Wanted::OnAll(verb) => grant.verb == verb && grant.namespaces.is_all(),
        Wanted::OnSome(verb) => grant.verb == verb,
        Wanted::OfNodes => false,
    })
}

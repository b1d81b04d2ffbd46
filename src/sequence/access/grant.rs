//! Grants: a verb, on namespaces.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::pattern::{ALL_NAMESPACES, NamespacePattern};

/// The action that a grant allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verb {
    /// Take numbers and ids.
    Next,
    /// See numbers, keys and namespaces; on all namespaces, the cluster.
    Read,
    /// Raise floors.
    Raise,
    /// Create, change and delete namespaces.
    Namespaces,
    /// Administer the cluster.
    Admin,
}

impl Verb {
    /// All verbs.
    pub const ALL: [Verb; 5] = [Verb::Next, Verb::Read, Verb::Raise, Verb::Namespaces, Verb::Admin];

    /// Whether those who may do it change what there is for others.
    pub fn is_administrative(self) -> bool {
        matches!(self, Verb::Namespaces | Verb::Admin)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Next => "next",
            Verb::Read => "read",
            Verb::Raise => "raise",
            Verb::Namespaces => "namespaces",
            Verb::Admin => "admin",
        })
    }
}

/// A verb on namespaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Grant {
    /// The action.
    pub verb: Verb,
    /// On which namespaces.
    pub namespaces: NamespacePattern,
}

impl Grant {
    /// Everything.
    pub fn everything() -> Vec<Grant> {
        let all = || NamespacePattern(ALL_NAMESPACES.to_owned());
        Verb::ALL.map(|verb| Grant { verb, namespaces: all() }).to_vec()
    }

    /// Whether the owner of this one may do all that `other` allows.
    pub fn covers(&self, other: &Grant) -> bool {
        // No name has a star: a pattern fits as a name would that begins so.
        self.verb == other.verb && self.namespaces.fits(&other.namespaces.0)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.verb, self.namespaces.0)
    }
}

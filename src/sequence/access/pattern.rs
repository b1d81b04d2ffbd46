//! Patterns: which namespaces a grant or a quota is about.

use serde::{Deserialize, Serialize};

use super::limits::InvalidAccess;
use crate::sequence::namespace::{NAMESPACE_NAME_CHARS_MAX, check_name};

/// The pattern that all names fit.
pub(super) const ALL_NAMESPACES: &str = "*";

/// The name of a namespace, the beginning of names with a star behind it, or a star alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamespacePattern(pub(super) String);

impl NamespacePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`InvalidAccess`] if no name of a namespace fits it.
    pub fn parse(text: &str) -> Result<Self, InvalidAccess> {
        let beginning = text.strip_suffix('*').unwrap_or(text);
        let fits = (beginning.is_empty() && !text.is_empty())
            || (beginning.chars().count() <= NAMESPACE_NAME_CHARS_MAX
                && check_name(beginning).is_ok());
        match fits {
            true => Ok(NamespacePattern(text.to_owned())),
            false => Err(InvalidAccess::Namespaces(text.to_owned())),
        }
    }

    /// The one name that fits; `None` if several may.
    pub fn name(&self) -> Option<&str> {
        (!self.0.ends_with('*')).then_some(&self.0)
    }

    /// The text that [`NamespacePattern::parse`] reads.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn fits(&self, namespace: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => namespace.starts_with(beginning),
            None => self.0 == namespace,
        }
    }

    pub(super) fn is_all(&self) -> bool {
        self.0 == ALL_NAMESPACES
    }
}

//! The keys that callers ask for, and the namespaces that they are in.

use crate::proto::{Key, key::Kind};

/// The namespace in which each key has a section of its own.
pub const OWN: &str = "own";
/// The namespace in which keys share sections.
pub const SHARED: &str = "shared";
/// The namespace whose keys are names, each with a section of its own.
pub const NAMED: &str = "named";
/// How many ids share a section of [`SHARED`].
pub const SHARED_SECTION_SIZE: u64 = 1_000;

/// The distance between two neighbouring numbers of a key, in all of them.
pub const INCREMENT: u64 = 1;

/// A key in its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The namespace.
    pub namespace: &'static str,
    /// The id in it, or the number of the name.
    pub id: u64,
}

impl Target {
    /// A key that no caller asks for and that is in no history. It shows whether a node answers.
    pub const UNUSED: Target = Target { namespace: OWN, id: u64::MAX };

    /// The name in histories: "namespace/id", also for names.
    pub fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.id)
    }

    /// The key of this name in a history; `None` for a namespace that callers do not use.
    pub fn from_name(name: &str) -> Option<Target> {
        let (namespace, id) = name.split_once('/')?;
        let namespace = [OWN, SHARED, NAMED].into_iter().find(|known| *known == namespace)?;
        let id = id.parse().ok()?;
        Some(Target { namespace, id })
    }

    /// The key as the API takes it.
    pub fn key(&self) -> Option<Key> {
        let kind = match self.is_named() {
            true => Kind::Name(self.key_text().into()),
            false => Kind::Id(self.id),
        };
        Some(Key { kind: Some(kind) })
    }

    /// Whether the key is a name.
    pub fn is_named(&self) -> bool {
        self.namespace == NAMED
    }

    /// The key as texts have it.
    pub fn key_text(&self) -> String {
        match self.is_named() {
            true => format!("key-{}", self.id),
            false => self.id.to_string(),
        }
    }
}

//! The identifiers of nodes, sets, namespaces and sections.

use serde::{Deserialize, Serialize};

/// Identifies a node of a cluster. Chosen by the operator, at least 1, never reused.
pub type NodeId = u64;

/// Identifies a set: one Raft group with the sections that it owns.
pub type SetId = u32;

/// Identifies a namespace inside a cluster. Assigned at creation, from 1, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamespaceId(pub u32);

/// Identifies a section inside its namespace: the keys that share one ceiling.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SectionKey {
    /// The `section_size` ids that begin at this number x `section_size`.
    Id(u64),
    /// The one key with this name.
    Name(Box<[u8]>),
}

impl SectionKey {
    /// How many bytes it has where it is stored, at most.
    pub fn bytes(&self) -> usize {
        match self {
            SectionKey::Id(_) => size_of::<u64>(),
            SectionKey::Name(name) => name.len(),
        }
    }
}

/// Identifies a section of a set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SectionId {
    /// The namespace.
    pub namespace: NamespaceId,
    /// Which section of the namespace.
    pub key: SectionKey,
}

//! What nodes, sets, namespaces and sections are identified by.

use serde::{Deserialize, Serialize};

/// Identifies a node of a cluster; chosen by the operator, at least 1, never reused.
pub type NodeId = u64;

/// Identifies a set: one Raft group with the sections that it owns.
pub type SetId = u32;

/// Identifies a namespace inside a cluster; assigned at creation, from 1, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamespaceId(pub u32);

/// Which keys of a namespace share a ceiling.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SectionKey {
    /// The ids from this number x `section_size` on, `section_size` of them.
    Id(u64),
    /// The one key of this name.
    Name(Box<[u8]>),
}

/// A section of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SectionId {
    /// The namespace.
    pub namespace: NamespaceId,
    /// The keys.
    pub key: SectionKey,
}

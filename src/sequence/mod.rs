//! The domain, pure: namespaces, keys, sections, ranges, and what a log entry does to them.
//!
//! Uses nothing of this crate: no I/O, no async, no clock. Its one invariant: `max_seq` of a
//! section only grows, but for a *trim* by the very term that raised it, and that never below what
//! was handed out.

mod command;
mod key;
mod namespace;
mod range;
mod section;

pub use command::{Bump, Bumped, Command, NamespaceRefused, Outcome, Table, Trim, apply};
pub use key::{InvalidKey, KEY_NAME_BYTES_MAX, Key, KeyKind, OwnedKey};
pub use namespace::{
    InvalidNamespace, NAMESPACE_NAME_CHARS_MAX, Namespace, NamespaceConfig, NamespaceId, STEP_MAX,
    check_name, check_steps,
};
pub use range::{Lattice, NUMBER_MAX, Range};
pub use section::{Chunk, Exhausted, SectionId, SectionKey, SectionRecord};

/// Identifies a node of a cluster; chosen by the operator, at least 1, never reused.
pub type NodeId = u64;

/// Identifies a set: one Raft group with the sections that it owns.
pub type SetId = u32;

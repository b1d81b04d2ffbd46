//! The domain, pure: namespaces, keys, sections, ranges, and what a log entry does to them.
//!
//! Uses nothing of this crate: no I/O, no async, no clock. Its one invariant: `max_seq` of a
//! section only grows, but for a *trim* by the very term that raised it, and that never below what
//! was handed out.

mod apply;
mod command;
mod ids;
mod key;
mod namespace;
mod progression;
mod section;

pub use apply::{Table, apply};
pub use command::{Bump, Bumped, Command, NamespaceRefused, Outcome, Trim};
pub use ids::{NamespaceId, NodeId, SectionId, SectionKey, SetId};
pub use key::{InvalidKey, KEY_NAME_BYTES_MAX, Key, KeyKind};
pub use namespace::{
    InvalidNamespace, NAMESPACE_NAME_CHARS_MAX, Namespace, NamespaceConfig, STEP_MAX, check_name,
    check_steps,
};
pub use progression::{NUMBER_MAX, Progression, Range};
pub use section::{Chunk, Exhausted, SectionRecord};

//! Where each record stands: the column families, and the keys in them. Pure.
//!
//! Invariant: the keys of a set start with its id.

use crate::sequence::{NamespaceId, SectionId, SectionKey, SetId};

/// A column family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// The Raft logs.
    Log,
    /// Raft's hard state, and who the node is.
    HardState,
    /// The applied tables.
    Applied,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 3] = [Family::Log, Family::HardState, Family::Applied];

    /// Its name in the database.
    pub fn name(self) -> &'static str {
        match self {
            Family::Log => "log",
            Family::HardState => "hard_state",
            Family::Applied => "applied",
        }
    }
}

/// Where the identity stands in the database.
pub const IDENTITY_KEY: &[u8] = b"identity";
/// Where an unfinished recovery is written down.
pub const RECOVERY_KEY: &[u8] = b"recovery";

/// Where the vote of `set` stands.
pub fn vote_key(set: SetId) -> [u8; 5] {
    hard_state_key(set, b'v')
}

/// Where the last purged place of `set` stands.
pub fn purged_key(set: SetId) -> [u8; 5] {
    hard_state_key(set, b'p')
}

fn hard_state_key(set: SetId, what: u8) -> [u8; 5] {
    let [a, b, c, d] = set.to_be_bytes();
    [a, b, c, d, what]
}

/// Where entry `index` of `set` stands.
pub fn log_key(set: SetId, index: u64) -> Vec<u8> {
    [set.to_be_bytes().as_slice(), &index.to_be_bytes()].concat()
}

/// Where it stands how far the table of `set` is.
pub fn meta_key(set: SetId) -> Vec<u8> {
    [set.to_be_bytes().as_slice(), &[0]].concat()
}

/// What all records of a generation start with.
pub fn generation_prefix(set: SetId, generation: u32) -> Vec<u8> {
    [
        set.to_be_bytes().as_slice(),
        &[1],
        &generation.to_be_bytes(),
    ]
    .concat()
}

/// From where to where, exclusive, all records of a generation lie.
pub fn generation_range(set: SetId, generation: u32) -> (Vec<u8>, Vec<u8>) {
    (
        generation_prefix(set, generation),
        generation_prefix(set, generation + 1),
    )
}

/// Where, exclusive, the records of all generations of `set` end.
pub fn generations_end(set: SetId) -> Vec<u8> {
    [set.to_be_bytes().as_slice(), &[2]].concat()
}

/// What the namespaces under `prefix` start with.
pub fn namespaces_prefix(prefix: &[u8]) -> Vec<u8> {
    [prefix, b"n"].concat()
}

/// Where a namespace stands.
pub fn namespace_key(prefix: &[u8], id: NamespaceId) -> Vec<u8> {
    [prefix, b"n", &id.0.to_be_bytes()].concat()
}

/// From where to where, exclusive, the sections under `prefix` lie.
pub fn sections_range(prefix: &[u8]) -> (Vec<u8>, Vec<u8>) {
    ([prefix, b"s"].concat(), [prefix, b"t"].concat())
}

/// Whether a record of a generation is a section's, by its key without the prefix.
pub fn is_section(key: &[u8]) -> bool {
    key.starts_with(b"s")
}

/// Where a section's record stands.
pub fn section_key(prefix: &[u8], id: &SectionId) -> Vec<u8> {
    let namespace = id.namespace.0.to_be_bytes();
    match &id.key {
        SectionKey::Id(number) => [prefix, b"s", &namespace, b"i", &number.to_be_bytes()].concat(),
        SectionKey::Name(name) => [prefix, b"s", &namespace, b"b", name].concat(),
    }
}

/// The namespace of a section that stands under `key`, without its prefix.
pub fn namespace_of_section(key: &[u8]) -> Option<NamespaceId> {
    let id = key.strip_prefix(b"s")?.first_chunk()?;
    Some(NamespaceId(u32::from_be_bytes(*id)))
}

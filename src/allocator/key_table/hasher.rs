//! Hashes keys and sections, and spreads them over shards. The hash has a seed that only members know, so nobody can choose
//! keys that collide.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::sequence::{Key, Namespace, NamespaceId, SectionId, SectionKey};

/// How many shards the keys are spread over. A power of two.
pub const SHARDS: u32 = 64;

/// The shard of the section with this hash.
#[inline]
pub fn shard_of(section_hash: u64) -> u32 {
    // Bits from the middle: the hash tables use the lowest and the highest ones.
    (section_hash >> 32) as u32 % SHARDS
}

/// Hashes keys and sections. Seeded, so that nobody can choose keys that collide.
#[derive(Debug, Clone)]
pub struct Hasher(FixedState);

impl Hasher {
    /// A hasher that agrees with all others of the same seed. The seed must be random, and be told to members of
    /// the cluster alone.
    pub fn new(seed: u64) -> Self {
        Hasher(FixedState::with_seed(seed))
    }

    /// The hash of a key.
    #[inline]
    pub fn key(&self, namespace: NamespaceId, key: Key<'_>) -> u64 {
        match key {
            Key::Id(id) => self.id(namespace, id),
            Key::Name(name) => self.0.hash_one((name, namespace.0)),
        }
    }

    /// The hash of the section of a key, whose own hash is `key_hash`. It chooses the shard, so that a
    /// section and its keys are in one shard.
    #[inline]
    pub fn section(&self, key_hash: u64, namespace: &Namespace, key: Key<'_>) -> u64 {
        match key {
            Key::Id(id) if namespace.config.shares_sections() => {
                self.id(namespace.id, id / namespace.config.section_size)
            }
            Key::Id(_) | Key::Name(_) => key_hash,
        }
    }

    /// The hash of a section by its identifier.
    pub fn section_id(&self, section: &SectionId) -> u64 {
        match &section.key {
            SectionKey::Id(id) => self.id(section.namespace, *id),
            SectionKey::Name(name) => self.key(section.namespace, Key::Name(name)),
        }
    }

    #[inline]
    fn id(&self, namespace: NamespaceId, id: u64) -> u64 {
        self.0.hash_one((id, namespace.0))
    }
}

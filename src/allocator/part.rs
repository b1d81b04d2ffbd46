//! A part of a memory on its way to another node: the types that are sent. Pure.
//!
//! The receiver's tables have the slots of the sender's, under the same numbers. So a key is named once; after that a
//! change of it has some ten bytes.
//!
//! Not sent: calls that wait (they have an answer before the last part), when a chunk came (the clocks differ),
//! and that a section is exhausted or beyond its namespace's `keys_max` (its next bump tells).

use serde::{Deserialize, Serialize};

use crate::{
    allocator::section::owned::{ChunkTime, Owned},
    sequence::{MemoryDigest, NUMBER_MAX, NamespaceId, SectionId},
};

/// The format of a memory on its way: the types of this file, how many shards there are, and how keys are hashed.
/// Another release may have another one.
pub const MEMORY_FORMAT: u32 = 3;

/// The facts about the sender's memory that the receiver needs before its first part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryHeader {
    /// The term.
    pub term: u64,
    /// The seed of its hasher.
    pub seed: u64,
    /// The format of its parts, [`MEMORY_FORMAT`].
    pub format: u32,
}

/// Changes of some shards. Later entries, and later parts, are newer.
pub type MemoryPart = Vec<(u32, ShardChanges)>;

/// Changes of one shard.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ShardChanges {
    /// Sections that ids share.
    pub sections: Vec<SharedSectionChange>,
    /// Ids with a section of their own.
    pub ids: Vec<OwnKeyChange<u64>>,
    /// Names.
    pub names: Vec<OwnKeyChange<Box<[u8]>>>,
    /// Ids that share sections.
    pub shared_keys: Vec<SharedKeyChange>,
    /// Ids that share sections and lie close together.
    pub pages: Vec<PageChange>,
    /// Sections that are still to be checkpointed. One may come twice, or after it was checkpointed. To checkpoint it again
    /// does no harm.
    pub uncheckpointed: Vec<SectionPlace>,
}

impl ShardChanges {
    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.sections.len()
            + self.ids.len()
            + self.names.len()
            + self.shared_keys.len()
            + self.pages.iter().map(PageChange::len).sum::<usize>()
            + self.uncheckpointed.len()
    }
}

/// Where a section is in its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SectionPlace {
    /// The number of the slot of an id with a section of its own.
    Id(u32),
    /// The number of the slot of a name.
    Name(u32),
    /// The number of a section that ids share.
    Shared(u32),
}

/// A key with a section of its own, or a vacant slot, of which only the number counts.
#[derive(Debug, Serialize, Deserialize)]
pub struct OwnKeyChange<K> {
    /// The number of its slot.
    pub slot: SlotNumber<(NamespaceId, K)>,
    /// Its next number, if the section has that many.
    pub next: u64,
    /// Its section.
    pub section: OwnSection,
}

/// A key that shares its section.
#[derive(Debug, Serialize, Deserialize)]
pub struct SharedKeyChange {
    /// The number of its slot. Of a new one also the namespace, the id, and the number of the section.
    pub slot: SlotNumber<(NamespaceId, u64, u32)>,
    /// Its next number, if the section has that many.
    pub next: u64,
}

/// A page of ids that share a section.
#[derive(Debug, Serialize, Deserialize)]
pub struct PageChange {
    /// The number of its slot. Of a new one also the namespace, the first id, and the number of the section.
    pub page: SlotNumber<(NamespaceId, u64, u32)>,
    /// The ids that were changed.
    pub next: NextNumbers,
}

/// The next numbers of some ids of a page, by their places in it.
pub type NextNumbers = Vec<(u8, u64)>;

/// A section that ids share.
#[derive(Debug, Serialize, Deserialize)]
pub struct SharedSectionChange {
    /// Its number.
    pub number: SlotNumber<SectionId>,
    /// Its step and its limits.
    pub section: WholeSection,
}

/// The number of a slot. New slots come in the order of their numbers, without a hole.
#[derive(Debug, Serialize, Deserialize)]
pub enum SlotNumber<N> {
    /// The number that follows the last one, and what is told of a new slot.
    New(N),
    /// The number of a slot that was sent before.
    Known(u32),
    /// The number that follows the last one: a slot without a key.
    Vacant,
}

/// The section of a key that has it for itself.
#[derive(Debug, Serialize, Deserialize)]
pub enum OwnSection {
    /// The term has no chunk of it.
    Untouched,
    /// It is in its key's slot.
    InSlot {
        /// From the next number up to the ceiling. Modulo 2^64: the next number may lie above the ceiling.
        left: u64,
        /// From the number above which a bump is asked for up to the ceiling.
        margin: u64,
    },
    /// It does not fit the slot.
    Beside(WholeSection),
}

/// A section with a step of its own.
#[derive(Debug, Serialize, Deserialize)]
pub struct WholeSection {
    /// How many numbers a bump fills it up to.
    pub step: u64,
    /// The floor, the ceiling, and the number above which a bump is asked for. `None`: the term has no chunk of it.
    pub owned: Option<(u64, u64, u64)>,
}

/// The digest of what was sent, or has arrived, so far.
pub struct Digest {
    parts: u64,
    crc: crc32fast::Hasher,
}

impl Digest {
    /// The digest of a memory of which nothing but the header was sent.
    pub fn new(header: &MemoryHeader) -> Self {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&header.term.to_le_bytes());
        crc.update(&header.seed.to_le_bytes());
        Digest { parts: 0, crc }
    }

    /// Adds the next part.
    pub fn add(&mut self, part: &[u8]) {
        self.parts += 1;
        self.crc.update(part);
    }

    /// The digest.
    pub fn value(&self) -> MemoryDigest {
        MemoryDigest { parts: self.parts, checksum: self.crc.clone().finalize() }
    }
}

/// A part that no sender of this release sends. The text says what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a part of a memory {0}")]
pub struct DamagedPart(pub &'static str);

/// No key's next number is 0.
pub const NO_NEXT_NUMBER: DamagedPart = DamagedPart("has a key whose next number is 0");

/// The sender hashes otherwise. Keys would not be found where they are, and would begin again where they began.
pub const OTHER_HASH: DamagedPart = DamagedPart(
    "is of a release with another hash function; install the same release on all nodes",
);

impl PageChange {
    /// How many changes it counts for.
    pub fn len(&self) -> usize {
        self.next.len().max(1)
    }
}

impl WholeSection {
    /// A section, as it is sent.
    pub fn new(step: u64, owned: Option<&Owned>) -> Self {
        let owned = owned.map(|owned| (owned.floor, owned.ceiling, owned.refill_at));
        WholeSection { step, owned }
    }

    /// The part of it that the term owns.
    ///
    /// # Errors
    /// [`DamagedPart`] if the limits are out of order.
    pub fn owned(&self) -> Result<Option<Owned>, DamagedPart> {
        let Some((floor, ceiling, refill_at)) = self.owned else {
            return Ok(None);
        };
        // A key that has used its section up, in a slot until its bump is under way, has its floor at the ceiling.
        if floor > ceiling || refill_at > ceiling || ceiling > NUMBER_MAX {
            return Err(DamagedPart("has a section whose limits are out of order"));
        }
        Ok(Some(Owned { floor, ceiling, refill_at, came_at: ChunkTime::UNKNOWN }))
    }
}

//! The memory of a term that another node led and hands off, as far as it has arrived here.
//!
//! Invariant: it is used at most once, by the term whose leader takes it over, and only if all of it has arrived.

use super::{
    key_table::hasher::SHARDS,
    memory::shards::Shards,
    part::{DamagedPart, Digest, MEMORY_FORMAT, MemoryHeader, MemoryPart},
};
use crate::{
    sequence::MemoryDigest,
    storage::{
        BlockingExecutor,
        codec::{self, CodecError},
    },
};

/// The memory of a term that another node led.
pub struct ReceivedMemory {
    term: u64,
    shards: Shards,
    /// For each shard, how many shared sections its keys refer to.
    sections_needed: Vec<u32>,
    digest: Digest,
    bytes_max: usize,
    work: BlockingExecutor,
}

/// Why a memory is not taken in.
#[derive(Debug, thiserror::Error)]
pub enum NotReceived {
    /// It needs more room than this node gives it.
    #[error("the memory needs more room than this node gives it")]
    TooLarge,
    /// Another release sends it, in another format.
    #[error(
        "the memory has format {0}, this release takes {MEMORY_FORMAT}; handovers between these releases return numbers \
         instead, and there is nothing to do once all nodes have the same"
    )]
    Format(u32),
    /// A part cannot be decoded.
    #[error("a part of the memory cannot be read: {0}")]
    Codec(#[from] CodecError),
    /// A part does not fit those before.
    #[error(transparent)]
    Damaged(#[from] DamagedPart),
}

impl ReceivedMemory {
    /// Begins to take in the memory that `header` announces. It may take `bytes_max` bytes here.
    ///
    /// # Errors
    /// [`NotReceived::Format`].
    pub fn begin(
        header: &MemoryHeader, bytes_max: usize, work: BlockingExecutor,
    ) -> Result<Self, NotReceived> {
        if header.format != MEMORY_FORMAT {
            return Err(NotReceived::Format(header.format));
        }
        Ok(ReceivedMemory {
            term: header.term,
            shards: Shards::new(header.seed),
            sections_needed: vec![0; SHARDS as usize],
            digest: Digest::new(header),
            bytes_max,
            work,
        })
    }

    /// The term whose memory it is.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Takes in the next part. Its time grows with the part, so call it where blocking is allowed.
    ///
    /// # Errors
    /// [`NotReceived`]. This memory is of no use then.
    pub fn take_part(&mut self, bytes: &[u8]) -> Result<(), NotReceived> {
        self.digest.add(bytes);
        let part: MemoryPart = codec::decode(bytes)?;
        for (number, changes) in part {
            let shard = self.shards.get_mut(number);
            let needed = self.sections_needed.get_mut(number as usize);
            let (Some((shard, hasher)), Some(needed)) = (shard, needed) else {
                return Err(DamagedPart("names a shard that there is not").into());
            };
            shard.apply_changes((hasher, number), changes, needed)?;
        }
        let footprint = self.shards.footprint();
        match footprint.bytes - footprint.vacant_bytes > self.bytes_max {
            true => Err(NotReceived::TooLarge),
            false => Ok(()),
        }
    }

    /// Identifies what has arrived. Call it after the last part.
    ///
    /// # Errors
    /// [`NotReceived::Damaged`] if something is missing.
    pub fn digest(&self) -> Result<MemoryDigest, NotReceived> {
        let mut shards = self.shards.each().zip(&self.sections_needed);
        match shards.all(|(shard, needed)| shard.has_sections(*needed)) {
            true => Ok(self.digest.value()),
            false => Err(DamagedPart("lacks sections that its keys refer to").into()),
        }
    }

    /// The shards, for the term that takes them over.
    pub(super) fn into_shards(mut self) -> Shards {
        std::mem::replace(&mut self.shards, Shards::new(0))
    }
}

impl Drop for ReceivedMemory {
    fn drop(&mut self) {
        // The time that it takes grows with the keys.
        let shards = std::mem::replace(&mut self.shards, Shards::new(0));
        self.work.run_detached(move || drop(shards));
    }
}

#[cfg(test)]
mod tests;

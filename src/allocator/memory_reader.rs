//! Reads a term's memory, to be sent to the node that is to lead next, while the term serves. The first delta is all of
//! it, and each further one has the changes since the one before.
//!
//! Invariant: a delta that is read after no number can be taken any more brings the receiver to the memory's last
//! state.

use std::sync::Arc;

use super::{
    key_table::{changed_slots::Tracking, hasher::SHARDS},
    memory::{Memory, shards::Shards},
    part::{Digest, MEMORY_FORMAT, MemoryHeader, MemoryPart},
};
use crate::{
    sequence::MemoryDigest,
    storage::{
        BlockingExecutor,
        codec::{self, CodecError},
    },
};

/// How many changes a part holds, more or less: some 50 KB, and the names of new keys.
const PART_CHANGES: usize = 4_096;
/// How many changes are taken under one lock. A call that needs the shard waits for that long: some tens of
/// microseconds.
const LOCK_CHANGES: usize = 512;

/// Why a memory could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum NotSent {
    /// The term is lost, and with it the memory.
    #[error("the term is lost")]
    Lost,
    /// A part cannot be encoded.
    #[error("a part of the memory cannot be encoded: {0}")]
    Codec(#[from] CodecError),
    /// The thread that read the memory failed.
    #[error("the memory cannot be read: {0}")]
    Work(#[from] tokio::task::JoinError),
}

/// Reads a term's memory, to be sent. While it lives, the memory tracks its changes.
pub struct MemoryReader {
    memory: Arc<Memory>,
    work: BlockingExecutor,
    digest: Digest,
    tracking: Tracking,
    /// The shard that the delta has come to.
    shard: u32,
    /// How many changes were read.
    changes: usize,
}

impl MemoryReader {
    /// Begins to track the changes of `memory`.
    pub(super) fn new(memory: Arc<Memory>, work: BlockingExecutor) -> Self {
        MemoryReader {
            tracking: memory.shards().begin_tracking(),
            digest: Digest::new(&header_of(&memory)),
            memory,
            work,
            shard: 0,
            changes: 0,
        }
    }

    /// The header that the receiver needs before the first part.
    pub fn header(&self) -> MemoryHeader {
        header_of(&self.memory)
    }

    /// The next part of the delta, as it is sent. `None` at the end of the delta; the next call begins another one.
    ///
    /// # Errors
    /// [`NotSent`]. [`NotSent::Lost`] also if the term has ended at any time before the end of the delta.
    pub async fn next_part(&mut self) -> Result<Option<Vec<u8>>, NotSent> {
        let (memory, tracking, from) = (self.memory.clone(), self.tracking, self.shard);
        // This goes on even if nobody waits for it any more.
        let reading = move || read_part(memory.shards(), tracking, from);
        let read = self.work.run(reading).await;
        let (part, shard, changes) = read??;
        // Read after the part: a term has ended before its first shard is emptied.
        if self.memory.has_ended() {
            return Err(NotSent::Lost);
        }
        self.changes += changes;
        if changes == 0 {
            self.shard = 0;
            return Ok(None);
        }
        self.shard = shard;
        self.digest.add(&part);
        Ok(Some(part))
    }

    /// How many changes were read so far, with repetitions.
    pub fn changes(&self) -> usize {
        self.changes
    }

    /// Identifies what was read so far.
    pub fn digest(&self) -> MemoryDigest {
        self.digest.value()
    }
}

impl Drop for MemoryReader {
    fn drop(&mut self) {
        self.memory.shards().end_tracking(self.tracking);
    }
}

fn header_of(memory: &Memory) -> MemoryHeader {
    MemoryHeader { term: memory.term(), seed: memory.shards().seed(), format: MEMORY_FORMAT }
}

/// Some changes, from shard `shard` on, encoded; where to go on; how many there are.
pub(super) fn read_part(
    shards: &Shards, tracking: Tracking, mut shard: u32,
) -> Result<(Vec<u8>, u32, usize), CodecError> {
    let (mut part, mut count) = (MemoryPart::new(), 0);
    while shard < SHARDS && count < PART_CHANGES {
        match shards.lock(shard).take_changes(tracking, LOCK_CHANGES) {
            Some(changes) => {
                count += changes.len();
                part.push((shard, changes));
            }
            None => shard += 1,
        }
    }
    Ok((codec::encode(&part)?, shard, count))
}

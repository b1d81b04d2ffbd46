//! Which sections of a term are still to be checkpointed, and when an entry of the background is under way: one that
//! checkpoints or releases sections.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use tokio::sync::{MutexGuard, Notify};

use super::{Memory, MemoryPlace};
use crate::{allocator::key_table::hasher::SHARDS, sequence::SectionId};

/// The most sections in an entry of the background that no call waits for, so that a bump behind it does not wait for long.
pub const BACKGROUND_SECTIONS_MAX: usize = 512;

impl Memory {
    /// Notified when the term first uses the chunk that its epoch gave of a section, and when the gate closes.
    pub fn to_checkpoint(&self) -> &Arc<Notify> {
        &self.to_checkpoint
    }

    /// Waits until no entry of the background is under way, and lets none begin while the guard lives. `None` if the
    /// gate is closed: then none begins any more.
    pub async fn begin_background_entry(&self) -> Option<MutexGuard<'_, ()>> {
        let guard = self.background_entry.lock().await;
        (!self.gate.is_closed()).then_some(guard)
    }

    /// Waits until no entry of the background is under way. Call it after the gate was closed.
    pub async fn background_ended(&self) {
        assert!(self.gate.is_closed(), "another entry may begin");
        self.to_checkpoint.notify_one();
        self.room.wake_releaser();
        drop(self.background_entry.lock().await);
    }

    /// How many sections use what the term's epoch gave and are not checkpointed yet.
    pub fn uncheckpointed(&self) -> usize {
        self.shards.each().map(|shard| shard.uncheckpointed()).sum()
    }

    /// Some sections, at most `limit`, that use what the term's epoch gave and are not checkpointed yet, and their places. Each
    /// is returned once.
    pub fn take_uncheckpointed(&self, limit: usize) -> Vec<(SectionId, MemoryPlace)> {
        let mut sections = Vec::new();
        for _ in 0..SHARDS {
            let shard = self.checkpointing.fetch_add(1, Relaxed) % SHARDS;
            let taken = self.shards.lock(shard).take_uncheckpointed(limit - sections.len());
            sections.extend(
                taken.into_iter().map(|(id, section)| (id, MemoryPlace { shard, section })),
            );
            if sections.len() == limit {
                break;
            }
        }
        // In an order that is the same in every run.
        sections.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        sections
    }

    /// Notes that the sections at these places are not checkpointed. [`Memory::take_uncheckpointed`] returned them, and no
    /// entry of the background has begun since: so each place still has the same section.
    pub fn put_uncheckpointed_back(&self, places: Vec<MemoryPlace>) {
        for MemoryPlace { shard, section } in places {
            self.shards.lock(shard).note_uncheckpointed(section);
        }
    }
}

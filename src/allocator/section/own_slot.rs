//! A key that has a section of its own, and the section: one slot of 40 bytes for an id. Pure.
//!
//! The slot holds the key's cursor and what the term owns of the section. Three facts are not stored,
//! because they follow from others:
//!
//! - `refill_at` is the cursor's fast limit.
//! - The floor is the last number before the cursor. If numbers were taken above the floor, the key cannot
//!   take any below the cursor, so that the floor itself is of no use any more.
//! - The step is the namespace's.
//!
//! So a slot cannot hold every section. `shard/own_keys.rs` keeps the others beside the slots.
//!
//! Invariant: what was put into a slot and what comes out of it hand out the same numbers, and answer the
//! same to `Current`.

use std::num::NonZeroU64;

use super::{
    cursor::Cursor,
    owned::{ChunkTime, Owned},
};
use crate::{
    allocator::key_table::{KeyOf, NOBODY, Slot, StoredKey},
    sequence::{NamespaceId, Progression},
};

/// A key and its section. The fields that every call reads come first, in 32 bytes.
#[derive(Debug)]
#[repr(C)]
pub struct OwnSlot<K> {
    key: K,
    /// Where the key stands.
    pub cursor: Cursor,
    /// The namespace of the key.
    pub namespace: NamespaceId,
    came_at: ChunkTime,
    /// `None`: this term has no chunk of the section.
    ceiling: Option<NonZeroU64>,
}

impl<K: StoredKey> Slot for OwnSlot<K> {
    type Key = K;

    fn vacant() -> Self {
        OwnSlot::new(K::default(), NOBODY)
    }

    #[inline]
    fn key(&self) -> &KeyOf<Self> {
        self.key.borrow()
    }

    #[inline]
    fn namespace(&self) -> NamespaceId {
        self.namespace
    }
}

impl<K: StoredKey> OwnSlot<K> {
    /// A key that was not asked for in this term.
    pub fn new(key: K, namespace: NamespaceId) -> Self {
        OwnSlot {
            key,
            cursor: Cursor::new(),
            namespace,
            came_at: ChunkTime::default(),
            ceiling: None,
        }
    }

    /// A key that was asked for in a term of another node, and its section. That node's slot held `next`, and what
    /// it owned of the section: the ceiling, and the number above which a bump is asked for. `None` if the section
    /// is not in the slot.
    pub fn received(
        key: K, namespace: NamespaceId, next: u64, owned: Option<(NonZeroU64, u64)>,
    ) -> Self {
        let mut slot = OwnSlot::new(key, namespace);
        slot.receive(next, owned);
        slot
    }

    /// As [`OwnSlot::received`], for a key that is here already.
    pub fn receive(&mut self, next: u64, owned: Option<(NonZeroU64, u64)>) {
        self.cursor = Cursor::at(next);
        self.ceiling = owned.map(|(ceiling, _)| ceiling);
        if let Some((_, refill_at)) = owned {
            self.cursor.set_fast_limit(refill_at);
        }
        self.came_at = ChunkTime::UNKNOWN;
    }

    /// The key, as it is stored.
    pub fn stored_key(&self) -> &K {
        &self.key
    }

    /// The ceiling of the section in the slot, and the number above which a bump is asked for. `None` if this term has
    /// no chunk of it, or it is not in the slot.
    pub fn limits(&self) -> Option<(NonZeroU64, u64)> {
        Some((self.ceiling?, self.cursor.fast_limit()))
    }

    /// The part of the section that the term owns, as it was put last.
    pub fn owned(&self, progression: Progression) -> Option<Owned> {
        Some(Owned {
            floor: last_before(self.cursor.next(), progression),
            ceiling: self.ceiling?.get(),
            refill_at: self.cursor.fast_limit(),
            came_at: self.came_at,
        })
    }

    /// Puts what the term owns of the section into the slot, and lets the key take numbers up to
    /// `refill_at` without asking. False if it does not fit: the floor is no number of the namespace, and
    /// nothing was taken above it yet.
    #[must_use]
    pub fn put(&mut self, owned: Option<&Owned>, progression: Progression) -> bool {
        let Some(owned) = owned else {
            self.ceiling = None;
            self.cursor.stop_fast_path();
            return true;
        };
        let current = owned.current(Some(&self.cursor), progression);
        if let Some(lowest) = owned.lowest(progression) {
            self.cursor.raise_to(lowest);
        }
        if last_before(self.cursor.next(), progression) != current {
            return false;
        }
        self.cursor.set_fast_limit(owned.refill_at);
        self.came_at = owned.came_at;
        self.ceiling = NonZeroU64::new(owned.ceiling);
        let held = self.owned(progression);
        assert!(
            held.is_some_and(|held| held.ceiling == owned.ceiling
                && held.current(Some(&self.cursor), progression) == current),
            "the slot holds {held:?} of {owned:?}"
        );
        true
    }
}

/// The last number of the namespace before `next`: 0 for none.
fn last_before(next: u64, progression: Progression) -> u64 {
    progression.unbounded().last_at_or_below(next - 1)
}

#[cfg(test)]
mod tests;

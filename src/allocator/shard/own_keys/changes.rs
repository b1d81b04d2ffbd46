//! Keys with a section of their own, on their way from one node to another.
//!
//! Invariant: a slot that arrives hands out the same numbers, and answers the same to `Current`, as the slot that was
//! sent.

use std::num::NonZeroU64;

use super::{OwnKeys, OwnSlot};
use crate::{
    allocator::{
        key_table::{
            Slot, StoredKey,
            changed_slots::ChangedSlot,
            has_key,
            hasher::{Hasher, shard_of},
        },
        part::{
            DamagedPart, NO_NEXT_NUMBER, OTHER_HASH, OwnKeyChange, OwnSection, SlotNumber,
            WholeSection,
        },
        section::{Section, queued_section::QueuedSection},
    },
    planted_bugs::{Bug, is_planted},
    sequence::{Key, NUMBER_MAX},
};

impl<K: StoredKey + Clone> OwnKeys<K> {
    /// Begins to track changes, with all keys as changed ones, or ends it.
    pub fn track_changes(&mut self, track: bool) {
        self.table.track_changes(track);
    }

    /// Begins the next delta of the changed keys.
    pub fn rewind_changes(&mut self) {
        self.table.rewind_changes();
    }

    /// The next changed keys of the delta, at most `limit`.
    pub fn take_changes(&mut self, limit: usize) -> Vec<OwnKeyChange<K>> {
        let OwnKeys { table, expanded, .. } = self;
        let changes = std::iter::from_fn(|| {
            let (changed, slot) = table.take_changed()?;
            Some(change_of(changed, slot, expanded.get(&changed.number)))
        });
        changes.take(limit).collect()
    }

    /// Takes in changes of shard number `shard` that were sent in this order. Tells `note_new` the keys that are new.
    ///
    /// # Errors
    /// [`DamagedPart`] if the hasher finds a key in another shard, a slot is unknown, or a section's limits are out
    /// of order.
    pub fn apply_changes(
        &mut self, (hasher, shard): (&Hasher, u32), changes: Vec<OwnKeyChange<K>>,
        mut note_new: impl FnMut(&K::Target),
    ) -> Result<(), DamagedPart> {
        for OwnKeyChange { slot, next, section } in changes {
            if next == 0 {
                return Err(NO_NEXT_NUMBER);
            }
            let (in_slot, beside) = match section {
                OwnSection::Untouched => (None, None),
                OwnSection::InSlot { left, margin } => (Some(limits(next, left, margin)?), None),
                OwnSection::Beside(WholeSection { step, owned }) => {
                    let owned = WholeSection { step, owned }.owned()?;
                    (None, Some(Section::received(step, owned)))
                }
            };
            let number = match slot {
                SlotNumber::New((namespace, key)) => {
                    note_new(key.borrow());
                    let hash = hasher.key(namespace, K::as_key(key.borrow()));
                    if shard_of(hash) != shard {
                        return Err(OTHER_HASH);
                    }
                    let slot = OwnSlot::received(key, namespace, next, in_slot);
                    self.table.append(hasher, hash, slot)
                }
                SlotNumber::Vacant => {
                    self.table.add_vacant();
                    continue;
                }
                SlotNumber::Known(number) => {
                    let slot = self.table.get_mut(number);
                    let slot = slot.ok_or(DamagedPart("changes a key that was not sent"))?;
                    let is_name = matches!(K::as_key(slot.stored_key().borrow()), Key::Name(_));
                    if !(is_name && is_planted(Bug::NameChangesNotSent)) {
                        slot.receive(next, in_slot);
                    }
                    number
                }
            };
            match beside {
                Some(section) => {
                    self.expanded.insert(number, QueuedSection::new(section));
                }
                None => {
                    self.expanded.remove(&number);
                }
            }
        }
        Ok(())
    }
}

/// A slot, and the section beside it if there is one, as they are sent.
fn change_of<K: StoredKey + Clone>(
    changed: ChangedSlot, slot: &OwnSlot<K>, beside: Option<&QueuedSection>,
) -> OwnKeyChange<K> {
    let next = slot.cursor.next();
    let section = match (beside, slot.limits()) {
        (Some(queued), _) => {
            let section = &queued.section;
            OwnSection::Beside(WholeSection::new(section.step(), section.owned()))
        }
        (None, Some((ceiling, refill_at))) => OwnSection::InSlot {
            left: ceiling.get().wrapping_sub(next),
            margin: ceiling.get().wrapping_sub(refill_at),
        },
        (None, None) => OwnSection::Untouched,
    };
    let slot = match changed.is_new {
        _ if !has_key(slot) => SlotNumber::Vacant,
        true => SlotNumber::New((slot.namespace(), slot.stored_key().clone())),
        false => SlotNumber::Known(changed.number),
    };
    OwnKeyChange { slot, next, section }
}

/// The ceiling, and the number above which a bump is asked for.
fn limits(next: u64, left: u64, margin: u64) -> Result<(NonZeroU64, u64), DamagedPart> {
    let ceiling = NonZeroU64::new(next.wrapping_add(left));
    let ceiling = ceiling.filter(|ceiling| ceiling.get() <= NUMBER_MAX);
    let limits = ceiling.and_then(|ceiling| Some((ceiling, ceiling.get().checked_sub(margin)?)));
    limits.ok_or(DamagedPart("has a key whose limits are out of order"))
}

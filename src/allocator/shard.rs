//! A part of the leader's memory: the cursors of some keys, the sections they belong to, and the calls
//! that wait for them.
//!
//! A call for a key costs one look into one table, whose entries are 32 bytes for an id: half a cache
//! line. The section, which knows the rest, is asked twice in a step.
//!
//! Invariant: a key and its section are in the same shard, and a place in `sections` belongs to one
//! section until the shard is emptied for good.

use std::{sync::Arc, time::Duration};

use hashbrown::HashMap;
use tokio::sync::oneshot;

use super::{
    cursor::Cursor,
    cursor_table::{CursorTable, Hasher},
    held::{Delivery, Taken},
    pending::{PendingBump, Waiter, Waiters},
    refill::BumpSize,
    section::{Section, StepChange, Take},
};
use crate::{
    clock::Instant,
    metrics::Metrics,
    sequence::{
        Chunk, Key, Namespace, NamespaceConfig, NamespaceId, OwnedKey, Progression, SectionId,
    },
};

/// A part of the memory.
#[derive(Debug, Default)]
pub struct Shard {
    cursors: CursorTable,
    sections: Vec<SectionSlot>,
    /// The places of the sections that several keys share. A key with a section of its own holds the
    /// place in its cursor.
    shared: HashMap<SectionId, u32>,
}

/// A section and its pending bump.
#[derive(Debug)]
struct SectionSlot {
    section: Section,
    pending: PendingBump,
}

/// How much a memory, or a part of it, holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Keys that were asked for in this term.
    pub keys: usize,
    /// Their sections.
    pub sections: usize,
    /// Bytes allocated for both.
    pub bytes: usize,
}

/// The answer to a call for numbers of a key.
#[derive(Debug)]
pub enum Answer {
    /// Numbers, or how many are left if those are too few.
    Taken(Taken),
    /// The numbers come later. The sender is dropped if the term is lost.
    Later(oneshot::Receiver<Delivery>),
}

/// A call that waited, and what it gets.
pub struct Served {
    waiter: Waiter,
    taken: Taken,
}

impl Served {
    /// Sends the caller what it gets.
    pub fn tell(self, metrics: &Arc<Metrics>) {
        let delivery = Delivery::new(self.taken, self.waiter.count, metrics.clone());
        // If the caller has gone, the delivery comes back and counts its numbers as skipped.
        drop(self.waiter.reply.send(delivery));
    }
}

/// What a section used, for its ceiling to be lowered to.
#[derive(Debug, PartialEq, Eq)]
pub struct Used {
    /// The section.
    pub section: SectionId,
    /// The highest number taken.
    pub last: u64,
    /// How many numbers the other keys of the section lose by rising to it.
    pub lost: u64,
    /// True if numbers are left above it.
    pub has_left: bool,
}

/// What a section that got a chunk has used, while its shard is closed.
struct Closing {
    progression: Progression,
    /// The greatest number taken by any of its keys.
    last: u64,
    /// How many numbers the other keys lose by rising to `last`.
    lost: u64,
}

impl Shard {
    /// Takes the next `count` (at least 1) numbers of a key, or waits for them. Also answers the place of
    /// the section that a bump must be asked for, if one must. `hash` is the key's.
    #[inline]
    pub fn take(
        &mut self,
        hasher: &Hasher,
        hash: u64,
        namespace: &Namespace,
        key: Key<'_>,
        count: u64,
    ) -> (Answer, Option<u32>) {
        let Some(cursor) = self.cursors.find(hash, namespace.id, key) else {
            self.insert(hasher, hash, namespace, key);
            return self.take(hasher, hash, namespace, key, count);
        };
        if let Some(range) = cursor.take(&namespace.config, count) {
            return (Answer::Taken(Ok(range)), None);
        }
        let place = cursor.section;
        let SectionSlot { section, pending } = &mut self.sections[place as usize];
        let take = match pending.has_waiters() {
            true => Take::TooFew,
            false => section.take(cursor, &namespace.config, count),
        };
        let (answer, bump) = match take {
            Take::Range { range, refill } => {
                let bump = refill.is_some_and(|size| pending.refill(size));
                (Answer::Taken(Ok(range)), bump)
            }
            Take::Exhausted { left } => (Answer::Taken(Err(left)), false),
            Take::TooFew => {
                // Later calls for this key stand behind this one.
                cursor.stop_fast_path();
                let (reply, later) = oneshot::channel();
                let key = OwnedKey::from(key);
                let waiter = Waiter {
                    hash,
                    key,
                    count,
                    reply,
                };
                (Answer::Later(later), pending.wait(waiter))
            }
        };
        (answer, bump.then_some(place))
    }

    /// The identifier of section number `place`.
    pub fn section_id(&self, place: u32) -> Option<&SectionId> {
        let slot = self.sections.get(place as usize)?;
        Some(&slot.section.id)
    }

    /// By how much section number `place` is to be bumped now: enough for a refill that was asked for,
    /// and for all calls that wait. `None` if nobody wants the bump any more.
    pub fn propose_bump(&mut self, place: u32, namespace: &Namespace) -> Option<BumpSize> {
        let SectionSlot { section, pending } = self.sections.get_mut(place as usize)?;
        let (mut size, waiters) = pending.propose()?;
        // The calls for one key use up the same numbers. Of several keys each has the whole chunk.
        let is_one_key = namespace.config.section_size == 1;
        let mut counts = 0u64;
        for waiter in waiters {
            counts = match is_one_key {
                true => counts.saturating_add(waiter.count),
                false => waiter.count,
            };
            let key = waiter.key.as_key();
            let cursor = self.cursors.find(waiter.hash, namespace.id, key);
            let left = cursor.map_or(0, |cursor| section.left(cursor, &namespace.config));
            let unused = counts.max(section.step_within_bounds(&namespace.config));
            let needed = BumpSize::fill(unused, left);
            size = Some(size.map_or(needed, |size| size.covering(needed)));
        }
        if size.is_none() {
            pending.end();
        }
        size
    }

    /// Adds the chunk that the bump of section number `place` was answered with at `now`. `bump_time` is
    /// how long a bump takes. Answers how the section's step changed.
    pub fn grant(
        &mut self,
        place: u32,
        chunk: Chunk,
        config: &NamespaceConfig,
        now: Instant,
        bump_time: Duration,
    ) -> Option<StepChange> {
        let slot = self.sections.get_mut(place as usize)?;
        let granted = slot.section.grant(chunk, config, now, bump_time);
        if granted.keys_must_ask {
            (self.cursors.iter_mut())
                .filter(|cursor| cursor.section == place)
                .for_each(Cursor::stop_fast_path);
        }
        granted.step_change
    }

    /// Notes that the bump of section number `place` found no number under `max`.
    pub fn exhaust(&mut self, place: u32, max: u64) {
        if let Some(slot) = self.sections.get_mut(place as usize) {
            slot.section.exhaust(max);
        }
    }

    /// Serves the calls that waited for a bump of section number `place`, in their order, and adds them
    /// to `served`. True if a further bump must be asked for.
    pub fn serve(&mut self, place: u32, namespace: &Namespace, served: &mut Vec<Served>) -> bool {
        let Some(SectionSlot { section, pending }) = self.sections.get_mut(place as usize) else {
            return false;
        };
        let mut waiters = pending.end();
        let mut bump = false;
        while let Some(waiter) = waiters.pop_front() {
            let key = waiter.key.as_key();
            let Some(cursor) =
                (self.cursors.find(waiter.hash, namespace.id, key)).filter(|_| !waiter.is_gone())
            else {
                continue;
            };
            let taken = match section.take(cursor, &namespace.config, waiter.count) {
                Take::Range { range, refill } => {
                    bump |= refill.is_some_and(|size| pending.refill(size));
                    Ok(range)
                }
                Take::Exhausted { left } => Err(left),
                Take::TooFew => {
                    waiters.push_front(waiter);
                    break;
                }
            };
            served.push(Served { waiter, taken });
        }
        if waiters.is_empty() {
            return bump;
        }
        for waiter in &waiters {
            // An earlier call for the same key may have been served just now and have set the fast
            // limit: later calls would overtake this one.
            let key = waiter.key.as_key();
            if let Some(cursor) = self.cursors.find(waiter.hash, namespace.id, key) {
                cursor.stop_fast_path();
            }
        }
        pending.wait_on(waiters);
        true
    }

    /// The last number that this term knows to be handed out for a key: 0 for none. `None` before
    /// the first chunk of its section.
    pub fn current(&mut self, hash: u64, namespace: &Namespace, key: Key<'_>) -> Option<u64> {
        let cursor = self.cursors.find(hash, namespace.id, key).copied();
        let place = match cursor {
            Some(cursor) => cursor.section,
            None => *self.shared.get(&namespace.section_of(key))?,
        };
        let slot = self.sections.get(place as usize)?;
        (slot.section).current(cursor.as_ref(), namespace.config.progression())
    }

    /// How much it holds. Does not look at the keys.
    pub fn footprint(&self) -> Footprint {
        // The names of keys with sections of their own are held twice: by the cursor and the section.
        let sections =
            self.sections.capacity() * size_of::<SectionSlot>() + self.cursors.name_bytes();
        Footprint {
            keys: self.cursors.len(),
            sections: self.sections.len(),
            bytes: self.cursors.bytes() + sections + self.shared.allocation_size(),
        }
    }

    /// The calls that wait, by section.
    pub fn into_waiters(self) -> impl Iterator<Item = (SectionId, Waiters)> {
        let slots = self.sections.into_iter();
        slots.filter_map(
            |SectionSlot {
                 section,
                 mut pending,
             }| {
                let waiters = pending.end();
                (!waiters.is_empty()).then_some((section.id, waiters))
            },
        )
    }

    /// Empties the shard and says what was used of each section that got a chunk. This includes sections
    /// that were used to their end: their record then says that nothing is skipped. Sections of a
    /// namespace without a known progression are left out.
    pub fn close(
        &mut self,
        progression_of: impl Fn(NamespaceId) -> Option<Progression>,
    ) -> Vec<Used> {
        let Shard {
            cursors, sections, ..
        } = std::mem::take(self);
        let mut closing: Vec<Option<Closing>> = (sections.iter())
            .map(|SectionSlot { section, .. }| {
                let progression = progression_of(section.id.namespace)?;
                // Without a key: the section's floor.
                let last = section.current(None, progression)?;
                let lost = 0;
                Some(Closing {
                    progression,
                    last,
                    lost,
                })
            })
            .collect();
        for cursor in cursors.iter() {
            let SectionSlot { section, .. } = &sections[cursor.section as usize];
            if let Some(closing) = &mut closing[cursor.section as usize]
                && let Some(last) = section.current(Some(cursor), closing.progression)
            {
                closing.last = closing.last.max(last);
            }
        }
        for cursor in cursors.iter() {
            let SectionSlot { section, .. } = &sections[cursor.section as usize];
            if let Some(closing) = &mut closing[cursor.section as usize]
                && let Some(last) = section.current(Some(cursor), closing.progression)
            {
                closing.lost += closing.progression.count_between(last, closing.last);
            }
        }
        (sections.into_iter().zip(closing))
            .filter_map(|(SectionSlot { section, .. }, closing)| {
                let Closing { last, lost, .. } = closing?;
                Some(Used {
                    has_left: section.has_left(last),
                    section: section.id,
                    last,
                    lost,
                })
            })
            .collect()
    }

    /// The first touch of a key in this term.
    #[cold]
    fn insert(&mut self, hasher: &Hasher, hash: u64, namespace: &Namespace, key: Key<'_>) {
        let id = namespace.section_of(key);
        let is_shared = namespace.config.section_size > 1;
        let known = self.shared.get(&id).copied().filter(|_| is_shared);
        let place = known.unwrap_or_else(|| {
            let place =
                u32::try_from(self.sections.len()).expect("memory ends before 2^32 sections");
            if is_shared {
                self.shared.insert(id.clone(), place);
            }
            self.sections.push(SectionSlot {
                section: Section::new(id, &namespace.config),
                pending: PendingBump::default(),
            });
            place
        });
        let cursor = Cursor::new(namespace.id.0, place);
        self.cursors.insert(hasher, hash, key, cursor);
    }
}

#[cfg(test)]
mod tests;

//! A part of the leader's memory: where the keys stand, and the sections they belong to. Pure.
//!
//! A key that is asked for costs one look into one table, whose entries are 32 bytes for an id: half a
//! cache line. The section, which knows the rest, is touched twice in a step.
//!
//! Invariant: a key and its section are in the same shard, and a place in `sections` belongs to one
//! section until the shard is emptied for good.

use std::sync::Arc;

use hashbrown::HashMap;
use tokio::sync::oneshot;

use super::{
    cursor::{Cursor, Cursors, Hasher},
    held::{Handed, Taken},
    section::{OwnedKey, Queue, Section, Take, Waiter, Wish},
};
use crate::{
    metrics::Metrics,
    sequence::{Key, Namespace, NamespaceId, Progression, SectionId},
};

/// A part of the memory.
#[derive(Debug, Default)]
pub struct Shard {
    cursors: Cursors,
    sections: Vec<Section>,
    /// Where the sections of several keys are; a key with a section of its own leads to it.
    shared: HashMap<SectionId, u32>,
}

/// How much a memory, or a part of it, holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Keys that were asked for in this term.
    pub keys: usize,
    /// Their sections.
    pub sections: usize,
    /// Bytes set aside for both.
    pub bytes: usize,
}

/// What a call for numbers of a key came to.
#[derive(Debug)]
pub enum Answer {
    /// Numbers, or how many are left.
    Taken(Taken),
    /// They come later. Dropped: the term is lost.
    Later(oneshot::Receiver<Handed>),
}

/// A call that waited, and what it gets.
pub struct Served {
    waiter: Waiter,
    taken: Taken,
}

impl Served {
    /// Tells whoever waits.
    pub fn tell(self, metrics: &Arc<Metrics>) {
        let handed = Handed::new(self.taken, self.waiter.count, metrics.clone());
        // Nobody listens who gave up meanwhile: then it comes back, and is counted.
        drop(self.waiter.reply.send(handed));
    }
}

/// What a section used, for the ceiling to be lowered to.
#[derive(Debug, PartialEq, Eq)]
pub struct Used {
    /// Which.
    pub section: SectionId,
    /// The highest number taken.
    pub last: u64,
    /// How many numbers the other keys of the section lose by rising to it.
    pub lost: u64,
    /// Whether numbers are left above it.
    pub has_left: bool,
}

impl Shard {
    /// Takes the next `count` (at least 1) numbers of a key, or waits for them; and, where a bump must be
    /// asked for, the place of the section that it is for. `hash` is the key's.
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
        let section = &mut self.sections[place as usize];
        let (answer, bump) = match section.take(cursor, &namespace.config, count) {
            Take::Range { range, bump } => (Answer::Taken(Ok(range)), bump),
            Take::Exhausted { left } => (Answer::Taken(Err(left)), false),
            Take::Wait => {
                // Whoever comes next stands behind.
                cursor.consult();
                let (reply, later) = oneshot::channel();
                let key = OwnedKey::from(key);
                let waiter = Waiter {
                    hash,
                    key,
                    count,
                    reply,
                };
                (Answer::Later(later), section.wait(waiter))
            }
        };
        (answer, bump.then_some(place))
    }

    /// By how much section number `place` is to be bumped; `None` where nobody wants it any more.
    pub fn wish(&mut self, place: u32, namespace: &Namespace) -> Option<Wish> {
        let cursors = &mut self.cursors;
        let section = self.sections.get_mut(place as usize)?;
        section.wish(&namespace.config, |section, waiter| {
            let cursor = cursors.find(waiter.hash, namespace.id, waiter.key.as_key());
            cursor.map_or(0, |cursor| section.left(cursor, &namespace.config))
        })
    }

    /// Serves those who waited for a bump of section number `place`, in their order, and adds whom to
    /// tell to `served`. True where a further bump must be asked for.
    pub fn serve(&mut self, place: u32, namespace: &Namespace, served: &mut Vec<Served>) -> bool {
        let Some(section) = self.sections.get_mut(place as usize) else {
            return false;
        };
        let mut queue = section.served();
        let mut again = false;
        while let Some(waiter) = queue.pop_front() {
            let key = waiter.key.as_key();
            let Some(cursor) = (self.cursors.find(waiter.hash, namespace.id, key))
                .filter(|_| !waiter.reply.is_closed())
            else {
                continue;
            };
            let taken = match section.take_now(cursor, &namespace.config, waiter.count) {
                Take::Range { range, bump } => {
                    again |= bump;
                    Ok(range)
                }
                Take::Exhausted { left } => Err(left),
                Take::Wait => {
                    queue.push_front(waiter);
                    break;
                }
            };
            served.push(Served { waiter, taken });
        }
        if queue.is_empty() {
            return again;
        }
        for waiter in &queue {
            // It may have been served before, and would be overtaken by itself.
            let key = waiter.key.as_key();
            if let Some(cursor) = self.cursors.find(waiter.hash, namespace.id, key) {
                cursor.consult();
            }
        }
        section.wait_on(queue);
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
        let section = self.sections.get(place as usize)?;
        section.current(cursor.as_ref(), namespace.config.progression())
    }

    /// Section number `place`.
    pub fn section(&mut self, place: u32) -> Option<&mut Section> {
        self.sections.get_mut(place as usize)
    }

    /// How much it holds, without a look at each key.
    pub fn footprint(&self) -> Footprint {
        // A name has a section of its own, which knows the name as well.
        let sections = self.sections.capacity() * size_of::<Section>() + self.cursors.name_bytes();
        Footprint {
            keys: self.cursors.len(),
            sections: self.sections.len(),
            bytes: self.cursors.bytes() + sections + self.shared.allocation_size(),
        }
    }

    /// Has the keys of section number `place` ask it before they go on.
    pub fn consult(&mut self, place: u32) {
        (self.cursors.iter_mut())
            .filter(|cursor| cursor.section == place)
            .for_each(Cursor::consult);
    }

    /// Those who wait, by section.
    pub fn into_waiting(self) -> impl Iterator<Item = (SectionId, Queue)> {
        let sections = self.sections.into_iter();
        sections.filter_map(|mut section| {
            let queue = section.served();
            (!queue.is_empty()).then_some((section.id, queue))
        })
    }

    /// Empties the shard and says what was used of each section that got a chunk, also of one that was
    /// used to its end: its record then says that nothing is skipped.
    pub fn close(&mut self, progression: impl Fn(NamespaceId) -> Option<Progression>) -> Vec<Used> {
        let closed = std::mem::take(self);
        let progressions: Vec<Option<Progression>> = (closed.sections.iter())
            .map(|section| progression(section.id.namespace).filter(|_| section.has_chunk()))
            .collect();
        // The last number of a key, if it was asked for in this term.
        let last = |cursor: &Cursor| {
            let place = cursor.section as usize;
            let progression = progressions[place]?;
            let section = &closed.sections[place];
            let taken = cursor.last(section.lowest(progression)?, progression.increment);
            Some((place, taken.unwrap_or(section.floor()), progression))
        };
        let mut used: Vec<(u64, u64)> = (closed.sections.iter())
            .map(|section| (section.floor(), 0))
            .collect();
        for (place, last, _) in closed.cursors.iter().filter_map(last) {
            used[place].0 = used[place].0.max(last);
        }
        for (place, last, progression) in closed.cursors.iter().filter_map(last) {
            used[place].1 += progression.count_between(last, used[place].0);
        }
        (closed.sections.into_iter().zip(used).zip(&progressions))
            .filter(|(_, progression)| progression.is_some())
            .map(|((section, (last, lost)), _)| Used {
                has_left: section.has_left(last),
                section: section.id,
                last,
                lost,
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
            self.sections.push(Section::new(id, &namespace.config));
            place
        });
        let cursor = Cursor::new(namespace.id.0, place);
        self.cursors.insert(hasher, hash, key, cursor);
    }
}

#[cfg(test)]
mod tests;

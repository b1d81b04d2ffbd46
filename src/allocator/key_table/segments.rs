//! A list of slots that grows without copying and without holes in the heap. Pure.
//!
//! It consists of segments of `SEGMENT_SLOTS` slots. A `Vec` copies all it holds whenever it doubles, has up to half of its
//! memory unused, and leaves holes of the sizes that it outgrew. While its changes are tracked, it remembers which slots were
//! lent to be changed (`changed_slots.rs`).
//!
//! Invariant: all segments but the last are full.

use super::changed_slots::{ChangedSlot, ChangedSlots};

/// How many slots a segment has.
const SEGMENT_SLOTS: usize = 512;

/// A list of slots, numbered from 0.
#[derive(Debug)]
pub struct Segments<S> {
    segments: Vec<Vec<S>>,
    /// `None` while changes are not tracked.
    changed: Option<Box<ChangedSlots>>,
}

impl<S> Default for Segments<S> {
    fn default() -> Self {
        Segments { segments: Vec::new(), changed: None }
    }
}

impl<S> Segments<S> {
    /// Slot number `number`.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&S> {
        let number = number as usize;
        self.segments.get(number / SEGMENT_SLOTS)?.get(number % SEGMENT_SLOTS)
    }

    /// Slot number `number`, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut S> {
        let place = number as usize;
        let segment = self.segments.get_mut(place / SEGMENT_SLOTS)?;
        let slot = segment.get_mut(place % SEGMENT_SLOTS)?;
        if let Some(changed) = &mut self.changed {
            changed.note(number);
        }
        Some(slot)
    }

    /// Slot number `number`, to be changed in what a reader of the changes need not know.
    pub fn get_mut_unnoted(&mut self, number: u32) -> Option<&mut S> {
        let place = number as usize;
        let segment = self.segments.get_mut(place / SEGMENT_SLOTS)?;
        segment.get_mut(place % SEGMENT_SLOTS)
    }

    /// Adds a slot at the end.
    pub fn push(&mut self, slot: S) {
        let number = self.len() as u32;
        if let Some(changed) = &mut self.changed {
            changed.note(number);
        }
        match self.segments.last_mut() {
            Some(last) if last.len() < SEGMENT_SLOTS => last.push(slot),
            // The first segment grows with its slots: most lists of a small memory are short.
            None => self.segments.push(vec![slot]),
            Some(_full) => {
                let mut segment = Vec::with_capacity(SEGMENT_SLOTS);
                segment.push(slot);
                self.segments.push(segment);
            }
        }
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        let full = self.segments.len().saturating_sub(1);
        self.segments.last().map_or(0, |last| full * SEGMENT_SLOTS + last.len())
    }

    /// All slots, in order.
    pub fn iter(&self) -> impl Iterator<Item = &S> {
        self.segments.iter().flatten()
    }

    /// All slots, in order, to be changed in what a reader of the changes need not know.
    pub fn iter_mut_unnoted(&mut self) -> impl Iterator<Item = &mut S> {
        self.segments.iter_mut().flatten()
    }

    /// The slots, in order.
    pub fn into_iter(self) -> impl Iterator<Item = S> {
        self.segments.into_iter().flatten()
    }

    /// Begins to track changes, with all slots as changed ones, or ends it.
    pub fn track_changes(&mut self, track: bool) {
        self.changed = track.then(|| Box::new(ChangedSlots::all(self.len())));
    }

    /// True while changes are tracked.
    pub fn tracks_changes(&self) -> bool {
        self.changed.is_some()
    }

    /// The next slot that was changed. `None` at the end of the delta, and while changes are not tracked.
    pub fn take_changed(&mut self) -> Option<(ChangedSlot, &S)> {
        let changed = self.changed.as_mut()?.take_next()?;
        Some((changed, self.get(changed.number)?))
    }

    /// Begins the next delta of the changed slots.
    pub fn rewind_changes(&mut self) {
        if let Some(changed) = &mut self.changed {
            changed.rewind();
        }
    }

    /// How many bytes the list takes, without what its slots hold elsewhere.
    pub fn bytes(&self) -> usize {
        let slots: usize = self.segments.iter().map(Vec::capacity).sum();
        let changed = self.changed.as_ref().map_or(0, |changed| changed.bytes());
        slots * size_of::<S>() + self.segments.capacity() * size_of::<Vec<S>>() + changed
    }
}

#[cfg(test)]
mod tests;

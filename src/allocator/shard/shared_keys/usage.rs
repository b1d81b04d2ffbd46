//! The use of shared sections: the numbers that their keys have taken, summed up for each section.

use super::{SharedKeys, pages::Page};
use crate::{
    allocator::section::owned::Owned,
    sequence::{NamespaceId, Progression, SectionUse},
};

/// The use of a section that got a chunk: the numbers that its keys have taken, summed up.
#[derive(Debug)]
pub struct Usage {
    owned: Owned,
    progression: Progression,
    lowest: Option<u64>,
    /// How many keys took numbers above the floor, the greatest and the sum of their next numbers.
    keys: u64,
    next_max: u64,
    next_sum: u128,
    /// How many keys took none.
    keys_at_floor: u64,
    /// True if a key was asked for since the hand came by.
    pub is_in_use: bool,
}

impl Usage {
    /// That of a section that has no key.
    pub fn new(owned: &Owned, progression: Progression) -> Self {
        Usage {
            owned: *owned,
            progression,
            lowest: owned.lowest(progression),
            keys: 0,
            next_max: 0,
            next_sum: 0,
            keys_at_floor: 0,
            is_in_use: false,
        }
    }

    /// Adds a key whose next number is `next`. As [`Owned::current`] says where it stands.
    pub fn add(&mut self, next: u64) {
        match self.lowest {
            Some(lowest) if next > lowest => {
                self.keys += 1;
                self.next_max = self.next_max.max(next);
                self.next_sum += u128::from(next);
            }
            _ => self.keys_at_floor += 1,
        }
    }

    /// The greatest number taken by any of the keys, or the section's floor, if that is higher.
    pub fn last(&self) -> u64 {
        match self.keys {
            0 => self.owned.floor,
            _ => self.next_max - self.progression.increment,
        }
    }

    /// How many numbers the other keys skip by rising to [`Usage::last`].
    pub fn skipped(&self) -> u64 {
        // Their next numbers belong to one progression.
        let distance = u128::from(self.keys) * u128::from(self.next_max) - self.next_sum;
        let skipped = distance / u128::from(self.progression.increment);
        let above_floor = (self.progression).count_between(self.owned.floor, self.last());
        let skipped = skipped + u128::from(self.keys_at_floor) * u128::from(above_floor);
        u64::try_from(skipped).unwrap_or(u64::MAX)
    }
}

impl SharedKeys {
    /// The usage of section number `number`, without its keys: they are added later. `None` if it got no chunk, or the
    /// progression of its namespace is not known.
    pub(super) fn usage(
        &self, number: u32, progression_of: impl Fn(NamespaceId) -> Option<Progression>,
    ) -> Option<Usage> {
        let section = self.sections.get(number)?;
        let progression = progression_of(section.id.namespace)?;
        Some(Usage::new(section.queued.section.owned()?, progression))
    }

    /// Adds the keys of the sections from number `first` on to their usages.
    pub(super) fn add_keys(&self, first: u32, usages: &mut [Option<Usage>]) {
        for (_, slot) in self.keys.iter() {
            let place = slot.section.wrapping_sub(first) as usize;
            if let Some(Some(usage)) = usages.get_mut(place) {
                usage.add(slot.cursor.next());
                usage.is_in_use |= slot.cursor.is_in_use();
            }
        }
        for (number, usage) in (first..).zip(usages) {
            if let (Some(section), Some(usage)) = (self.sections.get(number), usage) {
                let pages = section.pages.iter().filter_map(|page| self.pages.get(*page));
                pages.flat_map(Page::next_numbers).for_each(|next| usage.add(next));
            }
        }
    }

    /// The last number used of each section that got a chunk, and whether the section was used up. Leaves out namespaces
    /// without a known progression.
    pub fn used(
        self, progression_of: impl Fn(NamespaceId) -> Option<Progression>,
    ) -> impl Iterator<Item = (bool, SectionUse)> {
        let numbers = 0..self.sections.slots();
        let mut usages: Vec<Option<Usage>> =
            numbers.map(|number| self.usage(number, &progression_of)).collect();
        self.add_keys(0, &mut usages);
        let sections = self.sections.into_numbered();
        sections.filter_map(move |(number, section)| {
            let usage = usages[number as usize].as_ref()?;
            let (used, skipped) = (usage.last(), usage.skipped());
            Some((used >= usage.owned.ceiling, SectionUse { section: section.id, used, skipped }))
        })
    }
}

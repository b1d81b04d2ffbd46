//! The last number seen of each key, for the client's own check that numbers grow. Pure.
//!
//! Invariant: at most twice [`GENERATION_KEYS_MAX`] keys are remembered: of those that were not asked
//! for of late, the older half is forgotten, and then not checked.

use hashbrown::HashMap;

use crate::key::Key;

/// When so many keys are in the younger generation, it becomes the older one.
const GENERATION_KEYS_MAX: usize = 65_536;

/// The last numbers.
#[derive(Debug, Default)]
pub struct Seen {
    young: HashMap<(u32, Key), u64>,
    old: HashMap<(u32, Key), u64>,
}

impl Seen {
    /// The greatest number that was seen of a key; 0 for none.
    pub fn last(&self, key: &(u32, Key)) -> u64 {
        let known = self.young.get(key).or_else(|| self.old.get(key));
        known.copied().unwrap_or(0)
    }

    /// Notes a number of a key.
    pub fn note(&mut self, key: (u32, Key), number: u64) {
        if let Some(last) = self.young.get_mut(&key) {
            *last = number.max(*last);
            return;
        }
        if self.young.len() >= GENERATION_KEYS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        let last = self.old.get(&key).copied().unwrap_or(0);
        self.young.insert(key, number.max(last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_number_is_remembered_while_its_key_is_in_use() {
        let mut seen = Seen::default();
        let key = (1, Key::Id(7));
        assert_eq!(seen.last(&key), 0);
        seen.note(key.clone(), 5);
        seen.note(key.clone(), 3);
        assert_eq!(seen.last(&key), 5);
        for id in 0..4 * GENERATION_KEYS_MAX as u64 {
            seen.note((2, Key::Id(id)), 1);
            seen.note(key.clone(), 4);
        }
        assert_eq!(seen.last(&key), 5);
        assert_eq!(seen.last(&(2, Key::Id(0))), 0, "forgotten");
        assert!(seen.young.len() + seen.old.len() <= 2 * GENERATION_KEYS_MAX);
    }
}

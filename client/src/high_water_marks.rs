//! The greatest number received for each key, for the client's own check that numbers grow. Pure.
//!
//! Invariant: at most twice [`GENERATION_KEYS_MAX`] keys are remembered. The keys are kept in two
//! generations. When the younger one is full, the older one is forgotten, and its keys go unchecked until
//! they are used again.

use hashbrown::HashMap;

use crate::{key::Key, namespaces::InternedNamespace};

/// The largest number of keys in one generation.
const GENERATION_KEYS_MAX: usize = 65_536;

/// The greatest number received for each key in recent use.
#[derive(Debug, Default)]
pub struct HighWaterMarks {
    young: HashMap<(InternedNamespace, Key), u64>,
    old: HashMap<(InternedNamespace, Key), u64>,
}

impl HighWaterMarks {
    /// The high-water mark of a key; 0 if none is remembered.
    pub fn get(&self, key: &(InternedNamespace, Key)) -> u64 {
        let mark = self.young.get(key).or_else(|| self.old.get(key));
        mark.copied().unwrap_or(0)
    }

    /// Raises the high-water mark of a key to `number`. Never lowers it.
    pub fn record(&mut self, key: (InternedNamespace, Key), number: u64) {
        if let Some(mark) = self.young.get_mut(&key) {
            *mark = number.max(*mark);
            return;
        }
        if self.young.len() >= GENERATION_KEYS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        let mark = self.old.get(&key).copied().unwrap_or(0);
        self.young.insert(key, number.max(mark));
        assert!(self.young.len().max(self.old.len()) <= GENERATION_KEYS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespaces::Namespaces;

    #[test]
    fn a_key_in_use_keeps_its_greatest_number_and_an_unused_one_is_forgotten() {
        let namespaces = Namespaces::default();
        let (book, uid) = (namespaces.intern("book"), namespaces.intern("uid"));
        let mut marks = HighWaterMarks::default();
        let key = (book, Key::Id(7));
        assert_eq!(marks.get(&key), 0);
        marks.record(key.clone(), 5);
        marks.record(key.clone(), 3);
        assert_eq!(marks.get(&key), 5);
        for id in 0..4 * GENERATION_KEYS_MAX as u64 {
            marks.record((uid, Key::Id(id)), 1);
            marks.record(key.clone(), 4);
        }
        assert_eq!(marks.get(&key), 5);
        assert_eq!(marks.get(&(uid, Key::Id(0))), 0, "forgotten");
        assert!(marks.young.len() + marks.old.len() <= 2 * GENERATION_KEYS_MAX);
    }
}

//! The answer to a message that asks for numbers of many keys. Pure.

use super::held::{Shortage, Taken};

/// The answer to a message that asks for numbers of many keys.
#[derive(Debug, Default)]
pub struct NextMany {
    /// The first number of each key, in the order of the keys. 0 for a key that got none.
    pub firsts: Vec<u64>,
    /// The places of the keys that got none because the namespace's numbers are used up, and how many
    /// numbers each key has left.
    pub exhausted: Vec<(usize, u64)>,
    /// The places of the keys that got none because they are new and the namespace has as many keys as it may have.
    pub over_quota: Vec<usize>,
}

impl NextMany {
    /// Notes what the key at `place` got, and returns how many numbers that is.
    pub(super) fn note(&mut self, place: usize, taken: Taken, count: u64) -> u64 {
        match taken {
            Ok(range) => {
                self.firsts[place] = range.first;
                count
            }
            Err(Shortage::Exhausted { left }) => {
                self.exhausted.push((place, left));
                0
            }
            Err(Shortage::OverQuota { .. }) => {
                self.over_quota.push(place);
                0
            }
        }
    }
}

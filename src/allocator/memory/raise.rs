//! Raises the floors of keys in the memory.

use super::{Memory, Need, Place};
use crate::{
    allocator::{pending::RaiseAnswer, raised::RaiseOf, shard::Shard},
    sequence::{LostBy, Namespace},
};

impl Memory {
    /// Moves a key, or all keys of its section, above `at_least`, or waits for that. A section must be one that ids
    /// share. Otherwise as [`Memory::take`].
    pub fn raise(
        &self,
        namespace: &Namespace,
        of: RaiseOf<'_>,
        at_least: u64,
    ) -> (RaiseAnswer, Option<(Place, Need)>) {
        let key = of.key();
        let (hash, shard) = self.shards.find(namespace, key);
        let mut locked = self.shards.lock(shard);
        let hasher = self.shards.hasher();
        let raise = |locked: &mut Shard| match of {
            RaiseOf::Key(key) => locked.raise(hash, namespace, key, at_least),
            RaiseOf::SectionOf(id) => locked.raise_section(hasher, hash, namespace, id, at_least),
        };
        let (answer, need) = match raise(&mut locked) {
            Some((answer, place)) => {
                let need = place.and_then(|place| self.need_at(&mut locked, place, namespace, key));
                (answer, need)
            }
            None => {
                let find = || self.find_record(namespace, key);
                let need = match of {
                    RaiseOf::Key(key) => self.add_key(&mut locked, (hash, key), namespace, find),
                    RaiseOf::SectionOf(id) => self.add_section(&mut locked, id, namespace, find),
                };
                let (answer, place) = raise(&mut locked).expect("it was added just now");
                (answer, place.zip(need))
            }
        };
        drop(locked);
        if let RaiseAnswer::Done(Ok(raised)) = &answer {
            // Nobody gets them, whatever becomes of the answer.
            self.lose(namespace, LostBy::Floor, raised.passed);
        }
        (answer, Place::in_shard(shard, need))
    }
}

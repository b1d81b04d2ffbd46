//! Raises the floors of keys in the memory.

use super::{Memory, Need, Place};
use crate::{
    allocator::pending::{RaiseAnswer, count_passed},
    sequence::{Key, Namespace},
};

impl Memory {
    /// Moves a key above `at_least`, or waits for that. Otherwise as [`Memory::take`].
    pub fn raise(
        &self,
        namespace: &Namespace,
        key: Key<'_>,
        at_least: u64,
    ) -> (RaiseAnswer, Option<(Place, Need)>) {
        let (hash, shard) = self.shards.find(namespace, key);
        let mut locked = self.shards.lock(shard);
        let known = locked.raise(hash, namespace, key, at_least);
        let (answer, need) = match known {
            Some((answer, place)) => {
                let need = place.map(|place| (place, self.need_of(&locked, place, namespace)));
                (answer, need)
            }
            None => {
                let find = || self.find_record(namespace, key);
                let need = self.add_key(&mut locked, (hash, key), namespace, find);
                let raised = locked.raise(hash, namespace, key, at_least);
                let (answer, place) = raised.expect("the key was added just now");
                (answer, place.zip(need))
            }
        };
        drop(locked);
        if let RaiseAnswer::Done(raised) = &answer {
            count_passed(&self.metrics, raised);
        }
        (answer, Place::in_shard(shard, need))
    }
}

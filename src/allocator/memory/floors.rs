//! Raises the floors of keys in the memory. A floor above the chunk needs a bump, and the call waits for it as a call for
//! numbers does. The numbers that are passed over are counted as skipped.

use super::{Memory, MemoryPlace, Need};
use crate::{
    allocator::{
        floor::{Floor, FloorOf, Raised},
        outcome::Why,
        part::SectionPlace,
        section::answers::{AboveAnswer, RaiseAnswer, RaiseNewAnswer},
        shard::Shard,
    },
    sequence::{Key, Namespace},
};

impl Memory {
    /// Moves a key, or all keys of its section, above `at_least`, or waits for that. A section must be one that ids
    /// share. Otherwise as [`Memory::take`].
    pub fn raise(
        &self, namespace: &Namespace, of: (FloorOf, Key<'_>), at_least: u64,
    ) -> (RaiseAnswer, Option<(MemoryPlace, Need)>) {
        let (hash, shard) = self.shards.find(namespace, of.1);
        let mut locked = self.shards.lock(shard);
        let (answer, need) = self.raise_in(&mut locked, hash, namespace, of, at_least.into());
        drop(locked);
        if let RaiseAnswer::Done(Ok(raised)) = &answer {
            // Nobody gets them, whatever becomes of the answer.
            self.note_passed(namespace, raised.passed);
        }
        (answer, MemoryPlace::in_shard(shard, need))
    }

    /// As [`Memory::raise`], within the key's shard. The caller counts the numbers that are passed over.
    fn raise_in(
        &self, shard: &mut Shard, hash: u64, namespace: &Namespace, (of, key): (FloorOf, Key<'_>),
        floor: Floor,
    ) -> (RaiseAnswer, Option<(SectionPlace, Need)>) {
        let hasher = self.shards.hasher();
        let raise = |shard: &mut Shard| match (of, key) {
            (FloorOf::Section, Key::Id(id)) => {
                shard.raise_section(hasher, hash, namespace, id, floor.at_least)
            }
            // Names share no sections.
            (FloorOf::Key, _) | (_, Key::Name(_)) => shard.raise(hash, namespace, key, floor),
        };
        if let Some((answer, place)) = raise(shard) {
            let need = place.and_then(|place| self.need_at(shard, place, namespace, key));
            return (answer, need);
        }
        let find = || self.find_record(namespace, key);
        let added = match (of, key) {
            (FloorOf::Section, Key::Id(id)) => self.add_section(shard, id, namespace, find),
            (FloorOf::Key, _) | (_, Key::Name(_)) => {
                self.add_key(shard, (hash, key), namespace, find)
            }
        };
        let added = match added {
            Ok(added) => added,
            Err(max_mb) => {
                let full = Why::MemoryFull { max_mb };
                return (RaiseAnswer::Done(Err(full)), None);
            }
        };
        let (answer, place) = raise(shard).expect("it was added just now");
        let need =
            place.and_then(|place| self.need_of_added(shard, (place, added), namespace, key));
        (answer, need)
    }

    /// Moves a key above `at_least` if no number of it is taken, or waits for that; all under one lock, so that no other call
    /// takes any in between. A call that comes while it waits stands behind it.
    pub fn raise_new(
        &self, namespace: &Namespace, key: Key<'_>, at_least: u64,
    ) -> (RaiseNewAnswer, Option<(MemoryPlace, Need)>) {
        let (hash, shard) = self.shards.find(namespace, key);
        let mut locked = self.shards.lock(shard);
        let of = (FloorOf::Key, key);
        // Raises nothing, and answers where the key stands, once the term has numbers of it and nobody waits for more.
        let (stands, need) = self.raise_in(&mut locked, hash, namespace, of, 0.into());
        match stands {
            RaiseAnswer::Done(Ok(Raised { floor: 0, .. })) => {}
            known @ RaiseAnswer::Done(_) => return (RaiseNewAnswer::Known(known), None),
            RaiseAnswer::Later(later) => {
                return (RaiseNewAnswer::Unknown(later), MemoryPlace::in_shard(shard, need));
            }
        }
        let (answer, need) = self.raise_in(&mut locked, hash, namespace, of, at_least.into());
        drop(locked);
        if let RaiseAnswer::Done(Ok(raised)) = &answer {
            self.note_passed(namespace, raised.passed);
        }
        (RaiseNewAnswer::Known(answer), MemoryPlace::in_shard(shard, need))
    }

    /// Moves a key above `floor`, and takes as many of its next numbers as `count_of` says of the last number before
    /// them; all under one lock, so that no other call takes any in between.
    pub fn take_above(
        &self, namespace: &Namespace, key: Key<'_>, floor: Floor, count_of: impl FnOnce(u64) -> u64,
    ) -> (AboveAnswer, Option<(MemoryPlace, Need)>) {
        let (hash, shard) = self.shards.find(namespace, key);
        let mut locked = self.shards.lock(shard);
        let of = (FloorOf::Key, key);
        let (raised, need) = self.raise_in(&mut locked, hash, namespace, of, floor);
        let raised = match raised {
            RaiseAnswer::Done(Ok(raised)) => raised,
            RaiseAnswer::Done(Err(refused)) => return (AboveAnswer::Refused(refused), None),
            RaiseAnswer::Later(later) => {
                return (AboveAnswer::Later(later), MemoryPlace::in_shard(shard, need));
            }
        };
        let count = count_of(raised.floor);
        let (answer, need) = match count {
            0 => (AboveAnswer::None { last: raised.floor }, None),
            _ => {
                let taken = self.take_known(&mut locked, (hash, key), namespace, count);
                let (answer, need) = taken.expect("it was raised just now");
                (AboveAnswer::Numbers { count, answer }, need)
            }
        };
        drop(locked);
        self.note_passed(namespace, raised.passed);
        (answer, MemoryPlace::in_shard(shard, need))
    }
}

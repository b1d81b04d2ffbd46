//! The shards of a memory, each behind a lock, and the hasher that spreads the keys over them.
//!
//! Invariant: a key is always in the same shard, on every node that has the memory.

use parking_lot::{Mutex, MutexGuard};

use super::{
    hasher::{Hasher, SHARDS, shard_of},
    shard::{Footprint, Shard},
};
use crate::{
    random,
    sequence::{Key, Namespace},
};

/// A shard and its lock, in cache lines of their own, so that threads at neighbouring shards do not
/// contend.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Locked(Mutex<Shard>);

/// The shards of a memory.
#[derive(Debug)]
pub struct Shards {
    locked: Box<[Locked]>,
    hasher: Hasher,
    seed: u64,
}

/// Empty shards, with a random seed.
impl Default for Shards {
    fn default() -> Self {
        Shards::new(random::u64())
    }
}

impl Shards {
    /// Empty shards, whose hasher has this seed.
    pub fn new(seed: u64) -> Self {
        Shards {
            locked: (0..SHARDS).map(|_| Locked::default()).collect(),
            hasher: Hasher::new(seed),
            seed,
        }
    }

    /// The seed of the hasher.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The hasher.
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// The hash and the shard of a key.
    #[inline]
    pub fn find(&self, namespace: &Namespace, key: Key<'_>) -> (u64, u32) {
        let hash = self.hasher.key(namespace.id, key);
        (hash, shard_of(self.hasher.section(hash, namespace, key)))
    }

    /// Locks shard number `shard`, which is below [`SHARDS`].
    #[inline]
    pub fn lock(&self, shard: u32) -> MutexGuard<'_, Shard> {
        self.locked[shard as usize].0.lock()
    }

    /// Locks each shard in turn.
    pub fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.locked.iter().map(|shard| shard.0.lock())
    }

    /// A shard, without a lock, and the hasher. `None` if there is no such shard.
    pub fn get_mut(&mut self, shard: u32) -> Option<(&mut Shard, &Hasher)> {
        let shard = self.locked.get_mut(shard as usize)?;
        Some((shard.0.get_mut(), &self.hasher))
    }

    /// How much they hold. Takes the lock of each shard for a moment.
    pub fn footprint(&self) -> Footprint {
        let shards = self.each().map(|shard| shard.footprint());
        shards.fold(Footprint::default(), |sum, part| Footprint {
            keys: sum.keys + part.keys,
            sections: sum.sections + part.sections,
            bytes: sum.bytes + part.bytes,
        })
    }
}

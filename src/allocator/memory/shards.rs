//! The shards of a memory, each behind a lock, and the hasher that spreads the keys over them.
//!
//! Invariant: a key is always in the same shard, on every node that has the memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use crate::{
    allocator::{
        key_table::{
            changed_slots::Tracking,
            hasher::{Hasher, SHARDS, shard_of},
        },
        shard::{Footprint, Shard},
    },
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
    /// How many trackings of changes have begun.
    trackings: AtomicU64,
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
            trackings: AtomicU64::new(0),
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

    /// Begins to track changes, with everything as changed. Ends any other tracking.
    pub fn begin_tracking(&self) -> Tracking {
        let tracking = Tracking(self.trackings.fetch_add(1, Relaxed));
        self.each().for_each(|mut shard| shard.begin_tracking(tracking));
        tracking
    }

    /// Ends a tracking, if it is the one in force.
    pub fn end_tracking(&self, tracking: Tracking) {
        self.each().for_each(|mut shard| shard.end_tracking(tracking));
    }

    /// How much they hold. Takes the lock of each shard for a moment.
    pub fn footprint(&self) -> Footprint {
        let shards = self.each().map(|shard| shard.footprint());
        shards.fold(Footprint::default(), |sum, part| Footprint {
            keys: sum.keys + part.keys,
            sections: sum.sections + part.sections,
            bytes: sum.bytes + part.bytes,
            vacant_bytes: sum.vacant_bytes + part.vacant_bytes,
        })
    }
}

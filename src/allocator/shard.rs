//! A part of the leader's memory: some keys, their sections, and the calls that wait for them.
//!
//! Most keys have a section of their own (`own_keys.rs`, one table for ids and one for names); ids may
//! share sections with their neighbours (`shared_keys.rs`). A call within the key's fast limit costs one look into
//! one table. The section, which knows the rest, is asked where the key's fast limit is reached: once or twice in a
//! step.
//!
//! `eviction.rs` evicts keys, and keeps their sections until the log says what was used of them. `tracking.rs` sends a shard to
//! another node.
//!
//! Invariant: a key and its section are in the same shard, and a place belongs to one section until that is evicted, or
//! the shard is emptied for good.

mod eviction;
pub(super) mod own_keys;
mod shared_keys;
mod tracking;

use std::time::Duration;

use hashbrown::HashMap;

use self::{own_keys::OwnKeys, shared_keys::SharedKeys};
use super::{
    floor::Floor,
    key_table::{changed_slots::Tracking, hasher::Hasher},
    part::SectionPlace,
    section::{
        StepChange,
        answers::{RaiseAnswer, TakeAnswer},
        holding::Holding,
        pending::{ServedCall, Waiters},
        queued_section::QueuedSection,
    },
};
use crate::{
    clock::Instant,
    sequence::{
        CeilingRaise, Chunk, Key, Namespace, NamespaceConfig, NamespaceId, Progression, Range,
        SectionId, SectionUse,
    },
};

/// A part of the memory.
#[derive(Debug, Default)]
pub struct Shard {
    ids: OwnKeys<u64>,
    names: OwnKeys<Box<[u8]>>,
    /// The length of all names together.
    name_bytes: usize,
    shared: SharedKeys,
    /// The sections whose epoch chunk this term uses, and which [`Shard::take_uncheckpointed`] has not answered yet.
    uncheckpointed: Vec<SectionPlace>,
    /// How many of them, from the front, were sent to a successor.
    uncheckpointed_sent: usize,
    /// The reader of the shard's changes; `None` while they are not tracked.
    tracking: Option<Tracking>,
    /// The sections that were evicted, until the log says what was used of them.
    evicting: HashMap<SectionId, Evicting>,
    /// How often a section was evicted, or its release was applied.
    evictions: u64,
    /// Which keys the hand goes around.
    hand: HandIsAt,
}

/// Which keys of a shard the hand goes around.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum HandIsAt {
    #[default]
    Ids,
    Names,
    Shared,
}

/// A section that was evicted, and of which the log does not say yet what was used.
#[derive(Debug)]
struct Evicting {
    /// The last number used of it.
    used: u64,
    /// Where it is now, if a call asked for it again: the call waits there.
    wanted: Option<SectionPlace>,
}

/// How much a memory, or a part of it, holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Keys that were asked for in this term, and in those whose memory it took over.
    pub keys: usize,
    /// Their sections.
    pub sections: usize,
    /// Bytes allocated for both.
    pub bytes: usize,
    /// How many of these bytes are free for new keys.
    pub vacant_bytes: usize,
}

/// Picks the table that a key of a namespace is in: ids, names or shared. Runs `$act` with the table, with the key as that
/// table stores it, and with the constructor of [`SectionPlace`] for it. All tables have the same methods.
macro_rules! among_keys {
    (($($by:tt)+) $shard:ident, $namespace:ident, $key:expr, |$keys:ident, $one:pat, $at:pat_param| $act:expr) => {
        match $key {
            Key::Id(id) if $namespace.config.shares_sections() => {
                let ($keys, $one, $at) = ($($by)+ $shard.shared, &id, SectionPlace::Shared);
                $act
            }
            Key::Id(id) => {
                let ($keys, $one, $at) = ($($by)+ $shard.ids, &id, SectionPlace::Id);
                $act
            }
            Key::Name(name) => {
                let ($keys, $one, $at) = ($($by)+ $shard.names, name, SectionPlace::Name);
                $act
            }
        }
    };
}

/// Picks the table that has the section at a place. Runs `$act` with the table, and with the section's number in it.
macro_rules! at_place {
    (($($by:tt)+) $shard:ident, $place:expr, |$keys:ident, $number:ident| $act:expr) => {
        match $place {
            SectionPlace::Id($number) => {
                let $keys = $($by)+ $shard.ids;
                $act
            }
            SectionPlace::Name($number) => {
                let $keys = $($by)+ $shard.names;
                $act
            }
            SectionPlace::Shared($number) => {
                let $keys = $($by)+ $shard.shared;
                $act
            }
        }
    };
}

impl Shard {
    /// As [`Shard::take`], within the key's fast limit. `None` if [`Shard::take`] must be called: then nothing was taken.
    ///
    /// Inlined, so that the range stays in registers. An [`TakeAnswer`] goes through memory, which takes longer than to
    /// take the numbers.
    #[inline(always)]
    pub fn take_fast(
        &mut self, hash: u64, namespace: &Namespace, key: Key<'_>, count: u64,
    ) -> Option<Range> {
        among_keys!((&mut) self, namespace, key, |keys, one, _| {
            keys.take_fast(hash, namespace, one, count)
        })
    }

    /// Takes the next `count` (at least 1) numbers of a key, or waits for them. Also answers the place of
    /// the section that a bump must be asked for, if one must. `None` if the key was not asked for in this term.
    /// `hash` is the key's.
    pub fn take(
        &mut self, hash: u64, namespace: &Namespace, key: Key<'_>, count: u64,
    ) -> Option<(TakeAnswer, Option<SectionPlace>)> {
        among_keys!((&mut) self, namespace, key, |keys, one, at| {
            Some(placed(keys.take(hash, namespace, one, count)?, at))
        })
    }

    /// Moves a key above `floor`, or waits for that. Otherwise as [`Shard::take`].
    pub fn raise(
        &mut self, hash: u64, namespace: &Namespace, key: Key<'_>, floor: Floor,
    ) -> Option<(RaiseAnswer, Option<SectionPlace>)> {
        among_keys!((&mut) self, namespace, key, |keys, one, at| {
            Some(placed(keys.raise(hash, namespace, one, floor)?, at))
        })
    }

    /// Moves all keys of the section of an id above `at_least`, or waits for that. `None` if the section was not asked
    /// for in this term. Otherwise as [`Shard::raise`].
    pub fn raise_section(
        &mut self, hasher: &Hasher, hash: u64, namespace: &Namespace, id: u64, at_least: u64,
    ) -> Option<(RaiseAnswer, Option<SectionPlace>)> {
        assert!(namespace.config.shares_sections(), "{namespace:?}");
        let raised = (self.shared).raise_section(hasher, hash, namespace, id, at_least);
        Some(placed(raised?, SectionPlace::Shared))
    }

    /// As [`KeyTable::touch`], for keys like `like` with these hashes.
    ///
    /// [`KeyTable::touch`]: super::key_table::KeyTable::touch
    pub fn touch(
        &self, namespace: &Namespace, like: Key<'_>, hashes: impl Iterator<Item = u64> + Clone,
    ) {
        among_keys!((&) self, namespace, like, |keys, _, _| keys.touch(hashes));
    }

    /// Adds a key that was not asked for in this term. Returns the place of its section, and whether the term has nothing of
    /// the section, and nobody waits for it.
    #[cold]
    pub fn insert(
        &mut self, hasher: &Hasher, hash: u64, namespace: &Namespace, key: Key<'_>,
    ) -> (SectionPlace, bool) {
        if let Key::Name(name) = key {
            self.name_bytes += name.len();
        }
        among_keys!((&mut) self, namespace, key, |keys, one, at| {
            let (number, has_nothing) = keys.insert(hasher, hash, namespace, one);
            (at(number), has_nothing)
        })
    }

    /// Adds the section of an id that shares it, if it was not asked for in this term. Otherwise as [`Shard::insert`].
    #[cold]
    pub fn insert_section(&mut self, namespace: &Namespace, id: u64) -> (SectionPlace, bool) {
        assert!(namespace.config.shares_sections(), "{namespace:?}");
        let (number, has_nothing) = self.shared.insert_section(namespace, id);
        (SectionPlace::Shared(number), has_nothing)
    }

    /// Notes that the term got the section at `place` by its epoch.
    pub fn note_uncheckpointed(&mut self, place: SectionPlace) {
        self.uncheckpointed.push(place);
    }

    /// How many sections [`Shard::take_uncheckpointed`] has still to answer.
    pub fn uncheckpointed(&self) -> usize {
        self.uncheckpointed.len()
    }

    /// Up to `limit` sections that the term got by its epoch, and their places. Each is answered once.
    pub fn take_uncheckpointed(&mut self, limit: usize) -> Vec<(SectionId, SectionPlace)> {
        let rest = self.uncheckpointed.len().saturating_sub(limit);
        let places = self.uncheckpointed.split_off(rest);
        if rest == 0 {
            self.uncheckpointed = Vec::new();
        }
        self.uncheckpointed_sent = self.uncheckpointed_sent.min(rest);
        (places.into_iter()).filter_map(|place| Some((self.section_id(place)?, place))).collect()
    }

    /// True if this term has a chunk of the section at `place`.
    pub fn has_chunk(&self, place: SectionPlace, config: &NamespaceConfig) -> bool {
        at_place!((&) self, place, |keys, number| keys.has_chunk(number, config))
    }

    /// True if no bump of the section at `place` is pending.
    pub fn is_quiet(&self, place: SectionPlace) -> bool {
        at_place!((&) self, place, |keys, number| keys.is_quiet(number))
    }

    /// The identifier of the section at `place`.
    pub fn section_id(&self, place: SectionPlace) -> Option<SectionId> {
        at_place!((&) self, place, |keys, number| keys.section_id(number))
    }

    /// By how much the section at `place` is to be bumped now: enough for a refill that was asked for,
    /// and for all calls that wait. `None` if nobody wants the bump any more.
    pub fn next_bump(
        &mut self, place: SectionPlace, namespace: &Namespace,
    ) -> Option<CeilingRaise> {
        at_place!((&mut) self, place, |keys, number| keys.next_bump(number, namespace))
    }

    /// Adds a chunk that the term was given at `now` to the section at `place`. Tells whether the
    /// section's step changed.
    pub fn add_chunk(
        &mut self, place: SectionPlace, chunk: Chunk, config: &NamespaceConfig, now: Instant,
        bump_time: Duration,
    ) -> Option<StepChange> {
        at_place!((&mut) self, place, |keys, number| {
            keys.add_chunk(number, chunk, config, now, bump_time)
        })
    }

    /// Lets `act` work with the section at `place`. `None` if there is none.
    pub fn with_section<R>(
        &mut self, place: SectionPlace, config: &NamespaceConfig,
        act: impl FnOnce(&mut QueuedSection) -> R,
    ) -> Option<R> {
        at_place!((&mut) self, place, |keys, number| keys.with_section(number, config, act))
    }

    /// Lets `act` work with the section at `place`, if calls wait for it.
    pub fn with_waiters(&mut self, place: SectionPlace, act: impl FnOnce(&mut QueuedSection)) {
        at_place!((&mut) self, place, |keys, number| keys.with_waiters(number, act));
    }

    /// Serves the calls that waited for a bump of the section at `place`, in their order, and adds them
    /// to `served`. True if a further bump must be asked for.
    pub fn serve(
        &mut self, hasher: &Hasher, place: SectionPlace, namespace: &Namespace,
        served: &mut Vec<ServedCall>,
    ) -> bool {
        at_place!((&mut) self, place, |keys, number| keys.serve(hasher, number, namespace, served))
    }

    /// The numbers of a key's section that the term owns. Of an evicted one, those that it owned then, until the eviction is
    /// applied. `None` before the first chunk.
    pub fn holding(&self, hash: u64, namespace: &Namespace, key: Key<'_>) -> Option<Holding> {
        let held = among_keys!((&) self, namespace, key, |keys, one, _| {
            keys.holding(hash, namespace, one)
        });
        held.or_else(|| self.last_of_evicted(namespace, key).map(Holding::gone))
    }

    /// True if the term has numbers for a key that is new to it: those of the section that it shares.
    pub fn has_chunk_for_new(&self, namespace: &Namespace, key: Key<'_>) -> bool {
        match key {
            Key::Id(id) if namespace.config.shares_sections() => {
                self.shared.has_chunk_of(namespace, id)
            }
            Key::Id(_) | Key::Name(_) => false,
        }
    }

    /// How many calls wait for sections of which the term has nothing yet.
    pub fn first_waiters(&self) -> usize {
        self.ids.first_waiters() + self.names.first_waiters() + self.shared.first_waiters()
    }

    /// How much it holds. Does not look at the keys.
    pub fn footprint(&self) -> Footprint {
        let own = self.ids.len() + self.names.len();
        Footprint {
            keys: own + self.shared.len(),
            sections: own + self.shared.sections(),
            bytes: self.ids.bytes()
                + self.names.bytes()
                + self.name_bytes
                + self.shared.bytes()
                + self.uncheckpointed.capacity() * size_of::<SectionPlace>()
                + self.evicting.allocation_size(),
            vacant_bytes: self.ids.vacant_bytes()
                + self.names.vacant_bytes()
                + self.shared.vacant_bytes(),
        }
    }

    /// The calls that wait, by section.
    pub fn into_waiters(self) -> impl Iterator<Item = (SectionId, Waiters)> {
        let own = self.ids.into_waiters().chain(self.names.into_waiters());
        own.chain(self.shared.into_waiters()).filter(|(_, waiters)| !waiters.is_empty())
    }

    /// Empties the shard and says what was used of each section that got a chunk, and whether it was used up. This includes
    /// those that were: their record then says that nothing is skipped. Sections of a namespace without a known progression are
    /// left out.
    pub fn close(
        &mut self, progression_of: impl Fn(NamespaceId) -> Option<Progression>,
    ) -> Vec<(bool, SectionUse)> {
        let Shard { ids, names, shared, .. } = std::mem::take(self);
        let own = ids.used(&progression_of).chain(names.used(&progression_of));
        own.chain(shared.used(&progression_of)).collect()
    }
}

/// An answer, and where the section is that must be bumped, if one must.
fn placed<A>(
    (answer, bump): (A, Option<u32>), at: impl FnOnce(u32) -> SectionPlace,
) -> (A, Option<SectionPlace>) {
    (answer, bump.map(at))
}

#[cfg(test)]
mod tests;

//! What happens to the sections of a memory beside the calls that take numbers: the first touch, settling, eviction,
//! raised floors.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use tokio::sync::{MutexGuard, Notify};

use super::{Memory, Need, Place};
use crate::{
    allocator::{
        floor::{Floor, FloorOf, Raised},
        key_table::hasher::{SHARDS, shard_of},
        outcome::Why,
        section::pending::{AboveAnswer, RaiseAnswer, RaiseNewAnswer},
        shard::{SectionPlace, Shard, own_keys::Swept},
    },
    metrics::{FirstTouch as Source, SkipCause},
    planted_bugs::{Bug, is_planted},
    sequence::{Chunk, Key, Namespace, NamespaceConfig, SectionId, SectionRecord, Trim},
};

impl Memory {
    /// The identifier of the section at `place`, whose record is to be read, and, if nobody waits for the section, what its
    /// shard counts of sections that are evicted. `None` if nobody wants the record: the memory was abandoned, or the
    /// section is leaving.
    ///
    /// While calls wait for the section, it is not evicted, and they wait until the record was read: no other request of the
    /// section is under way. So its record stays as it is read.
    pub fn begin_read(&self, place: Place) -> Option<(SectionId, Option<u64>)> {
        let shard = self.shards.lock(place.shard);
        let id = shard.section_id(place.section)?;
        let evictions = shard.is_quiet(place.section).then(|| shard.evictions());
        (!shard.is_leaving(&id)).then_some((id, evictions))
    }

    /// Takes in the record of the section at `place`, and serves the calls that waited for it. Says what the section needs
    /// now. If it is a new section and the disks are low, they are refused. `evictions` is what [`Memory::begin_read`]
    /// noted: if the shard counts more, the section may have been evicted since, and
    /// the record is read again.
    pub fn record_read(
        &self, place: Place, (id, evictions): &(SectionId, Option<u64>), record: SectionRecord,
        namespace: &Namespace,
    ) -> Option<Need> {
        let mut read_again = false;
        let bump = self.serve_at(place, id, namespace, |shard, served| {
            let config = &namespace.config;
            // As in `take_first`.
            if shard.has_chunk(place.section, config) || self.is_abandoned() {
                return true;
            }
            // Whoever evicts it asks for the bump.
            if shard.is_leaving(id) {
                return false;
            }
            read_again = evictions.is_some_and(|noted| noted != shard.evictions());
            if read_again {
                return false;
            }
            if let Some(low) = self.view.free_space().refusal().filter(|_| !record.exists()) {
                shard.with_waiters(place.section, |queued| queued.refuse(low, served));
                return false;
            }
            self.first_touch(shard, place.section, record, config, Source::disk);
            true
        });
        match bump {
            true => Some(Need::Bump),
            false => read_again.then_some(Need::Read),
        }
    }

    /// Gives the section at `place`, which has no chunk yet, what this term's lift gave of it. `record` is the
    /// section's, read after the lift was applied.
    pub(super) fn first_touch(
        &self, shard: &mut Shard, place: SectionPlace, record: SectionRecord,
        config: &NamespaceConfig, source: Source,
    ) {
        let chunk = match is_planted(Bug::ChunkFromLocalRead) || is_planted(Bug::LiftNotCounted) {
            false => record.lifted(config.progression(), self.lift),
            true => planted_chunk(record, config, self.lift),
        };
        let Some(chunk) = chunk else {
            self.set_metrics.first_touches.add(Source::bump, 1);
            return;
        };
        self.set_metrics.first_touches.add(source, 1);
        // It is the first chunk: the step does not change.
        let _ = shard.grant(place, chunk, config, self.now(), self.bump_time());
        shard.note_unsettled(place);
        self.to_settle.notify_one();
    }
}

/// A planted bug: the chunk that a lift before may have given, or that the last bump gave.
fn planted_chunk(record: SectionRecord, config: &NamespaceConfig, lift: u64) -> Option<Chunk> {
    record.lifted(config.progression(), lift)?;
    let width = record.step * config.increment;
    let old = match is_planted(Bug::ChunkFromLocalRead) {
        true => record.max_seq.saturating_sub(width),
        false => record.max_seq,
    };
    Some(Chunk { old, new: old + width })
}

// Which sections of a term are still to be settled, and when an entry of the background is under way: one that settles
// or releases sections.

impl Memory {
    /// Notified when the term first uses the chunk that its lift gave of a section, and when the gate closes.
    pub fn to_settle(&self) -> &Arc<Notify> {
        &self.to_settle
    }

    /// Waits until no entry of the background is under way, and lets none begin while the guard lives. `None` if the
    /// gate is closed: then none begins any more.
    pub async fn begin_background_entry(&self) -> Option<MutexGuard<'_, ()>> {
        let guard = self.background_entry.lock().await;
        (!self.gate.is_closed()).then_some(guard)
    }

    /// Waits until no entry of the background is under way. Call it after the gate was closed.
    pub async fn background_ended(&self) {
        assert!(self.gate.is_closed(), "another entry may begin");
        self.to_settle.notify_one();
        self.room.wake_releaser();
        drop(self.background_entry.lock().await);
    }

    /// How many sections use what the term's lift gave and are not settled yet.
    pub fn unsettled(&self) -> usize {
        self.shards.each().map(|shard| shard.unsettled()).sum()
    }

    /// Some sections, at most `limit`, that use what the term's lift gave and are not settled yet, and their places. Each is
    /// returned once.
    pub fn take_unsettled(&self, limit: usize) -> Vec<(SectionId, Place)> {
        let mut sections = Vec::new();
        for _ in 0..SHARDS {
            let shard = self.settling.fetch_add(1, Relaxed) % SHARDS;
            let taken = self.shards.lock(shard).take_unsettled(limit - sections.len());
            sections.extend(taken.into_iter().map(|(id, section)| (id, Place { shard, section })));
            if sections.len() == limit {
                break;
            }
        }
        // In an order that is the same in every run.
        sections.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        sections
    }

    /// Notes that the sections at these places are not settled. [`Memory::take_unsettled`] returned them, and no entry of the
    /// background has begun since: so each place still has the same section.
    pub fn put_unsettled_back(&self, places: Vec<Place>) {
        for Place { shard, section } in places {
            self.shards.lock(shard).note_unsettled(section);
        }
    }
}

// Which keys of a memory are evicted, and what happens when the log says what was used of their sections.

/// How many slots of a shard the hand passes before it passes as many of the next one. It does so under one lock, which a
/// call that needs the shard waits for: some tens of microseconds. When shared sections are evicted, all slots of the shard
/// are read under that lock as well (`shard/shared_keys/evict.rs`).
const TURN_SLOTS: usize = 256;

impl Memory {
    /// Moves the hand over `slots` slots, or until `sections` sections are evicted, or to the end of its round. The log
    /// must be told what was used of them, and then [`Memory::released`]. True at the end of the round. Blocks for some
    /// milliseconds.
    pub fn evict(&self, slots: usize, sections: usize) -> (Swept, bool) {
        let namespaces = self.view.namespaces();
        let progression_of = |id| Some(namespaces.by_id(id)?.config.progression());
        let mut swept = Swept::default();
        // The releaser alone moves the hand: nobody waits for this lock.
        let mut round = self.round.lock();
        while swept.slots < slots && swept.released.len() < sections && !self.is_abandoned() {
            let number = round.next_turn();
            let limits = (TURN_SLOTS, sections - swept.released.len());
            let mut shard = self.shards.lock(number);
            let at_end = shard.evict(self.shards.hasher(), limits, progression_of, &mut swept);
            if at_end && round.end_shard(number) {
                return (swept, true);
            }
        }
        (swept, false)
    }

    /// The log says what was used of the sections. Returns the places of those that calls ask for again: they must be
    /// bumped.
    pub fn released(&self, sections: &[Trim]) -> Vec<Place> {
        let hasher = self.shards.hasher();
        let wanted = sections.iter().filter_map(|Trim { section, lost, .. }| {
            self.counts_of(section.namespace).skip(SkipCause::shared_section, *lost);
            let number = shard_of(hasher.section_id(section));
            let place = self.shards.lock(number).end_leaving(section)?;
            Some(Place { shard: number, section: place })
        });
        wanted.collect()
    }
}

// Raises the floors of keys in the memory.

impl Memory {
    /// Moves a key, or all keys of its section, above `at_least`, or waits for that. A section must be one that ids
    /// share. Otherwise as [`Memory::take`].
    pub fn raise(
        &self, namespace: &Namespace, of: (FloorOf, Key<'_>), at_least: u64,
    ) -> (RaiseAnswer, Option<(Place, Need)>) {
        let (hash, shard) = self.shards.find(namespace, of.1);
        let mut locked = self.shards.lock(shard);
        let (answer, need) = self.raise_in(&mut locked, hash, namespace, of, at_least.into());
        drop(locked);
        if let RaiseAnswer::Done(Ok(raised)) = &answer {
            // Nobody gets them, whatever becomes of the answer.
            self.note_passed(namespace, raised.passed);
        }
        (answer, Place::in_shard(shard, need))
    }

    /// As [`Memory::raise`], within the key's shard. Whoever calls it counts the numbers that are passed over.
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
    /// takes any in between. Whoever comes while it waits stands behind it.
    pub fn raise_new(
        &self, namespace: &Namespace, key: Key<'_>, at_least: u64,
    ) -> (RaiseNewAnswer, Option<(Place, Need)>) {
        let (hash, shard) = self.shards.find(namespace, key);
        let mut locked = self.shards.lock(shard);
        let of = (FloorOf::Key, key);
        // Raises nothing, and answers where the key stands, once the term has numbers of it and nobody waits for more.
        let (stands, need) = self.raise_in(&mut locked, hash, namespace, of, 0.into());
        match stands {
            RaiseAnswer::Done(Ok(Raised { floor: 0, .. })) => {}
            known @ RaiseAnswer::Done(_) => return (RaiseNewAnswer::Known(known), None),
            RaiseAnswer::Later(later) => {
                return (RaiseNewAnswer::Unknown(later), Place::in_shard(shard, need));
            }
        }
        let (answer, need) = self.raise_in(&mut locked, hash, namespace, of, at_least.into());
        drop(locked);
        if let RaiseAnswer::Done(Ok(raised)) = &answer {
            self.note_passed(namespace, raised.passed);
        }
        (RaiseNewAnswer::Known(answer), Place::in_shard(shard, need))
    }

    /// Moves a key above `floor`, and takes as many of its next numbers as `count_of` says of the last number before
    /// them; all under one lock, so that no other call takes any in between.
    pub fn take_above(
        &self, namespace: &Namespace, key: Key<'_>, floor: Floor, count_of: impl FnOnce(u64) -> u64,
    ) -> (AboveAnswer, Option<(Place, Need)>) {
        let (hash, shard) = self.shards.find(namespace, key);
        let mut locked = self.shards.lock(shard);
        let of = (FloorOf::Key, key);
        let (raised, need) = self.raise_in(&mut locked, hash, namespace, of, floor);
        let raised = match raised {
            RaiseAnswer::Done(Ok(raised)) => raised,
            RaiseAnswer::Done(Err(refused)) => return (AboveAnswer::Refused(refused), None),
            RaiseAnswer::Later(later) => {
                return (AboveAnswer::Later(later), Place::in_shard(shard, need));
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
        (answer, Place::in_shard(shard, need))
    }
}

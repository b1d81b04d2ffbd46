//! The state machine: what a committed command does to the replicated table.
//!
//! [`apply`] is deterministic, so every node comes to the same table and outcome. It reads and writes
//! through [`Table`], so that the storage decides how to make one entry's writes atomic.
//!
//! Invariant: a bump raises a ceiling and its chunk begins at the ceiling before; a trim never raises
//! one; only the term that the ledger names writes sections.

use std::collections::BTreeSet;

use super::{
    books::{Booked, DAYS_KEPT, DayBooks, day_of},
    command::{Bump, Bumped, Command, Outcome, Trim},
    ids::{NamespaceId, SectionId},
    ledger::{Ledger, LedgerRefused},
    namespace_life::{self, NamespaceTable, WorkerTable},
    progression::Progression,
    request_book::{
        self, MessagePart, NoRoom, PartTaken, Remembered, Remembering, RequestTable, Taken, Used,
    },
    section::{Exhausted, SectionRecord},
};
use crate::planted_bugs::{Bug, is_planted};

/// The replicated table as one log entry sees it. Reads see the entry's own writes.
pub trait Table: WorkerTable + RequestTable<ReadError = <Self as NamespaceTable>::Error> {
    /// The ledger, or the default if nothing was written to it.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn ledger(&self) -> Result<Ledger, Self::Error>;
    /// Writes the ledger.
    fn put_ledger(&mut self, ledger: Ledger);
    /// A section's record, or the default if there is none. If the record is older than lift number `lift`, its floor
    /// and its time may be wrong: nothing uses them then.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn section(&self, id: &SectionId, lift: u64) -> Result<SectionRecord, Self::Error>;
    /// As [`Table::section`], for the section of a gapless key: its record counts, however many lifts it has seen, and its
    /// ceiling is its floor.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn gapless_section(&self, id: &SectionId, lift: u64) -> Result<SectionRecord, Self::Error> {
        self.section(id, lift)
    }
    /// Writes a section's record.
    fn put_section(&mut self, id: &SectionId, record: SectionRecord);
    /// The books of a namespace and a day; `None` if there are none.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn day_books(&self, id: NamespaceId, day: u32) -> Result<Option<DayBooks>, Self::Error>;
    /// Writes the books of a namespace and a day.
    fn put_day_books(&mut self, id: NamespaceId, day: u32, books: DayBooks);
    /// The days of which a namespace has books.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn days_booked(&self, id: NamespaceId) -> Result<BTreeSet<u32>, Self::Error>;
    /// Removes the books of a namespace and a day.
    fn remove_day_books(&mut self, id: NamespaceId, day: u32);
    /// Notes how many numbers the entry has booked as skipped by leaders that ended without leaving them to anybody.
    fn note_skipped(&mut self, numbers: u64);
}

/// Applies one committed command of `term` to the table.
///
/// # Errors
/// If the table cannot be read. A refusal is not an error but an [`Outcome`], since every node must come to
/// the same one.
pub fn apply<T: Table>(table: &mut T, term: u64, command: &Command) -> Result<Outcome, T::Error> {
    use Command::*;
    match command {
        Bump { bumps, lost, now_ms } => write_sections(table, term, *now_ms, |table, entry| {
            for lost in lost {
                entry.booked.add(lost.namespace, (*lost).into());
            }
            let bumped = bumps.iter().map(|bump| apply_bump(table, entry, bump));
            bumped.collect::<Result<_, _>>().map(Outcome::Bumped)
        }),
        Trim { trims, now_ms } => write_sections(table, term, *now_ms, |table, entry| {
            let trimmed = apply_each(trims, |trim| apply_trim(table, entry, trim))?;
            Ok(Outcome::Trimmed(trimmed))
        }),
        Release { released: trims, now_ms } => {
            write_sections(table, term, *now_ms, |table, entry| {
                let released = apply_each(trims, |trim| apply_release(table, entry, trim))?;
                Ok(Outcome::Released(released))
            })
        }
        Settle { sections, now_ms } => write_sections(table, term, *now_ms, |table, entry| {
            let settled = apply_each(sections, |section| apply_settle(table, entry, section))?;
            Ok(Outcome::Settled(settled))
        }),
        Lift => change_ledger(table, |ledger| ledger.lift(term).map(Outcome::Holds)),
        Inherit { successor, digest } => change_ledger(table, |ledger| {
            ledger.inherit(term, *successor, *digest).map(Outcome::Holds)
        }),
        Bequeath(bequest) => change_ledger(table, |ledger| {
            let done = ledger.bequeath(term, *bequest);
            done.map(|()| Outcome::Bequeathed)
        }),
        CreateNamespace { config, namespaces_max } => {
            namespace_life::create(table, config, *namespaces_max).map(Outcome::Namespace)
        }
        UpdateNamespace { name, change } => {
            namespace_life::update(table, name, change).map(Outcome::Namespace)
        }
        FoundNamespaces(namespaces) => {
            namespace_life::found(table, namespaces).map(|()| Outcome::None)
        }
        DeleteNamespace { name, forget } => {
            namespace_life::delete(table, name, *forget).map(Outcome::NamespaceDeleted)
        }
        Take { remembering, parts, no_room, count_max, now_ms } => {
            write_sections(table, term, *now_ms, |table, entry| {
                request_book::advance(table, remembering)?;
                let limits = (remembering, *no_room, *count_max);
                let taken = parts.iter().map(|part| apply_part(table, entry, limits, part));
                taken.collect::<Result<_, _>>().map(Outcome::Took)
            })
        }
        Workers { asks, now_ms } => {
            namespace_life::apply_asks(table, asks, *now_ms).map(Outcome::Workers)
        }
        NameCluster(id) => namespace_life::name_cluster(table, *id).map(|()| Outcome::None),
    }
}

/// What the writes of one entry have in common.
struct Entry {
    /// How many lifts were spent.
    lift: u64,
    /// The time by the clock of the leader that proposed the entry.
    now_ms: u64,
    /// What the entry books.
    booked: Booked,
}

/// Lets `write` write sections, if `term` may.
fn write_sections<T: Table>(
    table: &mut T, term: u64, now_ms: u64,
    write: impl FnOnce(&mut T, &mut Entry) -> Result<Outcome, T::Error>,
) -> Result<Outcome, T::Error> {
    let ledger = table.ledger()?;
    match ledger.check_writer(term) {
        Ok(()) => {
            let mut entry = Entry { lift: ledger.lift, now_ms, booked: Booked::default() };
            let outcome = write(table, &mut entry)?;
            book(table, day_of(now_ms), entry.booked)?;
            Ok(outcome)
        }
        Err(refused) => Ok(Outcome::Refused(refused)),
    }
}

/// Writes what an entry books. If a namespace has the books of as many days as are kept, the entry that opens another day
/// removes one. It is the one farthest from the new day, since a clock that was wrong may have named a day far ahead.
fn book<T: Table>(table: &mut T, day: u32, booked: Booked) -> Result<(), T::Error> {
    for (namespace, more) in booked.into_iter() {
        let Some(known) = table.namespace(namespace) else {
            continue;
        };
        // Those of ids count for nothing: most of them stand for times at which nobody asked.
        if known.config.format.is_none() {
            table.note_skipped(more.leader_change);
        }
        let known = table.day_books(namespace, day)?;
        if known.is_none() {
            let booked = table.days_booked(namespace)?;
            let farthest = booked.iter().copied().max_by_key(|booked| booked.abs_diff(day));
            if let Some(farthest) = farthest.filter(|_| booked.len() >= DAYS_KEPT as usize) {
                table.remove_day_books(namespace, farthest);
            }
        }
        let books = known.unwrap_or_default().plus(more);
        table.put_day_books(namespace, day, books);
    }
    Ok(())
}

fn change_ledger<T: Table>(
    table: &mut T, change: impl FnOnce(&mut Ledger) -> Result<Outcome, LedgerRefused>,
) -> Result<Outcome, T::Error> {
    let mut ledger = table.ledger()?;
    match change(&mut ledger) {
        Ok(outcome) => {
            table.put_ledger(ledger);
            Ok(outcome)
        }
        Err(refused) => Ok(Outcome::Refused(refused)),
    }
}

/// Counts the `items` for which `apply` answers true.
fn apply_each<I, E>(items: &[I], mut apply: impl FnMut(&I) -> Result<bool, E>) -> Result<u64, E> {
    let mut written = 0;
    for item in items {
        written += u64::from(apply(item)?);
    }
    Ok(written)
}

fn apply_bump<T: Table>(table: &mut T, entry: &mut Entry, bump: &Bump) -> Result<Bumped, T::Error> {
    let Some(namespace) = table.namespace(bump.section.namespace) else {
        return Ok(Bumped::NoNamespace);
    };
    let config = &namespace.config;
    let (progression, quota) = (config.progression(), (config.keys_max, config.section_size));
    let before = table.section(&bump.section, entry.lift)?;
    if let Some(keys_max) = over_quota(table, &bump.section, &before, quota)? {
        return Ok(Bumped::OverQuota { keys_max });
    }
    match before.bump(progression, entry.lift, bump.raise) {
        Ok((record, chunk)) => {
            debug_assert!(chunk.old >= before.max_seq, "a chunk begins at the ceiling or above");
            debug_assert_eq!(chunk.new, record.max_seq, "a chunk ends at the new ceiling");
            write_section(table, entry, &bump.section, (&before, record), progression)?;
            Ok(Bumped::Chunk(chunk))
        }
        Err(Exhausted) => Ok(Bumped::Exhausted { max: progression.max }),
    }
}

/// The namespace's `keys_max` if the section has no record yet, and must not get one.
fn over_quota<T: Table>(
    table: &mut T, section: &SectionId, before: &SectionRecord,
    (keys_max, section_size): (Option<u64>, u64),
) -> Result<Option<u64>, T::Error> {
    let Some(keys_max) = keys_max.filter(|_| !before.exists()) else {
        return Ok(None);
    };
    let is_full = (table.totals(section.namespace)?).is_full(keys_max, section_size);
    Ok((is_full && !is_planted(Bug::QuotaIgnored)).then_some(keys_max))
}

fn apply_part<T: Table>(
    table: &mut T, entry: &mut Entry,
    (remembering, no_room, count_max): (&Remembering, Option<NoRoom>, u64), part: &MessagePart,
) -> Result<PartTaken, T::Error> {
    let namespace = table.namespace(part.namespace);
    let Some(namespace) = namespace.filter(|namespace| namespace.config.gapless) else {
        return Ok(PartTaken::NoNamespace);
    };
    let config = &namespace.config;
    let (progression, quota) = (config.progression(), (config.keys_max, config.section_size));
    let count_max = config.count_max.unwrap_or(u64::MAX).min(count_max);
    let bytes = part.id.as_ref().map_or(0, |id| Remembered::bytes(id, &part.takes));
    if let Some(id) = &part.id {
        // Exactly once: the numbers and the id are written by one entry, and found by all later ones.
        if let Some(before) = table.remembered(part.namespace, id)? {
            return Ok(again(before, part));
        }
        if let Some(made_ms) = part.made_ms
            && let Some(clock_ms) = request_book::expired(table, remembering, id.lifetime, made_ms)?
        {
            return Ok(PartTaken::Expired { made_ms, clock_ms });
        }
        if request_book::is_full(table, remembering, bytes)? {
            return Ok(PartTaken::IdsFull { bytes_max: remembering.bytes_max });
        }
    }
    let mut taken = Vec::with_capacity(part.takes.len());
    for take in &part.takes {
        let section = SectionId { namespace: part.namespace, key: take.section.clone() };
        let before = table.gapless_section(&section, entry.lift)?;
        taken.push(match no_room.filter(|_| !before.exists()) {
            _ if take.count > count_max => Taken::TooLarge { count_max },
            Some(no_room) => Taken::NoRoom(no_room),
            None => {
                apply_take(table, entry, (&section, &before), take.count, (progression, quota))?
            }
        });
    }
    // Whoever got nothing may ask again once more is there. But other parts of the message may get something.
    let took = taken.iter().any(|taken| matches!(taken, Taken::Range(_)));
    if let Some(id) = part.id.as_ref().filter(|_| took || part.whole.is_some()) {
        let takes = part.takes.iter().cloned().zip(taken.clone()).collect();
        let remembered = Remembered { whole: part.whole, takes };
        request_book::remember(table, part.namespace, id, bytes, remembered)?;
    }
    Ok(PartTaken::Taken(taken))
}

/// The answer to a part of a message whose id is remembered.
fn again(before: Remembered, part: &MessagePart) -> PartTaken {
    let is_same = before.is_of(part);
    let keys = before.takes.len() as u64;
    let mut takes = before.takes.into_iter();
    if is_same {
        return PartTaken::Repeated(takes.map(|(_, taken)| taken).collect());
    }
    match takes.next() {
        Some((first, _)) => PartTaken::Reused(Used { keys, first }),
        // No part without takes is remembered.
        None => PartTaken::NoNamespace,
    }
}

fn apply_take<T: Table>(
    table: &mut T, entry: &mut Entry, (section, before): (&SectionId, &SectionRecord), count: u64,
    (progression, quota): (Progression, (Option<u64>, u64)),
) -> Result<Taken, T::Error> {
    if let Some(keys_max) = over_quota(table, section, before, quota)? {
        return Ok(Taken::OverQuota { keys_max });
    }
    let (record, range) = match before.take(progression, entry.lift, count) {
        Ok(taken) => taken,
        Err(left) => return Ok(Taken::Exhausted { left }),
    };
    debug_assert!(range.first > before.max_seq, "{range:?} above {before:?}");
    write_section(table, entry, section, (before, record), progression)?;
    Ok(Taken::Range(range))
}

/// True if the section was trimmed, or its namespace is gone.
fn apply_trim<T: Table>(table: &mut T, entry: &mut Entry, trim: &Trim) -> Result<bool, T::Error> {
    lower(table, entry, trim, SectionRecord::trim)
}

/// True if the section was released, or its namespace is gone.
fn apply_release<T: Table>(
    table: &mut T, entry: &mut Entry, trim: &Trim,
) -> Result<bool, T::Error> {
    lower(table, entry, trim, SectionRecord::release)
}

/// Lowers a section's ceiling by `lower`. False if the term owns nothing of it, or less than it says. True if its namespace
/// is gone: nothing is left to give back.
fn lower<T: Table>(
    table: &mut T, entry: &mut Entry, trim: &Trim,
    lower: impl FnOnce(SectionRecord, Progression, u64, u64) -> Option<SectionRecord>,
) -> Result<bool, T::Error> {
    let Some(progression) = progression(table, &trim.section) else {
        return Ok(true);
    };
    let before = table.section(&trim.section, entry.lift)?;
    let Some(after) = lower(before, progression, entry.lift, trim.used) else {
        return Ok(false);
    };
    let after = within_bounds(table, &trim.section, after);
    debug_assert!(
        after.max_seq >= before.floor_at(entry.lift, progression.increment),
        "{before:?} to {after:?}"
    );
    let lost = DayBooks { shared_section: trim.lost, ..DayBooks::default() };
    entry.booked.add(trim.section.namespace, lost);
    write_section(table, entry, &trim.section, (&before, after), progression)?;
    Ok(true)
}

/// True if the section was settled.
fn apply_settle<T: Table>(
    table: &mut T, entry: &mut Entry, section: &SectionId,
) -> Result<bool, T::Error> {
    let Some(progression) = progression(table, section) else {
        return Ok(false);
    };
    let before = table.section(section, entry.lift)?;
    let Some(after) = before.settle(progression, entry.lift) else {
        return Ok(false);
    };
    let after = within_bounds(table, section, after);
    write_section(table, entry, section, (&before, after), progression)?;
    Ok(true)
}

/// Writes a section's record in the place of `before`, with the time. Keeps the namespace's totals, and books the change.
fn write_section<T: Table>(
    table: &mut T, entry: &mut Entry, id: &SectionId,
    (before, after): (&SectionRecord, SectionRecord), progression: Progression,
) -> Result<(), T::Error> {
    let change = DayBooks::of_change(before, &after, progression);
    entry.booked.add(id.namespace, change);
    table.totals(id.namespace)?.note(before, &after);
    let written_ms = entry.now_ms;
    table.put_section(id, SectionRecord { written_ms, ..after });
    Ok(())
}

/// The record with its step within the bounds that the namespace has by now. What earlier lifts gave is part of its
/// ceiling already. A section of which lifts give nothing stays so.
fn within_bounds<T: Table>(table: &T, section: &SectionId, record: SectionRecord) -> SectionRecord {
    let Some(namespace) = table.namespace(section.namespace) else {
        return record;
    };
    let (step_min, step_max) = namespace.config.step_bounds();
    SectionRecord {
        step: match record.step {
            0 => 0,
            step => step.clamp(step_min, step_max),
        },
        ..record
    }
}

fn progression<T: Table>(table: &T, section: &SectionId) -> Option<Progression> {
    let namespace = table.namespace(section.namespace)?;
    Some(namespace.config.progression())
}

#[cfg(test)]
mod tests;

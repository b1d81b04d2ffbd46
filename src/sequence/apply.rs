//! The state machine: what a committed command does to the replicated table.
//!
//! [`apply`] is deterministic, so every node comes to the same table and outcome. It reads and writes
//! through [`Table`], so that the storage decides how to make one entry's writes atomic.
//!
//! Invariant: a bump raises a ceiling and its chunk begins at the ceiling before; a trim never raises
//! one; only the term that the ledger names writes sections.

use super::{
    books::{Booked, DAYS_KEPT, DayBooks, day_of},
    command::{Bump, Bumped, Command, Outcome, Trim},
    ids::SectionId,
    ledger::{Ledger, LedgerRefused},
    namespace_life::{self, Table},
    progression::Progression,
    request_book::{
        MessagePart, NoRoom, PartTaken, Remembered, Remembering, RequestBook, Taken, Used,
    },
    section::{Exhausted, SectionRecord},
};
use crate::planted_bugs::{Bug, is_planted};

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
            lower_each(table, entry, trims, SectionRecord::trim)
        }),
        Release { released, now_ms } => write_sections(table, term, *now_ms, |table, entry| {
            lower_each(table, entry, released, SectionRecord::release)
        }),
        Settle { sections, now_ms } => write_sections(table, term, *now_ms, |table, entry| {
            let mut settled = 0;
            for section in sections {
                let written = rewrite(table, entry, section, SectionRecord::settle)?;
                settled += u64::from(written == Some(true));
            }
            Ok(Outcome::Written(settled))
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
                let mut book = table.request_book()?;
                let due = book.advance(remembering, |place| table.queued_id(place))?;
                due.iter().for_each(|(place, queued)| table.forget(*place, queued));
                let limits = (remembering, *no_room, *count_max);
                let taken =
                    parts.iter().map(|part| apply_part(table, entry, &mut book, limits, part));
                let taken = taken.collect::<Result<Vec<_>, _>>()?;
                table.put_request_book(book);
                Ok(Outcome::Took(taken))
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
    table: &mut T, entry: &mut Entry, book: &mut RequestBook,
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
            && let Some(clock_ms) = book.expired(remembering, id.lifetime, made_ms)
        {
            return Ok(PartTaken::Expired { made_ms, clock_ms });
        }
        if book.is_full(remembering, bytes) {
            return Ok(PartTaken::IdsFull { bytes_max: remembering.bytes_max });
        }
    }
    let mut taken = Vec::with_capacity(part.takes.len());
    for take in &part.takes {
        let section = SectionId { namespace: part.namespace, key: take.section.clone() };
        // The record of a gapless key counts, however many lifts it has seen, and its ceiling is its floor.
        let before = table.section(&section, u64::MAX)?;
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
        let (place, queued) = book.remember(part.namespace, id, bytes);
        table.remember(place, queued, remembered);
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

/// Lowers ceilings by `lower`. Counts the sections of which the term owns what it says.
fn lower_each<T: Table>(
    table: &mut T, entry: &mut Entry, trims: &[Trim],
    lower: impl Fn(SectionRecord, Progression, u64, u64) -> Option<SectionRecord>,
) -> Result<Outcome, T::Error> {
    let mut lowered = 0;
    for Trim { section, used, lost } in trims {
        let lower = |before, progression, lift| lower(before, progression, lift, *used);
        let written = rewrite(table, entry, section, lower)?;
        if written == Some(true) {
            let lost = DayBooks { shared_section: *lost, ..DayBooks::default() };
            entry.booked.add(section.namespace, lost);
        }
        // Nothing is left to give back of a section whose namespace is gone.
        lowered += u64::from(written != Some(false));
    }
    Ok(Outcome::Written(lowered))
}

/// Writes what `change` makes of a section's record, if anything. `None` if the section's namespace is gone.
///
/// The step gets within the bounds that the namespace has by now. What earlier lifts gave is part of the ceiling already. A
/// section of which lifts give nothing stays so.
fn rewrite<T: Table>(
    table: &mut T, entry: &mut Entry, id: &SectionId,
    change: impl FnOnce(SectionRecord, Progression, u64) -> Option<SectionRecord>,
) -> Result<Option<bool>, T::Error> {
    let Some(namespace) = table.namespace(id.namespace) else {
        return Ok(None);
    };
    let progression = namespace.config.progression();
    let (step_min, step_max) = namespace.config.step_bounds();
    let before = table.section(id, entry.lift)?;
    let Some(mut after) = change(before, progression, entry.lift) else {
        return Ok(Some(false));
    };
    if after.step > 0 {
        after.step = after.step.clamp(step_min, step_max);
    }
    debug_assert!(
        after.max_seq >= before.floor_at(entry.lift, progression.increment),
        "{before:?} to {after:?}"
    );
    write_section(table, entry, id, (&before, after), progression)?;
    Ok(Some(true))
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

#[cfg(test)]
mod tests;

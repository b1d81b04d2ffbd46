//! The state machine: what a committed command does to the replicated table.
//!
//! [`apply`] is deterministic, so every node comes to the same table and outcome. It reads and writes
//! through [`Table`], so that the storage decides how to make one entry's writes atomic.
//!
//! Invariant: a bump raises a ceiling and its chunk begins at the ceiling before; a trim never raises
//! one; only the term that the ledger names writes sections.

use super::{
    access::{AccessChange, AccessRefused},
    accounts::{DAYS_KEPT, DayAccounts, EntryAccounts, day_of},
    command::{Bump, Bumped, Command, EntryOutcome, SectionUse},
    gapless_take::{FirstUse, MessagePart, NoRoom, PartTaken, Take, Taken},
    identifiers::{NamespaceId, SectionId},
    ledger::{Ledger, LedgerRefused},
    namespace_life,
    progression::Progression,
    request_book::{IdShare, Remembered, Remembering, RequestBook},
    request_id::PartId,
    section::{Exhausted, SectionRecord},
    table::Table,
    worker_asks,
};
use crate::planted_bugs::{Bug, is_planted};

/// Applies one committed command of `term` to the table.
///
/// # Errors
/// If the table cannot be read. A refusal is not an error but an [`EntryOutcome`], since every node must come to
/// the same one.
pub fn apply<T: Table>(
    table: &mut T, term: u64, command: &Command,
) -> Result<EntryOutcome, T::Error> {
    use Command::*;
    match command {
        Bump { bumps, skipped, now_ms } => write_sections(table, term, *now_ms, |table, entry| {
            for numbers in skipped {
                entry.accounts.add(numbers.namespace, (*numbers).into());
            }
            let bumped = bumps.iter().map(|bump| apply_bump(table, entry, bump));
            bumped.collect::<Result<_, _>>().map(EntryOutcome::Bumped)
        }),
        Trim { sections, now_ms } => write_sections(table, term, *now_ms, |table, entry| {
            lower_each(table, entry, sections, SectionRecord::trim)
        }),
        Release { sections, now_ms } => write_sections(table, term, *now_ms, |table, entry| {
            lower_each(table, entry, sections, SectionRecord::release)
        }),
        Checkpoint { sections, now_ms } => write_sections(table, term, *now_ms, |table, entry| {
            checkpoint_each(table, entry, sections)
        }),
        BeginEpoch => {
            change_ledger(table, |ledger| ledger.begin_epoch(term).map(EntryOutcome::InEpoch))
        }
        TakeOver { successor, digest } => change_ledger(table, |ledger| {
            ledger.take_over(term, *successor, *digest).map(EntryOutcome::InEpoch)
        }),
        EndTerm(end) => change_ledger(table, |ledger| {
            let done = ledger.end_term(term, *end);
            done.map(|()| EntryOutcome::TermEnded)
        }),
        CreateNamespace { config, namespaces_max } => {
            namespace_life::create(table, config, *namespaces_max).map(EntryOutcome::Namespace)
        }
        UpdateNamespace { name, change } => {
            namespace_life::update(table, name, change).map(EntryOutcome::Namespace)
        }
        FoundNamespaces(namespaces) => {
            namespace_life::found(table, namespaces).map(|()| EntryOutcome::None)
        }
        DeleteNamespace { name, forget } => {
            namespace_life::delete(table, name, *forget).map(EntryOutcome::NamespaceDeleted)
        }
        Take { remembering, parts, no_room, count_max, now_ms } => {
            write_sections(table, term, *now_ms, |table, entry| {
                take_parts(table, entry, (remembering, *no_room, *count_max), parts)
            })
        }
        Workers { asks, now_ms } => {
            worker_asks::apply_asks(table, asks, *now_ms).map(EntryOutcome::Workers)
        }
        NameCluster(id) => namespace_life::name_cluster(table, *id).map(|()| EntryOutcome::None),
        ChangeAccess(change) => change_access(table, change).map(EntryOutcome::Access),
    }
}

/// Changes the principals.
fn change_access<T: Table>(
    table: &mut T, change: &AccessChange,
) -> Result<Result<(), AccessRefused>, T::Error> {
    let is_founded = table.next_namespace_id()?.is_some();
    Ok(change.records(table.principals(), is_founded).map(|records| {
        for (key, record) in records {
            table.put_principal(key, record);
        }
        let version = table.principals().version();
        table.put_principals_version(version + 1);
    }))
}

/// The common state of the writes of one entry.
struct EntryState {
    /// How many epochs have begun.
    epoch: u64,
    /// The time by the clock of the leader that proposed the entry.
    now_ms: u64,
    /// The accounts that the entry adds.
    accounts: EntryAccounts,
}

/// Lets `write` write sections, if `term` may.
fn write_sections<T: Table>(
    table: &mut T, term: u64, now_ms: u64,
    write: impl FnOnce(&mut T, &mut EntryState) -> Result<EntryOutcome, T::Error>,
) -> Result<EntryOutcome, T::Error> {
    let ledger = table.ledger()?;
    match ledger.check_writer(term) {
        Ok(()) => {
            let mut entry =
                EntryState { epoch: ledger.epoch, now_ms, accounts: EntryAccounts::default() };
            let outcome = write(table, &mut entry)?;
            add_accounts(table, day_of(now_ms), entry.accounts)?;
            Ok(outcome)
        }
        Err(refused) => Ok(EntryOutcome::Refused(refused)),
    }
}

/// Adds what an entry counted to the accounts of its day. If a namespace has the accounts of as many days as are kept,
/// the entry that opens another day removes one. It is the one farthest from the new day, since a clock that was wrong
/// may have named a day far ahead.
fn add_accounts<T: Table>(
    table: &mut T, day: u32, accounts: EntryAccounts,
) -> Result<(), T::Error> {
    for (namespace, more) in accounts.into_iter() {
        let Some(known) = table.namespace(namespace) else {
            continue;
        };
        // Skipped numbers of ids are not noted: most of them stand for times at which nobody asked.
        if known.config.format.is_none() {
            table.note_skipped(namespace, more.leader_change);
        }
        let known = table.day_accounts(namespace, day)?;
        if known.is_none() {
            let days = table.accounted_days(namespace)?;
            let farthest = days.iter().copied().max_by_key(|known| known.abs_diff(day));
            if let Some(farthest) = farthest.filter(|_| days.len() >= DAYS_KEPT as usize) {
                table.remove_day_accounts(namespace, farthest);
            }
        }
        let accounts = known.unwrap_or_default().plus(more);
        table.put_day_accounts(namespace, day, accounts);
    }
    Ok(())
}

fn change_ledger<T: Table>(
    table: &mut T, change: impl FnOnce(&mut Ledger) -> Result<EntryOutcome, LedgerRefused>,
) -> Result<EntryOutcome, T::Error> {
    let mut ledger = table.ledger()?;
    match change(&mut ledger) {
        Ok(outcome) => {
            table.put_ledger(ledger);
            Ok(outcome)
        }
        Err(refused) => Ok(EntryOutcome::Refused(refused)),
    }
}

fn apply_bump<T: Table>(
    table: &mut T, entry: &mut EntryState, bump: &Bump,
) -> Result<Bumped, T::Error> {
    let Some(namespace) = table.namespace(bump.section.namespace) else {
        return Ok(Bumped::NoNamespace);
    };
    let config = &namespace.config;
    let (progression, key_limit) = (config.progression(), (config.keys_max, config.section_size));
    let before = table.section(&bump.section, entry.epoch)?;
    if let Some(keys_max) = over_keys_max(table, &bump.section, &before, key_limit)? {
        return Ok(Bumped::OverKeysMax { keys_max });
    }
    match before.bump(progression, entry.epoch, bump.raise) {
        Ok((record, chunk)) => {
            // Epochs only raise a ceiling, unless the record's is beyond all numbers.
            assert!(chunk.old >= before.max_seq, "the table is damaged: {before:?}");
            write_section(table, entry, &bump.section, (&before, record), progression)?;
            Ok(Bumped::Chunk(chunk))
        }
        Err(Exhausted) => Ok(Bumped::Exhausted { max: progression.max }),
    }
}

/// The namespace's `keys_max` if the section has no record yet, and must not get one.
fn over_keys_max<T: Table>(
    table: &mut T, section: &SectionId, before: &SectionRecord,
    (keys_max, section_size): (Option<u64>, u64),
) -> Result<Option<u64>, T::Error> {
    let Some(keys_max) = keys_max.filter(|_| !before.exists()) else {
        return Ok(None);
    };
    let is_full = (table.totals(section.namespace)?).is_full(keys_max, section_size);
    Ok((is_full && !is_planted(Bug::KeysMaxIgnored)).then_some(keys_max))
}

/// Takes numbers for the parts of messages, in their order. Before that the request ids are forgotten whose time has come.
fn take_parts<T: Table>(
    table: &mut T, entry: &mut EntryState, limits: (&Remembering, Option<NoRoom>, u64),
    parts: &[MessagePart],
) -> Result<EntryOutcome, T::Error> {
    let (remembering, ..) = limits;
    let mut book = table.request_book()?;
    let due = book.advance(remembering, |place| table.queued_id(place))?;
    for (place, queued) in &due {
        table.forget(*place, queued);
        let (of, bytes) = ((queued.namespace, queued.caller), queued.bytes);
        count_ids(table, of, |held| held.saturating_sub(bytes))?;
    }
    let taken = parts.iter().map(|part| apply_part(table, entry, &mut book, limits, part));
    let taken = taken.collect::<Result<Vec<_>, _>>()?;
    table.put_request_book(book);
    Ok(EntryOutcome::Took(taken))
}

fn apply_part<T: Table>(
    table: &mut T, entry: &mut EntryState, book: &mut RequestBook,
    (remembering, no_room, count_max): (&Remembering, Option<NoRoom>, u64), part: &MessagePart,
) -> Result<PartTaken, T::Error> {
    let namespace = table.namespace(part.namespace);
    let Some(namespace) = namespace.filter(|namespace| namespace.config.gapless) else {
        return Ok(PartTaken::NoNamespace);
    };
    let config = &namespace.config;
    let (progression, key_limit) = (config.progression(), (config.keys_max, config.section_size));
    let count_max = config.count_max.unwrap_or(u64::MAX).min(count_max);
    let nothing = nothing_to_take(table, book, remembering, part)?;
    if let Some(NothingToTake::Answered(answer)) = nothing {
        return Ok(answer);
    }
    let is_left_out = nothing.is_some();
    let mut taken = Vec::with_capacity(part.takes.len());
    for take in &part.takes {
        taken.push(match take.count > count_max {
            true => Taken::TooLarge { count_max },
            false => {
                let limits = (progression, key_limit, no_room);
                apply_take(table, entry, (part.namespace, take), limits, is_left_out)?
            }
        });
    }
    if is_left_out {
        return Ok(PartTaken::Repeated(taken));
    }
    if let Some(id) = &part.id {
        remember(table, book, (part, id), &taken)?;
    }
    Ok(PartTaken::Taken(taken))
}

/// The reason for which a part of a message takes nothing.
enum NothingToTake {
    /// It takes nothing. This is the answer.
    Answered(PartTaken),
    /// An earlier try of it took nothing, and neither does this one.
    LeftOut,
}

/// `None` if the part has no id, or comes for the first time and may take numbers.
fn nothing_to_take<T: Table>(
    table: &T, book: &RequestBook, remembering: &Remembering, part: &MessagePart,
) -> Result<Option<NothingToTake>, T::Error> {
    let Some(id) = &part.id else {
        return Ok(None);
    };
    // Exactly once: the numbers and the id are written by one entry, and found by all later ones.
    let own = table.remembered(part.namespace, id)?;
    let is_later_part = own.is_none() && part.whole.is_some() && id.part > 0;
    let left_out = match is_later_part {
        true => table.remembered(part.namespace, &id.of_left_out())?,
        false => None,
    };
    if own.iter().chain(&left_out).any(|known| known.has_left_out(part)) {
        return Ok(Some(NothingToTake::LeftOut));
    }
    let answer = match (own, part.made_ms) {
        (Some(own), _) => Some(again(own, part)),
        (None, Some(made_ms)) => {
            let expired = book.expired(remembering, id.lifetime, made_ms);
            expired.map(|clock_ms| PartTaken::Expired { made_ms, clock_ms })
        }
        (None, None) => None,
    };
    if answer.is_some() {
        return Ok(answer.map(NothingToTake::Answered));
    }
    let bytes = Remembered::bytes(id, &part.takes);
    for share in IdShare::all_of(part.namespace, part.caller) {
        let held = table.id_bytes(share)?;
        if let Some(full) = book.full(remembering, bytes, (share, held)) {
            return Ok(Some(NothingToTake::Answered(PartTaken::IdsFull(full))));
        }
    }
    Ok(None)
}

/// The answer to a part of a message whose id is remembered.
fn again(before: Remembered, part: &MessagePart) -> PartTaken {
    let is_same = before.is_of(part);
    let keys = before.takes.len() as u64;
    let mut takes = before.takes.into_iter();
    match is_same {
        true => PartTaken::Repeated(takes.map(|(_, taken)| taken).collect()),
        false => PartTaken::Reused(takes.next().map(|(first, _)| FirstUse { keys, first })),
    }
}

/// Remembers what a part of a message took. A caller that got nothing may ask again once more is there. But other parts of the
/// message may get something: that this one took nothing is remembered, and not what it asked for.
fn remember<T: Table>(
    table: &mut T, book: &mut RequestBook, (part, id): (&MessagePart, &PartId), taken: &[Taken],
) -> Result<(), T::Error> {
    let took = taken.iter().any(|taken| matches!(taken, Taken::Range(_)));
    let (id, remembered) = match (took, part.whole, id.part) {
        (false, None, _) => return Ok(()),
        (true, whole, _) => {
            let takes = part.takes.iter().cloned().zip(taken.iter().cloned()).collect();
            (id.clone(), Remembered { whole, takes, left_out: 0 })
        }
        (false, whole, number) => {
            // The first part has a record of its own: it tells whether the id is used again for another message.
            let id = if number == 0 { id.clone() } else { id.of_left_out() };
            let left_out = Remembered::bit_of(number);
            let known = table.remembered(part.namespace, &id)?.filter(|known| known.whole == whole);
            if let Some(known) = known {
                let left_out = known.left_out | left_out;
                let remembered = Remembered { left_out, ..known };
                table.put_remembered(part.namespace, &id, remembered);
                return Ok(());
            }
            (id, Remembered { whole, takes: Vec::new(), left_out })
        }
    };
    let bytes = match took {
        true => Remembered::bytes(&id, &part.takes),
        false => Remembered::bytes(&id, &[]),
    };
    let (place, queued) = book.remember(part, id, bytes);
    count_ids(table, (queued.namespace, queued.caller), |held| held.saturating_add(bytes))?;
    table.remember(place, queued, remembered);
    Ok(())
}

/// Counts the bytes of ids for those who hold them.
fn count_ids<T: Table>(
    table: &mut T, (namespace, caller): (NamespaceId, Option<u64>), change: impl Fn(u64) -> u64,
) -> Result<(), T::Error> {
    for share in IdShare::all_of(namespace, caller) {
        let held = table.id_bytes(share)?;
        table.put_id_bytes(share, change(held));
    }
    Ok(())
}

/// Takes numbers, unless an earlier try of the message took none.
fn apply_take<T: Table>(
    table: &mut T, entry: &mut EntryState, (namespace, take): (NamespaceId, &Take),
    (progression, key_limit, no_room): (Progression, (Option<u64>, u64), Option<NoRoom>),
    is_left_out: bool,
) -> Result<Taken, T::Error> {
    let section = &SectionId { namespace, key: take.section.clone() };
    // The record of a gapless key counts, however many epochs it has seen, and its ceiling is its floor.
    let before = &table.section(section, u64::MAX)?;
    if let Some(no_room) = no_room.filter(|_| !before.exists()) {
        return Ok(Taken::NoRoom(no_room));
    }
    if let Some(keys_max) = over_keys_max(table, section, before, key_limit)? {
        return Ok(Taken::OverKeysMax { keys_max });
    }
    let (record, range) = match before.take(progression, entry.epoch, take.count) {
        Ok(_) if is_left_out => return Ok(Taken::LeftOut),
        Ok(taken) => taken,
        Err(left) => return Ok(Taken::Exhausted { left }),
    };
    // The numbers lie above the ceiling, unless that is beyond all numbers. The term that gets them asserts how many they are.
    assert!(range.first > before.max_seq, "the table is damaged: {before:?}");
    write_section(table, entry, section, (before, record), progression)?;
    Ok(Taken::Range(range))
}

/// Lowers ceilings by `lower`. Counts the sections whose numbers the term owns, as it says.
fn lower_each<T: Table>(
    table: &mut T, entry: &mut EntryState, sections: &[SectionUse],
    lower: impl Fn(SectionRecord, Progression, u64, u64) -> Option<SectionRecord>,
) -> Result<EntryOutcome, T::Error> {
    let mut lowered = 0;
    for SectionUse { section, used, skipped } in sections {
        let lower = |before, progression, epoch| lower(before, progression, epoch, *used);
        let written = rewrite(table, entry, section, lower)?;
        if written == Some(true) {
            let accounts = DayAccounts { shared_section: *skipped, ..DayAccounts::default() };
            entry.accounts.add(section.namespace, accounts);
        }
        // There is nothing to return of a section whose namespace is gone.
        lowered += u64::from(written != Some(false));
    }
    Ok(EntryOutcome::Written(lowered))
}

/// Writes down what the epoch gave of each section. Counts the sections that were written.
fn checkpoint_each<T: Table>(
    table: &mut T, entry: &mut EntryState, sections: &[SectionId],
) -> Result<EntryOutcome, T::Error> {
    let mut checkpointed = 0;
    for section in sections {
        let written = rewrite(table, entry, section, SectionRecord::checkpoint)?;
        checkpointed += u64::from(written == Some(true));
    }
    Ok(EntryOutcome::Written(checkpointed))
}

/// Writes what `change` makes of a section's record, if anything. `None` if the section's namespace is gone.
///
/// The step gets within the bounds that the namespace has by now. The numbers that earlier epochs gave are part of the ceiling
/// already. A section of which epochs give nothing stays so.
fn rewrite<T: Table>(
    table: &mut T, entry: &mut EntryState, id: &SectionId,
    change: impl FnOnce(SectionRecord, Progression, u64) -> Option<SectionRecord>,
) -> Result<Option<bool>, T::Error> {
    let Some(namespace) = table.namespace(id.namespace) else {
        return Ok(None);
    };
    let progression = namespace.config.progression();
    let (step_min, step_max) = namespace.config.step_bounds();
    let before = table.section(id, entry.epoch)?;
    let Some(mut after) = change(before, progression, entry.epoch) else {
        return Ok(Some(false));
    };
    if after.step > 0 {
        after.step = after.step.clamp(step_min, step_max);
    }
    // Earlier epochs may have used the numbers up to the floor. So a section that would fall below it stays as it is. The term
    // that proposed the trim or the release is told of one section fewer: it does not return its epoch, or it ends.
    let floor = before.floor_at(entry.epoch, progression.increment);
    if after.max_seq < floor {
        return Ok(Some(false));
    }
    write_section(table, entry, id, (&before, after), progression)?;
    Ok(Some(true))
}

/// Writes a section's record in the place of `before`, with the time. Keeps the namespace's totals, and enters the
/// change in the accounts.
fn write_section<T: Table>(
    table: &mut T, entry: &mut EntryState, id: &SectionId,
    (before, after): (&SectionRecord, SectionRecord), progression: Progression,
) -> Result<(), T::Error> {
    let change = DayAccounts::of_change(before, &after, progression);
    entry.accounts.add(id.namespace, change);
    table.totals(id.namespace)?.note(before, &after);
    let written_ms = entry.now_ms;
    table.put_section(id, SectionRecord { written_ms, ..after });
    Ok(())
}

#[cfg(test)]
mod tests;

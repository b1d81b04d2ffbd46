//! The state machine: what a committed command does to the replicated table.
//!
//! [`apply`] is deterministic, so every node comes to the same table and outcome. It reads and writes
//! through [`Table`], so that the storage decides how to make one entry's writes atomic.
//!
//! Invariant: a bump raises a ceiling and its chunk begins at the ceiling before; a trim never raises
//! one; only the term that the ledger names writes sections.

use super::{
    command::{Bump, Bumped, Command, NamespaceRefused, Outcome, Trim},
    ids::{NamespaceId, SectionId},
    ledger::{Ledger, LedgerRefused},
    namespace::{Namespace, NamespaceConfig},
    progression::Progression,
    section::{Exhausted, SectionRecord},
};

/// The replicated table as one log entry sees it. Reads see the entry's own writes.
pub trait Table {
    /// The error of a read.
    type Error;

    /// The ledger, or the default if nothing was written to it.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn ledger(&self) -> Result<Ledger, Self::Error>;
    /// Writes the ledger.
    fn put_ledger(&mut self, ledger: Ledger);
    /// A section's record, or the default if there is none. If the record is older than lift number `lift`, its floor
    /// may be wrong: nothing uses it then.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn section(&self, id: &SectionId, lift: u64) -> Result<SectionRecord, Self::Error>;
    /// Writes a section's record.
    fn put_section(&mut self, id: &SectionId, record: SectionRecord);
    /// A namespace by its id.
    fn namespace(&self, id: NamespaceId) -> Option<&Namespace>;
    /// A namespace by its name.
    fn namespace_named(&self, name: &str) -> Option<&Namespace>;
    /// How many namespaces there are.
    fn namespace_count(&self) -> usize;
    /// The id of the next namespace. It is above the ids of all namespaces that ever existed.
    fn next_namespace_id(&self) -> NamespaceId;
    /// Writes a namespace.
    fn put_namespace(&mut self, namespace: Namespace);
}

/// Applies one committed command of `term` to the table.
///
/// # Errors
/// If the table cannot be read. A refusal is not an error but an [`Outcome`], since every node must come to
/// the same one.
pub fn apply<T: Table>(table: &mut T, term: u64, command: &Command) -> Result<Outcome, T::Error> {
    match command {
        Command::Bump(bumps) => write_sections(table, term, |table, lift| {
            let bumped = bumps.iter().map(|bump| apply_bump(table, lift, bump));
            bumped.collect::<Result<_, _>>().map(Outcome::Bumped)
        }),
        Command::Trim(trims) => write_sections(table, term, |table, lift| {
            let trimmed = apply_each(trims, |trim| apply_trim(table, lift, trim))?;
            Ok(Outcome::Trimmed(trimmed))
        }),
        Command::Settle(sections) => write_sections(table, term, |table, lift| {
            let settled = apply_each(sections, |section| apply_settle(table, lift, section))?;
            Ok(Outcome::Settled(settled))
        }),
        Command::Lift => change_ledger(table, |ledger| ledger.lift(term).map(Outcome::Holds)),
        Command::Inherit { heir, digest } => change_ledger(table, |ledger| {
            ledger.inherit(term, *heir, *digest).map(Outcome::Holds)
        }),
        Command::Bequeath(bequest) => change_ledger(table, |ledger| {
            let done = ledger.bequeath(term, *bequest);
            done.map(|()| Outcome::Bequeathed)
        }),
        Command::CreateNamespace {
            config,
            namespaces_max,
        } => Ok(Outcome::Namespace(create(table, config, *namespaces_max))),
        Command::UpdateNamespace {
            name,
            step,
            step_min,
            step_max,
            max,
        } => Ok(Outcome::Namespace(update(table, name, |config| {
            config.step = step.unwrap_or(config.step);
            config.step_min = none_for_0(*step_min, config.step_min);
            config.step_max = none_for_0(*step_max, config.step_max);
            config.max = max.unwrap_or(config.max);
        }))),
    }
}

/// Lets `write` write sections, if `term` may. It is told how many lifts were spent.
fn write_sections<T: Table>(
    table: &mut T,
    term: u64,
    write: impl FnOnce(&mut T, u64) -> Result<Outcome, T::Error>,
) -> Result<Outcome, T::Error> {
    let ledger = table.ledger()?;
    match ledger.check_writer(term) {
        Ok(()) => write(table, ledger.lift),
        Err(refused) => Ok(Outcome::Refused(refused)),
    }
}

fn change_ledger<T: Table>(
    table: &mut T,
    change: impl FnOnce(&mut Ledger) -> Result<Outcome, LedgerRefused>,
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

/// Counts for how many of `items` `apply` wrote a record.
fn apply_each<I, E>(items: &[I], mut apply: impl FnMut(&I) -> Result<bool, E>) -> Result<u64, E> {
    let mut written = 0;
    for item in items {
        written += u64::from(apply(item)?);
    }
    Ok(written)
}

fn apply_bump<T: Table>(table: &mut T, lift: u64, bump: &Bump) -> Result<Bumped, T::Error> {
    let Some(namespace) = table.namespace(bump.section.namespace) else {
        return Ok(Bumped::NoNamespace);
    };
    let progression = namespace.config.progression();
    let before = table.section(&bump.section, lift)?;
    match before.bump(progression, lift, bump.raise) {
        Ok((record, chunk)) => {
            debug_assert!(
                chunk.old >= before.max_seq,
                "a chunk begins at the ceiling or above"
            );
            debug_assert_eq!(chunk.new, record.max_seq, "a chunk ends at the new ceiling");
            table.put_section(&bump.section, record);
            Ok(Bumped::Chunk(chunk))
        }
        Err(Exhausted) => Ok(Bumped::Exhausted {
            max: progression.max,
        }),
    }
}

/// True if the section was trimmed.
fn apply_trim<T: Table>(table: &mut T, lift: u64, trim: &Trim) -> Result<bool, T::Error> {
    let Some(Progression { increment, .. }) = progression(table, &trim.section) else {
        return Ok(false);
    };
    let before = table.section(&trim.section, lift)?;
    let after = before.trim(lift, increment, trim.used);
    if let Some(record) = after {
        let record = within_bounds(table, &trim.section, record);
        debug_assert!(
            record.max_seq >= before.floor_at(lift, increment),
            "{before:?} to {record:?}"
        );
        table.put_section(&trim.section, record);
    }
    Ok(after.is_some())
}

/// True if the section was settled.
fn apply_settle<T: Table>(table: &mut T, lift: u64, section: &SectionId) -> Result<bool, T::Error> {
    let Some(progression) = progression(table, section) else {
        return Ok(false);
    };
    let after = table.section(section, lift)?.settle(progression, lift);
    if let Some(record) = after {
        let record = within_bounds(table, section, record);
        table.put_section(section, record);
    }
    Ok(after.is_some())
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

fn create<T: Table>(
    table: &mut T,
    config: &NamespaceConfig,
    namespaces_max: u64,
) -> Result<Namespace, NamespaceRefused> {
    config.check()?;
    if table.namespace_named(&config.name).is_some() {
        return Err(NamespaceRefused::Exists(config.name.clone()));
    }
    let count = table.namespace_count() as u64;
    if count >= namespaces_max {
        return Err(NamespaceRefused::TooMany(count));
    }
    let namespace = Namespace::new(table.next_namespace_id(), config.clone());
    table.put_namespace(namespace.clone());
    Ok(namespace)
}

fn update<T: Table>(
    table: &mut T,
    name: &str,
    change: impl FnOnce(&mut NamespaceConfig),
) -> Result<Namespace, NamespaceRefused> {
    let mut namespace = table
        .namespace_named(name)
        .cloned()
        .ok_or_else(|| NamespaceRefused::NotFound(name.to_owned()))?;
    change(&mut namespace.config);
    namespace.config.check()?;
    namespace.max_ever = namespace.max_ever.max(namespace.config.max);
    table.put_namespace(namespace.clone());
    Ok(namespace)
}

fn none_for_0(new: Option<u64>, old: Option<u64>) -> Option<u64> {
    new.map_or(old, |new| (new > 0).then_some(new))
}

#[cfg(test)]
mod tests;

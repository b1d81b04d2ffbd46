//! The state machine: what a committed command does to the replicated table.
//!
//! [`apply`] is deterministic, so every node comes to the same table and outcome. It reads and writes
//! through [`Table`], so that the storage decides how to make one entry's writes atomic.
//!
//! Invariant: a bump raises a ceiling and its chunk begins at the ceiling before; a trim never raises
//! one.

use super::{
    command::{Bump, Bumped, Command, NamespaceRefused, Outcome},
    ids::{NamespaceId, SectionId},
    namespace::{Namespace, NamespaceConfig},
    section::{Exhausted, SectionRecord},
};

/// The replicated table as one log entry sees it. Reads see the entry's own writes.
pub trait Table {
    /// The error of a read.
    type Error;

    /// A section's record, or the default if there is none.
    ///
    /// # Errors
    /// If the storage cannot be read or is damaged.
    fn section(&self, id: &SectionId) -> Result<SectionRecord, Self::Error>;
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
        Command::Bump(bumps) => bumps
            .iter()
            .map(|bump| apply_bump(table, term, bump))
            .collect::<Result<_, _>>()
            .map(Outcome::Bumped),
        Command::Trim(trims) => {
            let mut trimmed = 0;
            for trim in trims {
                let before = table.section(&trim.section)?;
                if let Some(record) = before.trim(term, trim.used) {
                    debug_assert_eq!(before.term, term, "only the owner trims");
                    debug_assert!(record.max_seq >= before.floor, "{before:?} to {record:?}");
                    table.put_section(&trim.section, record);
                    trimmed += 1;
                }
            }
            Ok(Outcome::Trimmed(trimmed))
        }
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

fn apply_bump<T: Table>(table: &mut T, term: u64, bump: &Bump) -> Result<Bumped, T::Error> {
    let Some(namespace) = table.namespace(bump.section.namespace) else {
        return Ok(Bumped::NoNamespace);
    };
    let progression = namespace.config.progression();
    let before = table.section(&bump.section)?;
    match before.bump(progression, term, bump.numbers, bump.unused_max) {
        Ok((record, chunk)) => {
            debug_assert_eq!(chunk.old, before.max_seq, "a chunk begins at the ceiling");
            debug_assert_eq!(chunk.new, record.max_seq, "a chunk ends at the new ceiling");
            table.put_section(&bump.section, record);
            Ok(Bumped::Chunk(chunk))
        }
        Err(Exhausted) => Ok(Bumped::Exhausted {
            max: progression.max,
        }),
    }
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
    let namespace = Namespace {
        id: table.next_namespace_id(),
        config: config.clone(),
    };
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
    table.put_namespace(namespace.clone());
    Ok(namespace)
}

fn none_for_0(new: Option<u64>, old: Option<u64>) -> Option<u64> {
    new.map_or(old, |new| (new > 0).then_some(new))
}

#[cfg(test)]
mod tests;

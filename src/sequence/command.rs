//! What travels through the Raft log, and what it does to the replicated table.
//!
//! [`apply`] is the state machine: deterministic, and the same on every node. It reads and writes
//! through [`Table`], so that the storage decides how to make one entry's writes atomic.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Chunk, Exhausted, InvalidNamespace, Namespace, NamespaceConfig, NamespaceId, SectionId,
    SectionRecord,
};

/// A log entry's payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Raise the ceilings of many sections; the answers are the proposer's chunks.
    Bump(Vec<Bump>),
    /// Lower the ceilings of many sections to what their owner used: the end of a term.
    Trim(Vec<Trim>),
    /// Create a namespace, unless there are too many. The limit is in the entry: replicas of releases
    /// with other limits come to the same.
    CreateNamespace {
        /// What to create.
        config: NamespaceConfig,
        /// How many namespaces there may be with it.
        namespaces_max: u64,
    },
    /// Change what may be changed of a namespace; `None` leaves a field as it is.
    UpdateNamespace {
        /// Which.
        name: String,
        /// The new step.
        step: Option<u64>,
        /// The new least step; 0 for none.
        step_min: Option<u64>,
        /// The new greatest step; 0 for none.
        step_max: Option<u64>,
        /// The new maximum.
        max: Option<u64>,
    },
}

/// How many namespaces a cluster may have: every node holds all of them in memory.
const NAMESPACES_MAX: u64 = 10_000;

impl Command {
    /// Creates a namespace, within this release's limit on their number.
    pub fn create_namespace(config: NamespaceConfig) -> Self {
        Command::CreateNamespace {
            config,
            namespaces_max: NAMESPACES_MAX,
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Bump(bumps) => write!(f, "bump {} sections", bumps.len()),
            Command::Trim(trims) => write!(f, "trim {} sections", trims.len()),
            Command::CreateNamespace { config, .. } => {
                write!(f, "create namespace {:?}", config.name)
            }
            Command::UpdateNamespace { name, .. } => write!(f, "update namespace {name:?}"),
        }
    }
}

/// Raise one section's ceiling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bump {
    /// Which section.
    pub section: SectionId,
    /// By how many numbers; at least 1.
    pub numbers: u64,
    /// How many numbers of the section are unused at most once this is in force: one step, and what
    /// the calls that wait have asked for beyond it.
    pub unused_max: u64,
}

/// Lower one section's ceiling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trim {
    /// Which section.
    pub section: SectionId,
    /// The greatest number that the term handed out in it.
    pub used: u64,
}

/// What a command came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// A blank or membership entry: nothing to say.
    None,
    /// An answer for each bump, in order.
    Bumped(Vec<Bumped>),
    /// How many sections were trimmed.
    Trimmed(u64),
    /// The namespace as it now is.
    Namespace(Result<Namespace, NamespaceRefused>),
}

/// What a bump came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bumped {
    /// The proposer's chunk.
    Chunk(Chunk),
    /// No number is left.
    Exhausted {
        /// Under this `max`, the namespace's when the bump was applied.
        max: u64,
    },
    /// There is no namespace of that id.
    NoNamespace,
}

/// Why a namespace was not created or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NamespaceRefused {
    /// The name is taken.
    #[error("namespace {0:?} exists already")]
    Exists(String),
    /// There is none of that name.
    #[error("namespace {0:?} does not exist; create it with: ratchet namespace create {0}")]
    NotFound(String),
    /// The configuration is not acceptable.
    #[error("{0}")]
    Invalid(String),
    /// There are as many as there may be.
    #[error(
        "there are {0} namespaces already, as many as there may be, and none can be removed; give \
         keys a prefix inside a namespace instead of one each"
    )]
    TooMany(u64),
}

impl From<InvalidNamespace> for NamespaceRefused {
    fn from(invalid: InvalidNamespace) -> Self {
        NamespaceRefused::Invalid(invalid.to_string())
    }
}

/// The replicated table as one log entry sees it: reads see the entry's own writes.
pub trait Table {
    /// Why a read failed.
    type Error;

    /// A section's record; the default where there is none.
    ///
    /// # Errors
    /// When the storage cannot be read or trusted.
    fn section(&self, id: &SectionId) -> Result<SectionRecord, Self::Error>;
    /// Writes a section's record.
    fn put_section(&mut self, id: &SectionId, record: SectionRecord);
    /// A namespace by its id.
    fn namespace(&self, id: NamespaceId) -> Option<&Namespace>;
    /// A namespace by its name.
    fn namespace_named(&self, name: &str) -> Option<&Namespace>;
    /// How many namespaces there are.
    fn namespace_count(&self) -> usize;
    /// The id of the next namespace: above those of all that ever were.
    fn next_namespace_id(&self) -> NamespaceId;
    /// Writes a namespace.
    fn put_namespace(&mut self, namespace: Namespace);
}

/// Applies one committed command of `term` to the table.
///
/// # Errors
/// Only the table's own: a refusal is an [`Outcome`], since every node must come to the same.
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
                if let Some(record) = table.section(&trim.section)?.trim(term, trim.used) {
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
    let lattice = namespace.config.lattice();
    match table
        .section(&bump.section)?
        .bump(lattice, term, bump.numbers, bump.unused_max)
    {
        Ok((record, chunk)) => {
            table.put_section(&bump.section, record);
            Ok(Bumped::Chunk(chunk))
        }
        Err(Exhausted) => Ok(Bumped::Exhausted { max: lattice.max }),
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
mod tests {
    use std::{
        collections::{BTreeMap, HashMap},
        convert::Infallible,
    };

    use super::super::SectionKey;
    use super::*;

    #[derive(Default)]
    struct Memory {
        sections: HashMap<SectionId, SectionRecord>,
        namespaces: BTreeMap<NamespaceId, Namespace>,
    }

    impl Table for Memory {
        type Error = Infallible;
        fn section(&self, id: &SectionId) -> Result<SectionRecord, Infallible> {
            Ok(self.sections.get(id).copied().unwrap_or_default())
        }
        fn put_section(&mut self, id: &SectionId, record: SectionRecord) {
            self.sections.insert(id.clone(), record);
        }
        fn namespace(&self, id: NamespaceId) -> Option<&Namespace> {
            self.namespaces.get(&id)
        }
        fn namespace_named(&self, name: &str) -> Option<&Namespace> {
            self.namespaces.values().find(|n| n.config.name == name)
        }
        fn namespace_count(&self) -> usize {
            self.namespaces.len()
        }
        fn next_namespace_id(&self) -> NamespaceId {
            NamespaceId(self.namespaces.len() as u32 + 1)
        }
        fn put_namespace(&mut self, namespace: Namespace) {
            self.namespaces.insert(namespace.id, namespace);
        }
    }

    fn run(table: &mut Memory, term: u64, command: Command) -> Outcome {
        let Ok(outcome) = apply(table, term, &command);
        outcome
    }

    fn bump(id: u64, numbers: u64) -> Bump {
        Bump {
            section: section(id),
            numbers,
            unused_max: numbers,
        }
    }

    fn section(id: u64) -> SectionId {
        SectionId {
            namespace: NamespaceId(1),
            key: SectionKey::Id(id),
        }
    }

    #[test]
    fn one_entry_bumps_many_sections_even_the_same_twice() {
        let mut table = Memory::default();
        run(
            &mut table,
            1,
            Command::create_namespace(NamespaceConfig::new("book")),
        );
        let outcome = run(
            &mut table,
            1,
            Command::Bump(vec![bump(7, 10), bump(8, 5), bump(7, 10)]),
        );
        assert_eq!(
            outcome,
            Outcome::Bumped(vec![
                Bumped::Chunk(Chunk {
                    old: 0,
                    new: 10,
                    left: 0
                }),
                Bumped::Chunk(Chunk {
                    old: 0,
                    new: 5,
                    left: 0
                }),
                Bumped::Chunk(Chunk {
                    old: 10,
                    new: 20,
                    left: 0
                }),
            ])
        );
    }

    #[test]
    fn refusals_are_outcomes_and_change_nothing() {
        let mut table = Memory::default();
        assert_eq!(
            run(&mut table, 1, Command::Bump(vec![bump(7, 10)])),
            Outcome::Bumped(vec![Bumped::NoNamespace])
        );
        run(
            &mut table,
            1,
            Command::create_namespace(NamespaceConfig::new("book")),
        );
        assert_eq!(
            run(
                &mut table,
                1,
                Command::create_namespace(NamespaceConfig::new("book"))
            ),
            Outcome::Namespace(Err(NamespaceRefused::Exists("book".into())))
        );
        let update = |name: &str, step| Command::UpdateNamespace {
            name: name.into(),
            step,
            step_min: None,
            step_max: None,
            max: None,
        };
        assert!(matches!(
            run(&mut table, 1, update("film", None)),
            Outcome::Namespace(Err(NamespaceRefused::NotFound(_)))
        ));
        assert!(matches!(
            run(&mut table, 1, update("book", Some(0))),
            Outcome::Namespace(Err(NamespaceRefused::Invalid(_)))
        ));
        assert_eq!(table.namespace_named("book").unwrap().config.step, 10_000);
    }

    #[test]
    fn the_limit_on_namespaces_is_the_entrys_own() {
        let mut table = Memory::default();
        let create = |name: &str, namespaces_max| Command::CreateNamespace {
            config: NamespaceConfig::new(name),
            namespaces_max,
        };
        let is_created = |outcome| matches!(outcome, Outcome::Namespace(Ok(_)));
        assert!(is_created(run(&mut table, 1, create("a", 2))));
        assert!(is_created(run(&mut table, 1, create("b", 2))));
        let refused = Outcome::Namespace(Err(NamespaceRefused::TooMany(2)));
        assert_eq!(run(&mut table, 1, create("c", 2)), refused);
        let exists = Outcome::Namespace(Err(NamespaceRefused::Exists("a".into())));
        assert_eq!(run(&mut table, 1, create("a", 2)), exists);
        assert!(is_created(run(&mut table, 1, create("c", 3))));
    }

    #[test]
    fn a_trim_of_a_deposed_term_changes_nothing() {
        let mut table = Memory::default();
        run(
            &mut table,
            1,
            Command::create_namespace(NamespaceConfig::new("book")),
        );
        run(&mut table, 1, Command::Bump(vec![bump(7, 10)]));
        run(&mut table, 2, Command::Bump(vec![bump(7, 10)]));
        let trim = Command::Trim(vec![Trim {
            section: section(7),
            used: 3,
        }]);
        assert_eq!(run(&mut table, 1, trim.clone()), Outcome::Trimmed(0));
        assert_eq!(run(&mut table, 2, trim), Outcome::Trimmed(1));
        assert_eq!(table.sections[&section(7)].max_seq, 10);
    }
}

//! Commands, which travel through the Raft log, and their outcomes.
//!
//! These types are stored and sent as they are declared: the order of variants and fields is the format.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    access::{AccessChange, AccessRefused},
    accounts::Skipped,
    gapless_take::{MessagePart, NoRoom, PartTaken},
    identifiers::{ClusterId, NodeId, SectionId},
    ledger::{LedgerRefused, MemoryDigest, TermEnd},
    namespace::{InvalidNamespace, Namespace, NamespaceConfig},
    namespace_change::NamespaceChange,
    request_book::Remembering,
    section::{CeilingRaise, Chunk},
    totals::Tombstone,
    workers::{WorkerAnswer, WorkerAsk},
};

/// A log entry's payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Raise the ceilings of many sections. The answers are the proposer's chunks.
    Bump {
        /// The bumps.
        bumps: Vec<Bump>,
        /// Skipped numbers, for the accounts.
        skipped: Vec<Skipped>,
        /// When it was proposed, by the leader's clock: milliseconds since 1970.
        now_ms: u64,
    },
    /// Lower the ceilings of many sections to what their epoch used. Proposed at the end of an epoch that
    /// has no successor.
    Trim {
        /// The sections, with their uses.
        sections: Vec<SectionUse>,
        /// As in a bump.
        now_ms: u64,
    },
    /// Create a namespace, unless there are too many. The entry carries the limit, so that replicas of
    /// releases with other limits come to the same outcome.
    CreateNamespace {
        /// The namespace's configuration.
        config: NamespaceConfig,
        /// How many namespaces there may be, this one included.
        namespaces_max: u64,
    },
    /// Change a namespace.
    UpdateNamespace {
        /// The namespace's name.
        name: String,
        /// The change.
        change: NamespaceChange,
    },
    /// Give the entry's term a chunk of every live section. The first entry of a term that takes nothing over.
    BeginEpoch,
    /// Write down what the last epoch gave of many sections, so that they are live for the next ones. Costs no number.
    Checkpoint {
        /// The sections.
        sections: Vec<SectionId>,
        /// As in a bump.
        now_ms: u64,
    },
    /// The term's last entry: its memory is handed off to a successor, or its epoch is returned.
    EndTerm(TermEnd),
    /// Go on with the chunks that the last term handed off to this node. The first entry of a term whose leader holds
    /// the last one's memory.
    TakeOver {
        /// The node that leads the entry's term.
        successor: NodeId,
        /// The memory that it holds.
        digest: MemoryDigest,
    },
    /// Lower the ceilings of many sections to what the term used, because its leader evicts them from its memory while
    /// it goes on leading.
    Release {
        /// The sections, with their uses.
        sections: Vec<SectionUse>,
        /// As in a bump.
        now_ms: u64,
    },
    /// Take numbers of gapless keys. They are the callers' once the entry is applied.
    Take {
        /// How request ids are remembered.
        remembering: Remembering,
        /// Which numbers, in the order in which they are taken.
        parts: Vec<MessagePart>,
        /// Why keys without a record take nothing, if they do not. The proposer decides it, so that every replica comes to
        /// the same.
        no_room: Option<NoRoom>,
        /// The most numbers of a key that a call may take, by the proposer's settings. The namespace may allow fewer.
        count_max: u64,
        /// As in a bump.
        now_ms: u64,
    },
    /// Create the namespaces of a fresh cluster, unless it was founded before.
    FoundNamespaces(Vec<NamespaceConfig>),
    /// Delete a namespace, and leave a tombstone unless it is to be forgotten.
    DeleteNamespace {
        /// The namespace's name.
        name: String,
        /// Whether a namespace that is created under the name again may hand out the same numbers.
        forget: bool,
    },
    /// Lease, renew and release worker ids.
    Workers {
        /// The requests, in the order in which they are carried out.
        asks: Vec<WorkerAsk>,
        /// As in a bump.
        now_ms: u64,
    },
    /// Give the cluster its id, unless it has one.
    NameCluster(ClusterId),
    /// Change the principals.
    ChangeAccess(AccessChange),
}

/// How many namespaces a cluster may have. The limit exists because every node holds all of them in memory.
const NAMESPACES_MAX: u64 = 10_000;

impl Command {
    /// The command that creates a namespace under this release's limit on their number.
    pub fn create_namespace(config: NamespaceConfig) -> Self {
        Command::CreateNamespace { config, namespaces_max: NAMESPACES_MAX }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Command::*;
        match self {
            Bump { bumps, .. } => write!(f, "bump {} sections", bumps.len()),
            Trim { sections, .. } => write!(f, "trim {} sections", sections.len()),
            CreateNamespace { config, .. } => {
                write!(f, "create namespace {:?}", config.name)
            }
            UpdateNamespace { name, .. } => write!(f, "update namespace {name:?}"),
            FoundNamespaces(namespaces) => {
                write!(f, "found {} namespaces", namespaces.len())
            }
            DeleteNamespace { name, .. } => write!(f, "delete namespace {name:?}"),
            BeginEpoch => write!(f, "begin an epoch"),
            Checkpoint { sections, .. } => write!(f, "checkpoint {} sections", sections.len()),
            EndTerm(TermEnd::HandOff { successor, .. }) => {
                write!(f, "hand off to node {successor}")
            }
            EndTerm(TermEnd::Return) => write!(f, "return the epoch"),
            TakeOver { successor, .. } => write!(f, "take over by node {successor}"),
            Release { sections, .. } => write!(f, "release {} sections", sections.len()),
            Take { parts, .. } => {
                let takes: usize = parts.iter().map(|part| part.takes.len()).sum();
                write!(f, "take numbers of {takes} gapless keys")
            }
            Workers { asks, .. } => {
                write!(f, "lease, renew or release {} worker ids", asks.len())
            }
            NameCluster(id) => write!(f, "give the cluster the id {id}"),
            ChangeAccess(_) => write!(f, "change the principals"),
        }
    }
}

/// Raise one section's ceiling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bump {
    /// The section.
    pub section: SectionId,
    /// By how much.
    pub raise: CeilingRaise,
}

/// The use that an epoch made of one section. A trim, or a release, lowers the section's ceiling to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionUse {
    /// The section.
    pub section: SectionId,
    /// The greatest number that the epoch took in it, answered or not; its floor, if that is higher.
    pub used: u64,
    /// How many numbers the other keys of the section skip by rising to that one.
    pub skipped: u64,
}

/// The outcome of a log entry: what its command did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryOutcome {
    /// The entry has no other outcome: it is blank, changes the members, or founds the cluster.
    None,
    /// An answer for each bump, in order.
    Bumped(Vec<Bumped>),
    /// The namespace as it now is.
    Namespace(Result<Namespace, NamespaceRefused>),
    /// The number of the epoch whose chunks the term holds, or the rest of them.
    InEpoch(u64),
    /// How many sections were written. Those that are lowered count also if they have no namespace any more.
    Written(u64),
    /// The term's last entry is applied.
    TermEnded,
    /// The entry's term may not do that. Nothing has changed.
    Refused(LedgerRefused),
    /// An answer for each part of a message, in order.
    Took(Vec<PartTaken>),
    /// The namespace is deleted. The tombstone that it left, if any.
    NamespaceDeleted(Result<Option<Tombstone>, NamespaceRefused>),
    /// An answer for each ask, in order.
    Workers(Vec<WorkerAnswer>),
    /// Whether the principals are as the entry says.
    Access(Result<(), AccessRefused>),
}

/// The answer to one bump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bumped {
    /// The proposer's chunk.
    Chunk(Chunk),
    /// No number is left.
    Exhausted {
        /// The namespace's `max` when the bump was applied.
        max: u64,
    },
    /// There is no namespace with that id: it was deleted, or replaced.
    NoNamespace,
    /// The section is new, and the namespace has as many keys as it may have.
    OverKeysMax {
        /// The namespace's `keys_max` when the bump was applied.
        keys_max: u64,
    },
}

/// Why a namespace was not created or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NamespaceRefused {
    /// The name is taken.
    #[error("namespace {0:?} exists already")]
    Exists(String),
    /// There is no namespace with that name.
    #[error("namespace {0:?} does not exist; create it with: ratchet namespace create {0}")]
    NotFound(String),
    /// The configuration is refused.
    #[error("{0}")]
    Invalid(String),
    /// There are as many namespaces as there may be.
    #[error(
        "there are {0} namespaces already, as many as there may be; delete one that is not needed, or give \
         keys a prefix inside a namespace instead of one each"
    )]
    TooMany(u64),
    /// Keys have numbers, and the change could disorder them.
    #[error(
        "namespace {name:?} has handed out numbers or worker ids, so these cannot change any more: {reasons}; create another \
         namespace instead"
    )]
    Fixed {
        /// The namespace's name.
        name: String,
        /// The fields, each with its reason.
        reasons: String,
    },
    /// A namespace of that name may have handed out all numbers up to `max`.
    #[error(
        "a namespace {name:?} was deleted and may have handed out numbers up to {floor}; one that is created under \
         that name begins above it, but its max is {max}: give a greater max, or forget those numbers with: ratchet \
         namespace delete {name} --confirm {name} --forget"
    )]
    BelowFloor {
        /// The namespace's name.
        name: String,
        /// The tombstone's floor.
        floor: u64,
        /// The `max` that was asked for.
        max: u64,
    },
    /// The namespace was deleted before, and its tombstone stays.
    #[error(
        "namespace {name:?} does not exist; one of that name was deleted and may have handed out {tombstone}: to forget \
         them, add --forget"
    )]
    DeletedBefore {
        /// The namespace's name.
        name: String,
        /// Its tombstone.
        tombstone: Tombstone,
    },
    /// 2^32 namespaces were created.
    #[error("the ids of namespaces are used up: 2^32 were created; give keys a prefix instead")]
    IdsUsedUp,
}

impl From<InvalidNamespace> for NamespaceRefused {
    fn from(invalid: InvalidNamespace) -> Self {
        NamespaceRefused::Invalid(invalid.to_string())
    }
}

//! Commands, which travel through the Raft log, and their outcomes.
//!
//! These types are stored and sent as they are declared: the order of variants and fields is the format.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    ids::SectionId,
    namespace::{InvalidNamespace, Namespace, NamespaceConfig},
    section::Chunk,
};

/// A log entry's payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Raise the ceilings of many sections. The answers are the proposer's chunks.
    Bump(Vec<Bump>),
    /// Lower the ceilings of many sections to what their term used. Proposed at the end of a term.
    Trim(Vec<Trim>),
    /// Create a namespace, unless there are too many. The entry carries the limit, so that replicas of
    /// releases with other limits come to the same outcome.
    CreateNamespace {
        /// The namespace's configuration.
        config: NamespaceConfig,
        /// How many namespaces there may be, this one included.
        namespaces_max: u64,
    },
    /// Change a namespace. `None` leaves a field as it is.
    UpdateNamespace {
        /// The namespace's name.
        name: String,
        /// The new step.
        step: Option<u64>,
        /// The new smallest step; 0 for none.
        step_min: Option<u64>,
        /// The new greatest step; 0 for none.
        step_max: Option<u64>,
        /// The new maximum.
        max: Option<u64>,
    },
}

/// How many namespaces a cluster may have. The limit exists because every node holds all of them in memory.
const NAMESPACES_MAX: u64 = 10_000;

impl Command {
    /// The command that creates a namespace under this release's limit on their number.
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
    /// The section.
    pub section: SectionId,
    /// By how many numbers. At least 1.
    pub numbers: u64,
    /// How many numbers of the section are unused at most once the bump is in force: one step, and what
    /// calls that wait have asked for beyond it.
    pub unused_max: u64,
}

/// Lower one section's ceiling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trim {
    /// The section.
    pub section: SectionId,
    /// The greatest number that the term handed out in it.
    pub used: u64,
}

/// The outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The entry was blank or a change of members.
    None,
    /// An answer for each bump, in order.
    Bumped(Vec<Bumped>),
    /// How many sections were trimmed.
    Trimmed(u64),
    /// The namespace as it now is.
    Namespace(Result<Namespace, NamespaceRefused>),
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
    /// There is no namespace with that id.
    NoNamespace,
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

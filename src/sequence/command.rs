//! What travels through the Raft log, and what it can come to.

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

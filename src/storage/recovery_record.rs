//! What a recovery did, and the record of one that was cut short.

use serde::{Deserialize, Serialize};

use super::{
    database::Database,
    error::StoreError,
    identity::Identity,
    layout::{Family, RECOVERY_KEY},
};
use crate::sequence::NodeId;

/// What a recovery did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Whose directory it is.
    pub node: NodeId,
    /// The cluster's name, which stays.
    pub cluster: String,
    /// The term of the last log entry of this survivor. Of several copies the one with the highest is to be
    /// recovered, and among equals the one with the longest log.
    pub last_log_term: u64,
    /// The index of that entry; what the others committed after it is lost.
    pub last_log_index: u64,
    /// How many entries at its end were not applied yet; perhaps they were never committed.
    pub unapplied_entries: u64,
    /// The members that are no members any more.
    pub left_behind: Vec<NodeId>,
    /// What became of each namespace.
    pub namespaces: Vec<RaisedNamespace>,
    /// Whether an earlier run, cut short, had done all of it but the end.
    pub completed_only: bool,
}

/// What became of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaisedNamespace {
    /// Its name.
    pub name: String,
    /// The margin, in steps.
    pub margin_steps: u64,
    /// By how much every ceiling was raised: the distance of as many numbers.
    pub raised_by: u64,
    /// How many sections have a ceiling.
    pub sections: u64,
    /// How many of them have no number left under `max` because of it.
    pub exhausted: u64,
    /// Where keys of sections begin that this copy never heard of.
    pub start: u64,
}

/// A recovery whose marker is not written yet.
#[derive(Serialize, Deserialize)]
pub struct Pending {
    /// The identity that the directory gets.
    pub identity: Identity,
    /// What was done.
    pub recovery: Recovery,
}

/// Refuses a directory whose recovery was cut short.
pub fn check_complete(db: &Database) -> Result<(), StoreError> {
    match db.get::<Pending>(Family::HardState, RECOVERY_KEY)? {
        None => Ok(()),
        Some(_) => Err(StoreError::Refused(format!(
            "the recovery of data directory {0} was cut short; complete it first: ratchet recover \
             --data-dir {0}",
            db.dir().display()
        ))),
    }
}

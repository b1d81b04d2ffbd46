//! The actions of a recovery, and the record of one that was cut short.
//!
//! Invariant: no node opens a directory that has such a record.

use serde::{Deserialize, Serialize};

use super::{
    database::Database,
    error::StoreError,
    identity::Identity,
    layout::{Family, RECOVERY_KEY},
};
use crate::sequence::NodeId;

/// The actions of a recovery, or those that a dry run would take. `ratchet recover --json` prints these names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// The node whose directory it is.
    pub node: NodeId,
    /// The cluster's name, which does not change.
    pub cluster: String,
    /// The term of this copy's last log entry. Of several copies, recover the one with the highest term;
    /// if terms are equal, the one with the longest log.
    pub last_log_term: u64,
    /// The index of that entry. Entries that the other nodes committed after it are lost.
    pub last_log_index: u64,
    /// How many entries at the log's end were not applied yet. They may never have been committed.
    pub unapplied_entries: u64,
    /// The former members, which are not members of the recovered cluster.
    pub left_behind: Vec<NodeId>,
    /// How each namespace was raised.
    pub namespaces: Vec<RaisedNamespace>,
    /// True if an earlier run was cut short after the switch, so that only its end was left to do.
    pub completed_only: bool,
}

/// How a namespace was raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaisedNamespace {
    /// Its name.
    pub name: String,
    /// The margin, in steps. 0 if its ids come from keys and hold a time, unless one was given, or it is not known how far
    /// the times got.
    pub margin_steps: u64,
    /// By how much every ceiling was raised at least.
    pub raised_by: u64,
    /// How many sections have a ceiling.
    pub sections: u64,
    /// How many of them have no number left under `max` because of that.
    pub exhausted: u64,
    /// The first number of keys in sections that this copy does not know.
    pub start: u64,
    /// Its ids have times from this one on, in milliseconds since 1970. Lost entries may have given ids with earlier
    /// ones. `None` if its ids have no format.
    pub ids_after_ms: Option<u64>,
    /// True if its ids come from keys and hold a time. Then every ceiling was raised to `start`.
    pub follows_the_time: bool,
}

/// A recovery that was written but for the marker.
#[derive(Serialize, Deserialize)]
pub struct Pending {
    /// The identity that the directory gets.
    pub identity: Identity,
    /// The actions of the recovery.
    pub recovery: Recovery,
}

/// Checks that no recovery of the directory was cut short.
///
/// # Errors
/// [`StoreError::WrongSetUp`] if one was.
pub fn check_complete(db: &Database) -> Result<(), StoreError> {
    match db.get::<Pending>(Family::HardState, RECOVERY_KEY)? {
        None => Ok(()),
        Some(_) => Err(StoreError::WrongSetUp(format!(
            "the recovery of data directory {0} was cut short; complete it first: ratchet recover \
             --data-dir {0}",
            db.dir().display()
        ))),
    }
}

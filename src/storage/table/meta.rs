//! How far a table is, as it is stored.

use serde::{Deserialize, Serialize};

use crate::{
    sequence::SetId,
    storage::{
        database::Database,
        error::StoreError,
        layout::{Family, meta_key},
        raft_types::{LogId, StoredMembership},
    },
};

/// How far the table is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AppliedMeta {
    pub(in crate::storage) generation: u32,
    /// The last entry that it holds.
    pub last_applied: Option<LogId>,
    /// The last membership among them.
    pub membership: StoredMembership,
}

impl AppliedMeta {
    /// That of the table of `set`, if there is one.
    pub(in crate::storage) fn read(db: &Database, set: SetId) -> Result<Option<Self>, StoreError> {
        db.get(Family::Applied, &meta_key(set))
    }
}

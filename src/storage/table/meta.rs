//! How far a table is.

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

/// How far a table is, as it is stored beside the table's records.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AppliedMeta {
    /// The generation in use.
    pub(in crate::storage) generation: u32,
    /// The last entry that the table holds.
    pub last_applied: Option<LogId>,
    /// The last membership that the table holds.
    pub membership: StoredMembership,
}

impl AppliedMeta {
    /// Reads that of the table of `set`; `None` if there is no table.
    pub(in crate::storage) fn read(db: &Database, set: SetId) -> Result<Option<Self>, StoreError> {
        db.get(Family::Applied, &meta_key(set))
    }
}

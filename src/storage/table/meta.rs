//! How far a table is: which generation of records it has, and up to which entry it was written.

use serde::{Deserialize, Serialize};

use super::generation::Generation;
use crate::{
    sequence::{Principals, SetId},
    storage::{
        database::Database,
        error::StoreError,
        layout::{Family, meta_key},
        raft_types::{LogId, StoredMembership},
        store::Store,
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

/// The principals and their grants, as the table of `set` has them. `None` if the table is of no cluster, or its founding has
/// not come to its end: the id of the cluster is written last.
///
/// # Errors
/// [`StoreError`] if the database fails or a record is damaged.
pub fn founded_principals(store: &Store, set: SetId) -> Result<Option<Principals>, StoreError> {
    let meta = AppliedMeta::read(&store.db, set)?.unwrap_or_default();
    let generation = Generation::new(&store.db, set, meta.generation);
    match generation.read_cluster_id()? {
        Some(_) => Ok(Some(generation.read_principals()?)),
        None => Ok(None),
    }
}

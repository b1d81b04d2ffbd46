//! The one write that makes a directory the recovered cluster's.
//!
//! Invariant: the new term and log id are above everything that the directory held.

use std::collections::{BTreeMap, BTreeSet};

use rocksdb::WriteBatch;

use super::survivor::Survivor;
use crate::{
    random,
    storage::{
        codec,
        error::StoreError,
        identity::Identity,
        layout::{Family, IDENTITY_KEY, RECOVERY_KEY, log_key, meta_key, purged_key, vote_key},
        raft_types::{LogId, Member, Membership, StoredMembership, Vote},
        recovery_record::{Pending, Recovery},
        table::AppliedMeta,
    },
};

/// Makes the raised table the one in use, this node the only member, and the log empty, in one synced,
/// atomic write.
///
/// # Errors
/// [`StoreError::Database`] if the write fails; it is not known then if it took effect.
pub fn switch(survivor: &Survivor<'_>, recovery: Recovery) -> Result<Pending, StoreError> {
    let (set, node) = (survivor.set, survivor.identity.node);
    let incarnation = random::u64().max(1);
    // The new term is above every term that was written here, so that no term has a second leader.
    let term = survivor.vote.map_or(0, |vote| vote.leader_id.term);
    let term = term.max(survivor.last.committed_leader_id().term) + 1;
    let vote = Vote::new(term, node);
    let log_id = LogId::new(term.into(), survivor.last.index + 1);
    let member = Member { incarnation, ..survivor.member()?.clone() };
    let membership =
        Membership::new(vec![BTreeSet::from([node])], BTreeMap::from([(node, member)])).map_err(
            |e| StoreError::invalid(format!("Raft refuses a membership of one node: {e}")),
        )?;
    let table = AppliedMeta {
        generation: survivor.next_generation().number,
        last_applied: Some(log_id),
        membership: StoredMembership::new(Some(log_id), membership),
    };
    assert!(
        Some(log_id) > survivor.table.last_applied && log_id > survivor.last,
        "{log_id} is not above what was written"
    );
    assert_ne!(incarnation, survivor.identity.incarnation, "others would take it for the old node");
    let pending =
        Pending { identity: Identity { incarnation, ..survivor.identity.clone() }, recovery };
    let (applied, log, hard_state) = (
        survivor.db.family(Family::Applied)?,
        survivor.db.family(Family::Log)?,
        survivor.db.family(Family::HardState)?,
    );
    let mut batch = WriteBatch::default();
    batch.put_cf(applied, meta_key(set), codec::encode_record(&table)?);
    let (from, to) = survivor.generation().range();
    batch.delete_range_cf(applied, from, to);
    batch.delete_range_cf(log, log_key(set, 0), log_key(set, u64::MAX));
    batch.put_cf(hard_state, purged_key(set), codec::encode_record(&log_id)?);
    batch.put_cf(hard_state, vote_key(set), codec::encode_record(&vote)?);
    batch.put_cf(hard_state, IDENTITY_KEY, codec::encode_record(&pending.identity)?);
    batch.put_cf(hard_state, RECOVERY_KEY, codec::encode_record(&pending)?);
    survivor.db.write(batch, true)?;
    Ok(pending)
}

//! Writes the raised table beside the one in use. Every ceiling is raised by its margin, and numbers of entries that were not
//! applied count as handed out. The table is in use only after the switch (`switch.rs`).

use std::{collections::BTreeMap, sync::Arc};

use openraft::{EntryPayload, entry::RaftEntry};
use rocksdb::WriteBatch;

use super::{margin::RaisePlan, survivor::Survivor};
use crate::{
    sequence::{Command, NamespaceId, NamespaceTotals, SectionRecord, SectionUse, Table, apply},
    storage::{
        codec,
        error::StoreError,
        layout::{Family, days_range_of, kind_range, section_of, totals_key},
        recovery_record::{RaisedNamespace, Recovery},
        table::{NamespaceMap, TableChange},
    },
};

/// Sections are written in batches of this many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Writes the raised table beside the one in use. A dry run writes nothing and only counts.
///
/// It has no worker ids: a lease that this copy knows may have been followed by one that is lost, so none may be renewed.
/// Holders lease again, and the floors of the namespaces keep them above all earlier leases.
///
/// # Errors
/// [`StoreError::Damaged`] if a record is damaged or a section has no namespace; other errors if the
/// database fails.
pub fn raise(
    survivor: &Survivor<'_>, plan: &RaisePlan, dry_run: bool,
) -> Result<Recovery, StoreError> {
    let to = survivor.next_generation().prefix();
    if !dry_run {
        begin_table(survivor, plan)?;
        copy_records(survivor, plan, &to)?;
    }
    let raised = raise_sections(survivor, plan, &to, dry_run)?;
    let unapplied_entries = apply_unapplied(survivor, plan, dry_run)?;
    let nodes = survivor.membership.nodes().map(|(id, _)| *id);
    Ok(Recovery {
        node: survivor.identity.node,
        cluster: survivor.identity.cluster.clone(),
        last_log_term: survivor.last.committed_leader_id().term,
        last_log_index: survivor.last.index,
        unapplied_entries,
        left_behind: nodes.filter(|id| *id != survivor.identity.node).collect(),
        namespaces: raised.into_values().collect(),
        completed_only: false,
    })
}

/// Begins the raised table with its namespaces, its tombstones, its principals, its ledger, and the nodes that are members no
/// more.
fn begin_table(survivor: &Survivor<'_>, plan: &RaisePlan) -> Result<(), StoreError> {
    // A run that was cut short may have left records, perhaps of another margin.
    survivor.next_generation().remove()?;
    let nothing = (Arc::default(), Arc::default());
    let mut change = TableChange::new(&survivor.next_generation(), nothing, None);
    for namespace in plan.namespaces.iter() {
        change.put_namespace(namespace.clone());
    }
    for (name, tombstone) in &plan.tombstones {
        change.put_tombstone(name, Some(*tombstone));
    }
    if let Some(next) = survivor.next_namespace_id {
        change.put_next_namespace_id(next);
    }
    if let Some(id) = survivor.cluster_id {
        change.put_cluster_id(id);
    }
    for (key, record) in survivor.principals.records() {
        change.put_principal(key.clone(), Some(record.clone()));
    }
    change.put_principals_version(survivor.principals.version());
    change.remove_members(survivor.other_members.iter().copied());
    change.put_ledger(survivor.ledger);
    change.write().map(drop)
}

/// Copies what is known of request ids, so that an id that the surviving copy had applied is answered as before, and the
/// accounts. An entry that was not applied may have deleted a namespace: its accounts are left behind.
fn copy_records(survivor: &Survivor<'_>, plan: &RaisePlan, to: &[u8]) -> Result<(), StoreError> {
    let from = survivor.generation().prefix();
    copy_range(survivor, to, kind_range(&from, b'q'))?;
    for namespace in plan.namespaces.iter() {
        copy_range(survivor, to, days_range_of(&from, namespace.id))?;
    }
    Ok(())
}

/// Copies the records of the surviving copy with keys in a range.
fn copy_range(
    survivor: &Survivor<'_>, to: &[u8], (first, end): (Vec<u8>, Vec<u8>),
) -> Result<(), StoreError> {
    let db = survivor.db;
    let generation = survivor.generation();
    let from = generation.prefix();
    let applied = db.family(Family::Applied)?;
    let mut batch = WriteBatch::default();
    for record in generation.records(&first, end)? {
        let (key, value) = record?;
        batch.put_cf(applied, [to, &key[from.len()..]].concat(), value);
        if batch.size_in_bytes() >= BATCH_BYTES {
            db.write(std::mem::take(&mut batch), false)?;
        }
    }
    db.write(batch, false)
}

/// Copies every section with its ceiling raised. Returns how each namespace was raised, with counts.
fn raise_sections(
    survivor: &Survivor<'_>, plan: &RaisePlan, to: &[u8], dry_run: bool,
) -> Result<BTreeMap<NamespaceId, RaisedNamespace>, StoreError> {
    let db = survivor.db;
    let mut raised = plan.raised.clone();
    let generation = survivor.generation();
    let from = generation.prefix();
    let (sections, end) = kind_range(&from, b's');
    let applied = db.family(Family::Applied)?;
    let mut batch = WriteBatch::default();
    let mut totals: BTreeMap<NamespaceId, NamespaceTotals> = BTreeMap::new();
    for record in generation.records(&sections, end)? {
        let (key, value) = record?;
        let before: SectionRecord = db.decode(Family::Applied, &key, &value)?;
        let name = &key[from.len()..];
        let id = section_of(name).map(|section| section.namespace);
        let id = id.filter(|id| survivor.namespaces_before.by_id(*id).is_some());
        let Some(id) = id else {
            return Err(db.damaged(Family::Applied, &key, "its namespace does not exist"));
        };
        let namespace = plan.namespaces.by_id(id).zip(raised.get_mut(&id));
        let Some((namespace, counted)) = namespace else {
            // An entry that was not applied yet deletes the namespace.
            continue;
        };
        let progression = namespace.config.progression();
        let epoch = survivor.ledger.epoch;
        // Where ids hold a time, `start` lies above what a distance from the ceiling covers.
        let at_least = namespace.config.start - 1;
        let after = SectionRecord {
            written_ms: plan.now_ms,
            ..before.raised(progression, epoch, counted.raised_by, at_least)
        };
        counted.sections += 1;
        let totals = totals.entry(id).or_default();
        totals.note(&SectionRecord::default(), &after);
        let had_numbers = (survivor.known.namespaces.by_id(id))
            .is_some_and(|known| known.config.progression().first_above(before.max_seq).is_some());
        if had_numbers && progression.first_above(after.max_seq).is_none() {
            counted.exhausted += 1;
        }
        if !dry_run {
            batch.put_cf(applied, [to, name].concat(), codec::encode_record(&after)?);
        }
        if batch.size_in_bytes() >= BATCH_BYTES {
            db.write(std::mem::take(&mut batch), false)?;
        }
    }
    if !dry_run {
        for (id, totals) in totals {
            batch.put_cf(applied, totals_key(to, id), codec::encode_record(&totals)?);
        }
    }
    db.write(batch, false)?;
    Ok(raised)
}

/// Applies the entries to the raised table that were not applied yet and gave somebody numbers. Returns how many
/// entries were not applied.
///
/// The entries may have been committed. Numbers of a bump or an epoch may have been handed out, so these count.
/// Numbers that a trim returned may have been handed out again by the lost nodes, so trims lower nothing. For the same
/// reason nobody takes over from the last term. The limits of the plan's namespaces are those after the last entry. An entry
/// before it was applied under others, so none of them is kept to.
fn apply_unapplied(
    survivor: &Survivor<'_>, plan: &RaisePlan, dry_run: bool,
) -> Result<u64, StoreError> {
    use Command::*;
    let mut unapplied_entries = 0;
    let known = (Arc::new(without_limits(&plan.namespaces)), survivor.principals.clone());
    let mut change = TableChange::new(&survivor.next_generation(), known, None);
    survivor.each_unapplied(|entry| {
        unapplied_entries += 1;
        let term = entry.log_id().committed_leader_id().term;
        match entry.payload {
            EntryPayload::Normal(command) => match command {
                Bump { .. }
                | BeginEpoch
                | Checkpoint { .. }
                | EndTerm(_)
                | TakeOver { .. }
                | Take { .. } => {
                    if !dry_run {
                        apply(&mut change, term, &command)?;
                        change.write()?;
                    }
                    Ok(())
                }
                // The plan holds what they did already.
                CreateNamespace { .. }
                | UpdateNamespace { .. }
                | FoundNamespaces(_)
                | DeleteNamespace { .. }
                | NameCluster(_)
                | ChangeAccess(_)
                | Workers { .. } => Ok(()),
                Trim { sections, .. } | Release { sections, .. } => {
                    if !dry_run {
                        keep_ceilings(&mut change, &sections)?;
                    }
                    Ok(())
                }
            },
            EntryPayload::Blank | EntryPayload::Membership(_) => Ok(()),
        }
    })?;
    if !dry_run {
        let mut ledger = change.ledger()?;
        ledger.end = None;
        change.put_ledger(ledger);
        change.write()?;
    }
    Ok(unapplied_entries)
}

/// The namespaces with the greatest `max` that each of them ever had, and with as many keys as there are.
fn without_limits(namespaces: &NamespaceMap) -> NamespaceMap {
    let mut unlimited = NamespaceMap::default();
    for namespace in namespaces.iter() {
        let mut namespace = namespace.clone();
        namespace.config.max = namespace.max_ever;
        namespace.config.keys_max = None;
        unlimited.put(namespace);
    }
    unlimited
}

/// Does what trims and releases did but for lowering ceilings: the next epoch gives the numbers right above.
fn keep_ceilings(change: &mut TableChange, sections: &[SectionUse]) -> Result<(), StoreError> {
    let epoch = change.ledger()?.epoch;
    for SectionUse { section, used, .. } in sections {
        let Some(namespace) = change.namespace(section.namespace) else {
            continue;
        };
        let progression = namespace.config.progression();
        let before = change.section(section, epoch)?;
        let ceiling = before.ceiling_at(epoch, progression.increment);
        let used = before.floor_at(epoch, progression.increment).max(*used);
        if let Some(kept) = before.trim(progression, epoch, ceiling) {
            let kept = kept.unknown_above(progression, used);
            change.totals(section.namespace)?.note(&before, &kept);
            change.put_section(section, kept);
        }
    }
    change.write().map(drop)
}

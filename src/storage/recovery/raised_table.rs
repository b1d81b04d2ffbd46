//! Writes the raised table beside the one in use.

use std::{collections::BTreeMap, sync::Arc};

use openraft::{EntryPayload, entry::RaftEntry};
use rocksdb::{Direction, IteratorMode, ReadOptions, WriteBatch};

use super::{margin::RaisePlan, survivor::Survivor};
use crate::{
    sequence::{Command, NamespaceId, SectionRecord, apply},
    storage::{
        codec,
        error::StoreError,
        layout::{Family, generations_end, namespace_key, namespace_of_section, sections_range},
        recovery_record::{RaisedNamespace, Recovery},
        table::TableChange,
    },
};

/// How many bytes are written at once.
const BATCH_BYTES: usize = 1 << 20;

/// Writes the raised table beside the one in use; only counts, if `dry_run`.
pub fn raise(
    survivor: &Survivor<'_>,
    plan: &RaisePlan,
    dry_run: bool,
) -> Result<Recovery, StoreError> {
    let to = survivor.next_generation().prefix();
    let applied = survivor.db.family(Family::Applied)?;
    if !dry_run {
        // Left by a run that was cut short, perhaps with another margin.
        let mut batch = WriteBatch::default();
        batch.delete_range_cf(applied, &to, &generations_end(survivor.set));
        for namespace in plan.namespaces.iter() {
            let key = namespace_key(&to, namespace.id);
            batch.put_cf(applied, key, codec::encode_record(namespace)?);
        }
        survivor.db.write(batch, false)?;
    }
    let mut told = plan.told.clone();
    raise_sections(survivor, plan, &to, &mut told, dry_run)?;
    let mut unapplied_entries = 0;
    let namespaces = Arc::new(plan.namespaces.clone());
    let mut tail = TableChange::new(survivor.db.clone(), to, namespaces);
    survivor.each_unapplied(|entry| {
        unapplied_entries += 1;
        let term = entry.log_id().committed_leader_id().term;
        match entry.payload {
            // What was given back may have been handed out again by the others; what was
            // raised may have been handed out.
            EntryPayload::Normal(command @ Command::Bump(_)) if !dry_run => {
                apply(&mut tail, term, &command)?;
                tail.write()
            }
            _ => Ok(()),
        }
    })?;
    let nodes = survivor.membership.nodes().map(|(id, _)| *id);
    Ok(Recovery {
        node: survivor.identity.node,
        cluster: survivor.identity.cluster.clone(),
        last_log_term: survivor.last.committed_leader_id().term,
        last_log_index: survivor.last.index,
        unapplied_entries,
        left_behind: nodes.filter(|id| *id != survivor.identity.node).collect(),
        namespaces: told.into_values().collect(),
        completed_only: false,
    })
}

fn raise_sections(
    survivor: &Survivor<'_>,
    plan: &RaisePlan,
    to: &[u8],
    raised: &mut BTreeMap<NamespaceId, RaisedNamespace>,
    dry_run: bool,
) -> Result<(), StoreError> {
    let from = survivor.generation().prefix();
    let (sections, end) = sections_range(&from);
    let applied = survivor.db.family(Family::Applied)?;
    let mut options = ReadOptions::default();
    options.set_iterate_upper_bound(end);
    options.fill_cache(false);
    let mode = IteratorMode::From(&sections, Direction::Forward);
    let mut batch = WriteBatch::default();
    for record in survivor.db.db.iterator_cf_opt(applied, options, mode) {
        let (key, value) = record.map_err(|error| survivor.db.failed(&error))?;
        let before: SectionRecord = survivor.db.decode(Family::Applied, &key, &value)?;
        let id = namespace_of_section(&key[from.len()..]);
        let namespace = id.and_then(|id| Some((plan.namespaces.by_id(id)?, raised.get_mut(&id)?)));
        let Some((namespace, told)) = namespace else {
            return Err(survivor
                .db
                .damaged(Family::Applied, &key, "it has no namespace"));
        };
        let after = before.raised(told.raised_by);
        let lattice = namespace.config.lattice();
        told.sections += 1;
        if lattice.next_above(before.max_seq).is_some()
            && lattice.next_above(after.max_seq).is_none()
        {
            told.exhausted += 1;
        }
        if !dry_run {
            batch.put_cf(
                applied,
                [to, &key[from.len()..]].concat(),
                codec::encode_record(&after)?,
            );
        }
        if batch.size_in_bytes() >= BATCH_BYTES {
            survivor.db.write(std::mem::take(&mut batch), false)?;
        }
    }
    survivor.db.write(batch, false)
}

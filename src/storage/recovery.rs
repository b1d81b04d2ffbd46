//! Makes a cluster of one out of the data directory of one surviving node, offline.
//!
//! What the others committed beyond this copy is lost, ceilings among it; so all ceilings are raised
//! by a margin, and so is the `start` of each namespace, for sections that this copy never heard of.
//! The log goes, the one voter is this node, and a new incarnation keeps the old nodes' messages out.
//!
//! Invariant: the directory is the old node's until one synced, atomic write makes it the new one's.
//! What comes after that write (the marker) is completed by another run, and nothing else opens the
//! directory before: the record [`RECORD`] stands until the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use openraft::{EntryPayload, entry::RaftEntry};
use rocksdb::{Direction, IteratorMode, ReadOptions, WriteBatch};
use serde::{Deserialize, Serialize};

use super::{
    applied::{self, AppliedMeta},
    codec,
    database::{Database, Family},
    error::StoreError,
    identity::{self, Identity},
    log::{self, LogReader},
    namespaces::Namespaces,
    raft_types::{Entry, LogId, Member, Membership, StoredMembership, Vote},
    store::{self, StoreOptions},
    table_change::TableChange,
};
use crate::{
    clock::BootClock,
    random,
    sequence::{Command, NamespaceConfig, NamespaceId, NodeId, SectionRecord, SetId, apply},
};

/// Where an unfinished recovery is written down.
const RECORD: &[u8] = b"recovery";
/// How many bytes are written at once.
const BATCH_BYTES: usize = 1 << 20;
/// How many bytes of log are read at once.
const LOG_BYTES: usize = 1 << 20;

/// By how much ceilings are raised, in steps: of each namespace the greatest that a section may have.
#[derive(Debug, Clone)]
pub struct Margin {
    /// In namespaces that are not named.
    pub steps: u64,
    /// In the namespaces of these names.
    pub of: BTreeMap<String, u64>,
}

/// What a recovery did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Whose directory it is.
    pub node: NodeId,
    /// The cluster's name, which stays.
    pub cluster: String,
    /// The term of the last log entry of this copy. Of several copies the one with the highest is to be
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

#[derive(Serialize, Deserialize)]
struct Pending {
    identity: Identity,
    recovery: Recovery,
}

/// Refuses a directory whose recovery was cut short.
pub fn check_complete(db: &Database) -> Result<(), StoreError> {
    match db.get::<Pending>(Family::HardState, RECORD)? {
        None => Ok(()),
        Some(_) => Err(StoreError::Refused(format!(
            "the recovery of data directory {0} was cut short; complete it first: ratchet recover \
             --data-dir {0}",
            db.dir().display()
        ))),
    }
}

/// Makes a cluster of one out of `dir`, or tells what that would do. Blocks.
///
/// # Errors
/// [`StoreError`]: the directory is in use, is none of a member, or cannot be read or trusted; or a
/// margin does not fit a namespace. Nothing has changed then, but where the disk failed at the very
/// end: another run completes it.
pub fn recover(
    dir: &Path,
    set: SetId,
    margin: &Margin,
    dry_run: bool,
) -> Result<Recovery, StoreError> {
    if !dir.exists() {
        return Err(StoreError::Refused(format!(
            "{} does not exist; name the data directory of the surviving node: --data-dir",
            dir.display()
        )));
    }
    store::check_contents(dir)?;
    let Some(marker) = identity::read_marker(dir)? else {
        return Err(StoreError::Refused(format!(
            "{} is not the data directory of a node: there is no file NODE in it",
            dir.display()
        )));
    };
    let lock = store::lock(dir)?;
    if !Database::path(dir).join("CURRENT").exists() {
        return Err(identity::lost(dir, "the database"));
    }
    let newest = identity::newest_release(Some(&marker));
    let options = StoreOptions::new(Arc::new(BootClock));
    let db = Arc::new(Database::open(dir, lock, newest, &options)?);
    if let Some(mut pending) = db.get::<Pending>(Family::HardState, RECORD)? {
        pending.recovery.completed_only = true;
        return match dry_run {
            true => Ok(pending.recovery),
            false => finish(&db, pending),
        };
    }
    let (cluster, node) = (marker.identity.cluster.clone(), marker.identity.node);
    let identity = identity::establish(&db, Some(marker), &cluster, node)?;
    let copy = Copy::read(&db, set, identity, margin)?;
    let recovery = copy.raise(dry_run)?;
    if dry_run {
        return Ok(recovery);
    }
    let pending = copy.switch(recovery)?;
    finish(&db, pending)
}

fn note_steps(steps: &mut BTreeMap<NamespaceId, u64>, namespaces: &Namespaces) {
    for namespace in namespaces.iter() {
        let greatest = steps.entry(namespace.id).or_default();
        *greatest = namespace.config.step_bounds().1.max(*greatest);
    }
}

/// What a recovery goes out from.
struct Copy<'a> {
    db: &'a Arc<Database>,
    set: SetId,
    identity: Identity,
    table: AppliedMeta,
    log: LogReader,
    vote: Option<Vote>,
    /// The last entry of log or table.
    last: LogId,
    /// The last membership that this copy knows of, committed or not.
    membership: Membership,
    /// As they will be.
    namespaces: Namespaces,
    /// The greatest step that a section of each may have had, by any version of its configuration that
    /// this copy knows of.
    steps: BTreeMap<NamespaceId, u64>,
    /// What is told of each, without counts.
    raised: BTreeMap<NamespaceId, RaisedNamespace>,
}

impl<'a> Copy<'a> {
    fn read(
        db: &'a Arc<Database>,
        set: SetId,
        identity: Identity,
        margin: &Margin,
    ) -> Result<Self, StoreError> {
        let table: AppliedMeta = db
            .get(Family::Applied, &applied::meta_key(set))?
            .unwrap_or_default();
        let log = LogReader::of(db, set);
        let last = log.last()?.max(table.last_applied);
        let last = last.ok_or_else(|| never_formed(db))?;
        let mut copy = Copy {
            vote: db.get(Family::HardState, &log::vote_key(set))?,
            membership: table.membership.membership().clone(),
            namespaces: applied::read_namespaces(db, &applied::prefix(set, table.generation))?,
            steps: BTreeMap::new(),
            raised: BTreeMap::new(),
            last,
            db,
            set,
            identity,
            table,
            log,
        };
        // What was not applied yet may have been committed: namespaces first, since their
        // configuration decides how far ceilings are raised.
        // Nothing of this is written: it is applied again to the raised table.
        let namespaces = Arc::new(std::mem::take(&mut copy.namespaces));
        let mut tail = TableChange::new(db.clone(), Vec::new(), namespaces);
        let mut membership = None;
        let mut steps = BTreeMap::new();
        note_steps(&mut steps, tail.namespaces());
        copy.each_unapplied(|entry| {
            let term = entry.log_id().committed_leader_id().term;
            match entry.payload {
                EntryPayload::Membership(now) => membership = Some(now),
                EntryPayload::Normal(
                    command @ (Command::CreateNamespace { .. } | Command::UpdateNamespace { .. }),
                ) => {
                    drop(apply(&mut tail, term, &command)?);
                    note_steps(&mut steps, tail.namespaces());
                }
                EntryPayload::Normal(_) | EntryPayload::Blank => {}
            }
            Ok(())
        })?;
        copy.namespaces = Namespaces::clone(tail.namespaces());
        copy.steps = steps;
        copy.membership = membership.unwrap_or(copy.membership);
        copy.member()?;
        copy.plan(margin)?;
        Ok(copy)
    }

    /// Where this node was.
    fn member(&self) -> Result<&Member, StoreError> {
        let member = self.membership.get_node(&self.identity.node);
        member.ok_or_else(|| never_formed(self.db))
    }

    /// Raises the start of each namespace, and decides by how much its ceilings are raised.
    fn plan(&mut self, margin: &Margin) -> Result<(), StoreError> {
        // A leader that misses one of them would create it, and begin at its first number.
        for config in NamespaceConfig::fresh_cluster() {
            if self.namespaces.by_name(&config.name).is_none() {
                return Err(StoreError::Refused(format!(
                    "the copy in {} ends before namespace {:?} was created, with which every cluster \
                     begins: nothing can be recovered from it; take another node's",
                    self.db.dir().display(),
                    config.name
                )));
            }
        }
        let names: BTreeSet<&str> = self
            .namespaces
            .iter()
            .map(|n| n.config.name.as_str())
            .collect();
        if let Some(unknown) = margin.of.keys().find(|name| !names.contains(name.as_str())) {
            return Err(StoreError::Refused(format!(
                "there is no namespace {unknown:?} in {}; it holds {}",
                self.db.dir().display(),
                Vec::from_iter(names).join(", ")
            )));
        }
        for mut namespace in Vec::from_iter(self.namespaces.iter().cloned()) {
            let config = &mut namespace.config;
            let margin_steps = margin.of.get(&config.name).copied();
            let margin_steps = margin_steps.unwrap_or(margin.steps);
            let step = self.steps.get(&namespace.id).copied();
            let step = step.unwrap_or_else(|| config.step_bounds().1);
            let step = step.saturating_mul(config.increment);
            let raised_by = margin_steps.checked_mul(step);
            let room = config.max.saturating_sub(config.start);
            let Some(raised_by) = raised_by.filter(|by| *by <= room) else {
                return Err(StoreError::Refused(format!(
                    "a margin of {margin_steps} steps of {step} ends above the greatest number of \
                     namespace {0:?}, {1}; state one for it, of at most {2}: --margin {0}={2}",
                    config.name,
                    config.max,
                    room / step
                )));
            };
            config.start += raised_by;
            let raised = RaisedNamespace {
                name: config.name.clone(),
                margin_steps,
                raised_by,
                sections: 0,
                exhausted: 0,
                start: config.start,
            };
            self.raised.insert(namespace.id, raised);
            self.namespaces.put(namespace);
        }
        Ok(())
    }

    /// Calls `each` for every entry after the last applied one.
    fn each_unapplied(
        &self,
        mut each: impl FnMut(Entry) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut next = self.table.last_applied.map_or(0, |last| last.index + 1);
        while next <= self.last.index {
            let entries = self.log.read(next, self.last.index + 1, LOG_BYTES)?;
            match entries.first() {
                Some(first) if first.log_id().index == next => {}
                _ => {
                    let key = log::log_key(self.set, next);
                    return Err(self.db.damaged(Family::Log, &key, "it is missing"));
                }
            }
            next += entries.len() as u64;
            entries.into_iter().try_for_each(&mut each)?;
        }
        Ok(())
    }

    fn next_generation(&self) -> u32 {
        self.table.generation + 1
    }

    /// Writes the raised table beside the one in use; only counts, if `dry_run`.
    fn raise(&self, dry_run: bool) -> Result<Recovery, StoreError> {
        let to = applied::prefix(self.set, self.next_generation());
        let applied = self.db.family(Family::Applied)?;
        if !dry_run {
            // Left by a run that was cut short, perhaps with another margin.
            let mut batch = WriteBatch::default();
            let end = [self.set.to_be_bytes().as_slice(), &[2]].concat();
            batch.delete_range_cf(applied, &to, &end);
            for namespace in self.namespaces.iter() {
                let key = applied::namespace_key(&to, namespace.id);
                batch.put_cf(applied, key, codec::seal(namespace)?);
            }
            self.db.write(batch, false)?;
        }
        let mut raised = self.raised.clone();
        self.raise_sections(&to, &mut raised, dry_run)?;
        let mut unapplied_entries = 0;
        let namespaces = Arc::new(self.namespaces.clone());
        let mut tail = TableChange::new(self.db.clone(), to, namespaces);
        self.each_unapplied(|entry| {
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
        let nodes = self.membership.nodes().map(|(id, _)| *id);
        Ok(Recovery {
            node: self.identity.node,
            cluster: self.identity.cluster.clone(),
            last_log_term: self.last.committed_leader_id().term,
            last_log_index: self.last.index,
            unapplied_entries,
            left_behind: nodes.filter(|id| *id != self.identity.node).collect(),
            namespaces: raised.into_values().collect(),
            completed_only: false,
        })
    }

    fn raise_sections(
        &self,
        to: &[u8],
        raised: &mut BTreeMap<NamespaceId, RaisedNamespace>,
        dry_run: bool,
    ) -> Result<(), StoreError> {
        let from = applied::prefix(self.set, self.table.generation);
        let sections = [from.as_slice(), b"s"].concat();
        let applied = self.db.family(Family::Applied)?;
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound([from.as_slice(), b"t"].concat());
        options.fill_cache(false);
        let mode = IteratorMode::From(&sections, Direction::Forward);
        let mut batch = WriteBatch::default();
        for record in self.db.db.iterator_cf_opt(applied, options, mode) {
            let (key, value) = record.map_err(|error| self.db.failed(&error))?;
            let before: SectionRecord = self.db.unseal(Family::Applied, &key, &value)?;
            let id = applied::namespace_of_section(&key[from.len()..]);
            let namespace =
                id.and_then(|id| Some((self.namespaces.by_id(id)?, raised.get_mut(&id)?)));
            let Some((namespace, told)) = namespace else {
                return Err(self
                    .db
                    .damaged(Family::Applied, &key, "it has no namespace"));
            };
            let after = before.raised(told.raised_by);
            let progression = namespace.config.progression();
            told.sections += 1;
            if progression.first_above(before.max_seq).is_some()
                && progression.first_above(after.max_seq).is_none()
            {
                told.exhausted += 1;
            }
            if !dry_run {
                batch.put_cf(
                    applied,
                    [to, &key[from.len()..]].concat(),
                    codec::seal(&after)?,
                );
            }
            if batch.size_in_bytes() >= BATCH_BYTES {
                self.db.write(std::mem::take(&mut batch), false)?;
            }
        }
        self.db.write(batch, false)
    }

    /// The one write that makes the directory another node's.
    fn switch(&self, recovery: Recovery) -> Result<Pending, StoreError> {
        let (set, node) = (self.set, self.identity.node);
        let incarnation = random::number().max(1);
        // Above all that was ever written here, so that no term is led a second time.
        let term = self.vote.map_or(0, |vote| vote.leader_id.term);
        let term = term.max(self.last.committed_leader_id().term) + 1;
        let vote = Vote::new(term, node);
        let log_id = LogId::new(term.into(), self.last.index + 1);
        let member = Member {
            incarnation,
            ..self.member()?.clone()
        };
        let membership = Membership::new(
            vec![BTreeSet::from([node])],
            BTreeMap::from([(node, member)]),
        )
        .map_err(|e| StoreError::invalid(format!("a cluster of one is refused: {e}")))?;
        let table = AppliedMeta {
            generation: self.next_generation(),
            last_applied: Some(log_id),
            membership: StoredMembership::new(Some(log_id), membership),
        };
        let pending = Pending {
            identity: Identity {
                incarnation,
                ..self.identity.clone()
            },
            recovery,
        };
        let (applied, log, hard_state) = (
            self.db.family(Family::Applied)?,
            self.db.family(Family::Log)?,
            self.db.family(Family::HardState)?,
        );
        let mut batch = WriteBatch::default();
        batch.put_cf(applied, applied::meta_key(set), codec::seal(&table)?);
        let old = applied::prefix(set, self.table.generation);
        batch.delete_range_cf(applied, old, applied::prefix(set, table.generation));
        batch.delete_range_cf(log, log::log_key(set, 0), log::log_key(set, u64::MAX));
        batch.put_cf(hard_state, log::purged_key(set), codec::seal(&log_id)?);
        batch.put_cf(hard_state, log::vote_key(set), codec::seal(&vote)?);
        batch.put_cf(
            hard_state,
            identity::RECORD,
            codec::seal(&pending.identity)?,
        );
        batch.put_cf(hard_state, RECORD, codec::seal(&pending)?);
        self.db.write(batch, true)?;
        Ok(pending)
    }
}

fn never_formed(db: &Database) -> StoreError {
    StoreError::Refused(format!(
        "data directory {} holds no member of a cluster: there is nothing to recover",
        db.dir().display()
    ))
}

/// What is left after the switch; may be done again.
fn finish(db: &Database, pending: Pending) -> Result<Recovery, StoreError> {
    identity::write_marker(db, &pending.identity)?;
    let mut batch = WriteBatch::default();
    batch.delete_cf(db.family(Family::HardState)?, RECORD);
    db.write(batch, true)?;
    Ok(pending.recovery)
}

#[cfg(test)]
mod tests;

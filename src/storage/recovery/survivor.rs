//! The surviving copy that a recovery starts from, as it was read: the log, the table and the vote of one node. Entries that
//! were not applied may have been committed, so they count.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use openraft::{EntryPayload, entry::RaftEntry};

use super::{
    lost_times::{LostTimes, timed_format_of},
    margin::Known,
};
use crate::{
    sequence::{
        ClusterId, Command, Ledger, NamespaceId, NamespaceTotals, NodeId, Principals,
        SectionRecord, SetId, Table, apply,
    },
    storage::{
        database::Database,
        error::StoreError,
        identity::Identity,
        layout::{Family, log_key, namespace_sections_range, vote_key},
        log::LogReader,
        raft_types::{Entry, LogId, Member, Membership, Vote},
        table::{AppliedMeta, Generation, NamespaceMap, TableChange},
    },
};

/// The log is read in pieces of this many bytes.
const READ_BYTES: usize = 1 << 20;

/// The surviving copy: what one node's data directory holds of the cluster's data.
pub struct Survivor<'a> {
    pub db: &'a Arc<Database>,
    pub set: SetId,
    pub identity: Identity,
    /// How far the table is.
    pub table: AppliedMeta,
    log: LogReader,
    pub vote: Option<Vote>,
    /// The last entry of log and table.
    pub last: LogId,
    /// The last membership in the log or the table, committed or not.
    pub membership: Membership,
    /// The ledger of the table.
    pub ledger: Ledger,
    /// The namespaces that it knows, with the changes that were not applied yet.
    pub known: Known,
    /// The namespaces as the table has them.
    pub namespaces_before: NamespaceMap,
    /// The id of the next namespace. `None` if the cluster was not founded yet.
    pub next_namespace_id: Option<NamespaceId>,
    /// The id of the cluster, which the recovered one keeps. `None` if it had none yet.
    pub cluster_id: Option<ClusterId>,
    /// The principals and their grants.
    pub principals: Arc<Principals>,
    /// All nodes but this one that are members, or were.
    pub other_members: BTreeSet<NodeId>,
}

impl<'a> Survivor<'a> {
    /// Reads the copy in `db`. `now_ms` is the time of day.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if the directory is not a member's; other errors if a record is damaged
    /// or the database fails.
    pub fn read(
        db: &'a Arc<Database>, set: SetId, identity: Identity, now_ms: u64,
    ) -> Result<Self, StoreError> {
        let table = AppliedMeta::read(db, set)?.unwrap_or_default();
        let log = LogReader::of(db, set);
        // By their indexes: a power cut that loses a purge leaves a log that may end before the table, in a later term.
        let last = [log.last()?, table.last_applied].into_iter().flatten();
        let last = last.max_by_key(|last| last.index).ok_or_else(|| never_formed(db))?;
        let generation = Generation::new(db, set, table.generation);
        let mut survivor = Survivor {
            vote: db.get(Family::HardState, &vote_key(set))?,
            membership: table.membership.membership().clone(),
            ledger: generation.read_ledger()?,
            known: Known::default(),
            namespaces_before: generation.read_namespaces()?,
            next_namespace_id: None,
            cluster_id: None,
            principals: Arc::new(generation.read_principals()?),
            other_members: generation.read_former_members()?,
            last,
            db,
            set,
            identity,
            table,
            log,
        };
        survivor.known.lost_times = survivor.lost_times(now_ms)?;
        survivor.take_unapplied(now_ms)?;
        survivor.member()?;
        Ok(survivor)
    }

    /// Takes membership, namespaces, tombstones and principals from the entries that were not applied yet, because they may
    /// have been committed. Nothing is written.
    fn take_unapplied(&mut self, now_ms: u64) -> Result<(), StoreError> {
        let namespaces = Arc::new(self.namespaces_before.clone());
        let known = (namespaces, self.principals.clone());
        let mut tail = TableChange::new(&self.generation(), known, None);
        let mut membership = None;
        let mut members = std::mem::take(&mut self.other_members);
        members.extend(ids_of(&self.membership));
        let mut steps = BTreeMap::new();
        let mut lost_times = std::mem::take(&mut self.known.lost_times);
        note_greatest_steps(&mut steps, tail.namespaces());
        self.each_unapplied(|entry| {
            let term = entry.log_id().committed_leader_id().term;
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Membership(later) => {
                    members.extend(ids_of(&later));
                    membership = Some(later);
                }
                EntryPayload::Normal(command) => {
                    // A refused command changes nothing. Sections count, too: a namespace that has some may refuse a
                    // change. Their records are raised later, in the new table.
                    drop(apply(&mut tail, term, &command)?);
                    note_greatest_steps(&mut steps, tail.namespaces());
                    note_bumps(&mut lost_times, &tail, &command, now_ms)?;
                }
            }
            Ok(())
        })?;
        self.next_namespace_id = tail.next_namespace_id()?;
        self.cluster_id = tail.cluster_id()?;
        self.principals = tail.all_principals().clone();
        self.known = Known {
            tombstones: tail.tombstones()?,
            totals: totals(&mut tail)?,
            namespaces: NamespaceMap::clone(tail.namespaces()),
            greatest_steps: steps,
            lost_times,
        };
        members.remove(&self.identity.node);
        self.other_members = members;
        if let Some(membership) = membership {
            self.membership = membership;
        }
        Ok(())
    }

    /// How far the times of ids of keys may have got after the last applied entry, by the table.
    fn lost_times(&self, now_ms: u64) -> Result<BTreeMap<NamespaceId, LostTimes>, StoreError> {
        let generation = self.generation();
        let mut lost_times = BTreeMap::new();
        for namespace in self.namespaces_before.iter() {
            let Some(format) = timed_format_of(&namespace.config)? else {
                continue;
            };
            let mut lost = LostTimes::default();
            let (from, to) = namespace_sections_range(&generation.prefix(), namespace.id);
            for record in generation.records(&from, to)? {
                let (key, value) = record?;
                let record: SectionRecord = self.db.decode(Family::Applied, &key, &value)?;
                lost.note(&format, &record, now_ms);
            }
            lost_times.insert(namespace.id, lost);
        }
        Ok(lost_times)
    }

    /// This node as a member of the last membership.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if it is none.
    pub fn member(&self) -> Result<&Member, StoreError> {
        let member = self.membership.get_node(&self.identity.node);
        member.ok_or_else(|| never_formed(self.db))
    }

    /// Refuses a copy that ends before the cluster was founded: the next leader would found it again, and the first
    /// namespaces would begin at their first numbers.
    ///
    /// # Errors
    /// [`StoreError::Refused`].
    pub fn check_founded(&self) -> Result<(), StoreError> {
        match self.next_namespace_id {
            Some(_) => Ok(()),
            None => Err(StoreError::Refused(format!(
                "the copy in {} ends before the cluster was founded: nothing can be recovered from it; recover another \
                 node's directory",
                self.db.dir().display()
            ))),
        }
    }

    /// Calls `each` for every entry after the last applied one.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if an entry is damaged or missing; the error of `each`; other errors if
    /// the database fails.
    pub fn each_unapplied(
        &self, mut each: impl FnMut(Entry) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut next = self.table.last_applied.map_or(0, |last| last.index + 1);
        while next <= self.last.index {
            let entries = self.log.read(next, self.last.index + 1, READ_BYTES)?;
            match entries.first() {
                Some(first) if first.log_id().index == next => {}
                Some(_) | None => {
                    let key = log_key(self.set, next);
                    return Err(self.db.damaged(Family::Log, &key, "it is missing"));
                }
            }
            next += entries.len() as u64;
            entries.into_iter().try_for_each(&mut each)?;
        }
        Ok(())
    }

    /// The records of the table in use.
    pub fn generation(&self) -> Generation {
        Generation::new(self.db, self.set, self.table.generation)
    }

    /// The records of the raised table.
    pub fn next_generation(&self) -> Generation {
        Generation::new(self.db, self.set, self.table.generation + 1)
    }
}

/// The nodes of a membership.
fn ids_of(membership: &Membership) -> impl Iterator<Item = NodeId> {
    membership.nodes().map(|(id, _)| *id)
}

/// The totals of all sections and leases of each namespace.
fn totals(table: &mut TableChange) -> Result<BTreeMap<NamespaceId, NamespaceTotals>, StoreError> {
    let ids: Vec<NamespaceId> = table.namespaces().iter().map(|one| one.id).collect();
    let totals = ids.into_iter().map(|id| Ok((id, *table.totals(id)?)));
    totals.collect()
}

/// Raises `steps` to the greatest step that each of the namespaces allows.
fn note_greatest_steps(steps: &mut BTreeMap<NamespaceId, u64>, namespaces: &NamespaceMap) {
    for namespace in namespaces.iter() {
        let greatest = steps.entry(namespace.id).or_default();
        *greatest = namespace.config.step_bounds().1.max(*greatest);
    }
}

/// Notes the records that the bumps of an applied entry wrote.
fn note_bumps(
    lost_times: &mut BTreeMap<NamespaceId, LostTimes>, table: &TableChange, command: &Command,
    now_ms: u64,
) -> Result<(), StoreError> {
    let Command::Bump { bumps, .. } = command else {
        return Ok(());
    };
    let epoch = table.ledger()?.epoch;
    for bump in bumps {
        let id = bump.section.namespace;
        let namespace = table.namespaces().by_id(id);
        let Some(namespace) = namespace else {
            continue;
        };
        if let Some(format) = timed_format_of(&namespace.config)? {
            let record = table.section(&bump.section, epoch)?;
            let lost = lost_times.entry(id).or_default();
            lost.note(&format, &record, now_ms);
        }
    }
    Ok(())
}

/// The error for the directory of a node that belonged to no cluster.
pub fn never_formed(db: &Database) -> StoreError {
    StoreError::Refused(format!(
        "data directory {} does not hold the data of a member of a cluster: there is nothing to recover",
        db.dir().display()
    ))
}

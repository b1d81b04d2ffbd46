//! The copy of the cluster's data that a recovery starts from, as it is read.

use std::{collections::BTreeMap, sync::Arc};

use openraft::{EntryPayload, entry::RaftEntry};

use crate::{
    sequence::{Command, NamespaceId, SetId, apply},
    storage::{
        database::Database,
        error::StoreError,
        identity::Identity,
        layout::{Family, log_key, vote_key},
        log::LogReader,
        raft_types::{Entry, LogId, Member, Membership, Vote},
        table::{AppliedMeta, Generation, Namespaces, TableChange},
    },
};

/// How many bytes of log are read at once.
const LOG_BYTES: usize = 1 << 20;

/// What a recovery goes out from.
pub struct Survivor<'a> {
    pub db: &'a Arc<Database>,
    pub set: SetId,
    pub identity: Identity,
    pub table: AppliedMeta,
    log: LogReader,
    pub vote: Option<Vote>,
    /// The last entry of log or table.
    pub last: LogId,
    /// The last membership that this copy knows of, committed or not.
    pub membership: Membership,
    pub namespaces: Namespaces,
    /// The greatest step that a section of each may have had, by any version of its configuration that
    /// this copy knows of.
    pub greatest_steps: BTreeMap<NamespaceId, u64>,
}

impl<'a> Survivor<'a> {
    pub fn read(db: &'a Arc<Database>, set: SetId, identity: Identity) -> Result<Self, StoreError> {
        let table = AppliedMeta::read(db, set)?.unwrap_or_default();
        let log = LogReader::of(db, set);
        let last = log.last()?.max(table.last_applied);
        let last = last.ok_or_else(|| never_formed(db))?;
        let mut survivor = Survivor {
            vote: db.get(Family::HardState, &vote_key(set))?,
            membership: table.membership.membership().clone(),
            namespaces: Generation::new(db, set, table.generation).read_namespaces()?,
            greatest_steps: BTreeMap::new(),
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
        let namespaces = Arc::new(std::mem::take(&mut survivor.namespaces));
        let mut tail = TableChange::new(db.clone(), Vec::new(), namespaces);
        let mut membership = None;
        let mut steps = BTreeMap::new();
        record_greatest_steps(&mut steps, tail.namespaces());
        survivor.each_unapplied(|entry| {
            let term = entry.log_id().committed_leader_id().term;
            match entry.payload {
                EntryPayload::Membership(now) => membership = Some(now),
                EntryPayload::Normal(
                    command @ (Command::CreateNamespace { .. } | Command::UpdateNamespace { .. }),
                ) => {
                    drop(apply(&mut tail, term, &command)?);
                    record_greatest_steps(&mut steps, tail.namespaces());
                }
                EntryPayload::Normal(_) | EntryPayload::Blank => {}
            }
            Ok(())
        })?;
        survivor.namespaces = Namespaces::clone(tail.namespaces());
        survivor.greatest_steps = steps;
        survivor.membership = membership.unwrap_or(survivor.membership);
        survivor.member()?;
        Ok(survivor)
    }

    /// Where this node was.
    pub fn member(&self) -> Result<&Member, StoreError> {
        let member = self.membership.get_node(&self.identity.node);
        member.ok_or_else(|| never_formed(self.db))
    }

    /// Calls `each` for every entry after the last applied one.
    pub fn each_unapplied(
        &self,
        mut each: impl FnMut(Entry) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut next = self.table.last_applied.map_or(0, |last| last.index + 1);
        while next <= self.last.index {
            let entries = self.log.read(next, self.last.index + 1, LOG_BYTES)?;
            match entries.first() {
                Some(first) if first.log_id().index == next => {}
                _ => {
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

    /// Where the raised table goes.
    pub fn next_generation(&self) -> Generation {
        Generation::new(self.db, self.set, self.table.generation + 1)
    }
}

fn record_greatest_steps(steps: &mut BTreeMap<NamespaceId, u64>, namespaces: &Namespaces) {
    for namespace in namespaces.iter() {
        let greatest = steps.entry(namespace.id).or_default();
        *greatest = namespace.config.step_bounds().1.max(*greatest);
    }
}

fn never_formed(db: &Database) -> StoreError {
    StoreError::Refused(format!(
        "data directory {} holds no member of a cluster: there is nothing to recover",
        db.dir().display()
    ))
}

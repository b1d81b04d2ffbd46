//! The applied table of one set, as the state machine writes it.
//!
//! A snapshot arrives as another generation of records, beside the one in use, and becomes the table in
//! one atomic write. Invariants: the records and the applied index change in one write; the applied
//! index never falls; a reader sees the table as it was after some entry, never a part of two.

use std::sync::Arc;

use rocksdb::WriteBatch;

use super::{
    blocking::BlockingExecutor,
    codec,
    database::Database,
    error::StoreError,
    layout::{Family, generation_prefix, generations_end, meta_key},
    raft_types::SnapshotMeta,
    reclaimer::Reclaimer,
    snapshot::{incoming::ArrivedSnapshot, outgoing::OutgoingSnapshot},
    store::Store,
    table::{AppliedMeta, AppliedView, Generation, TableChange},
};
use crate::{
    planted_bugs::{Bug, is_planted},
    sequence::{SetId, Table},
};

/// The applied table of one set. The state machine alone writes it.
pub struct AppliedTable {
    db: Arc<Database>,
    set: SetId,
    meta: AppliedMeta,
    view: AppliedView,
    blocking: BlockingExecutor,
    reclaimer: Reclaimer,
}

impl AppliedTable {
    /// Opens the table of `set`, and removes the records of snapshots that were not installed.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or a record is damaged.
    pub fn open(store: &Arc<Store>, set: SetId) -> Result<Self, StoreError> {
        let db = store.db.clone();
        let meta = AppliedMeta::read(&db, set)?.unwrap_or_default();
        let generation = Generation::new(&db, set, meta.generation);
        let mut batch = WriteBatch::default();
        let applied = db.family(Family::Applied)?;
        let (from, to) = generation.range();
        batch.delete_range_cf(applied, generation_prefix(set, 0), from);
        batch.delete_range_cf(applied, to, generations_end(set));
        db.write(batch, false)?;
        let reclaimer = Reclaimer::new(db.clone(), set, store.blocking());
        // A removal may have been under way when the node stopped.
        reclaimer.wake_if_needed()?;
        Ok(AppliedTable {
            reclaimer,
            view: AppliedView::open(&generation, store)?,
            blocking: store.blocking(),
            db,
            set,
            meta,
        })
    }

    fn generation(&self) -> Generation {
        Generation::new(&self.db, self.set, self.meta.generation)
    }

    /// A view of the table for readers.
    pub fn view(&self) -> AppliedView {
        self.view.clone()
    }

    /// How far the table is.
    pub fn meta(&self) -> &AppliedMeta {
        &self.meta
    }

    /// Begins a change of the table.
    pub fn change(&self) -> TableChange {
        let namespaces = Arc::clone(&self.view.namespaces());
        let principals = Arc::clone(&self.view.principals());
        // With this bug the records in memory are old: the state machine must not use them.
        let usable = !is_planted(Bug::EpochReadEarly);
        let recent = usable.then(|| self.view.recent_records().clone());
        TableChange::new(&self.generation(), (namespaces, principals), recent)
    }

    /// Writes a change and how far the table is with it, in one batch. The batch is not synced: after a
    /// power cut the entries are applied again from the log, which is.
    ///
    /// # Errors
    /// [`StoreError`] if a record is too large or the database fails.
    pub fn write(&mut self, mut change: TableChange, meta: AppliedMeta) -> Result<(), StoreError> {
        assert_eq!(
            meta.generation, self.meta.generation,
            "a change is of the table that it is written to"
        );
        assert!(
            meta.last_applied > self.meta.last_applied,
            "the applied index grows: {:?} after {:?}",
            meta.last_applied,
            self.meta.last_applied
        );
        change.put(&meta_key(self.set), &meta)?;
        let removes_sections = change.removes_sections();
        // Before sections are removed: a reader that finds none can tell that their namespace is gone.
        // The principals come first: a namespace that a grant is about must not be seen without the grant.
        self.view.show_removed_members(change.removed_members());
        self.view.show_principals(change.all_principals().clone());
        self.view.show_namespaces(change.namespaces().clone());
        let sections = change.write()?;
        if self.view.cluster_id().is_none() {
            self.view.show_cluster_id(change.cluster_id()?);
        }
        if removes_sections {
            self.reclaimer.wake();
        }
        let term_of = |meta: &AppliedMeta| {
            let last = meta.last_applied;
            last.map_or(0, |last| last.committed_leader_id().term)
        };
        let (before, term) = (term_of(&self.meta), term_of(&meta));
        if before == term || !is_planted(Bug::EpochReadEarly) {
            let namespaces = self.view.namespaces();
            for (id, record) in sections {
                let namespace = namespaces.by_id(id.namespace);
                let is_gapless = namespace.is_some_and(|namespace| namespace.config.gapless);
                let known_to = (!is_gapless).then_some(term);
                (self.view.recent_records()).written(id, record, known_to);
            }
        }
        self.meta = meta;
        Ok(())
    }

    /// Takes a snapshot of the table as it is now, to be sent to a peer.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the membership is too large.
    pub async fn snapshot(&self) -> Result<OutgoingSnapshot, StoreError> {
        let meta = SnapshotMeta {
            last_log_id: self.meta.last_applied,
            last_membership: self.meta.membership.clone(),
        };
        OutgoingSnapshot::take(self.generation(), meta, self.blocking).await
    }

    /// Replaces the table by a snapshot, durably. Blocks.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails, a record is damaged, or the snapshot is of another cluster. In the last case, and
    /// if a record is damaged, the table stays as it is.
    pub fn install(&mut self, snapshot: ArrivedSnapshot) -> Result<(), StoreError> {
        let (covers, records) = snapshot.into_parts();
        let generation = records.generation().clone();
        let namespaces = generation.read_namespaces()?;
        let principals = generation.read_principals()?;
        let cluster_id = generation.read_cluster_id()?;
        let former_members = generation.read_former_members()?;
        if let (Some(named), Some(known)) = (cluster_id, self.view.cluster_id())
            && named != known
        {
            return Err(StoreError::invalid(format!(
                "a snapshot of cluster {named} cannot replace the table of cluster {known}"
            )));
        }
        let meta = AppliedMeta {
            generation: generation.number,
            last_applied: covers.last_log_id,
            membership: covers.last_membership,
        };
        let mut batch = WriteBatch::default();
        let applied = self.db.family(Family::Applied)?;
        batch.put_cf(applied, meta_key(self.set), codec::encode_record(&meta)?);
        // Before the write: one that fails may be on the disk. The next start removes the records that are not the table.
        records.installed();
        self.db.write(batch, true)?;
        let old = self.generation();
        self.meta = meta;
        // Before the old records are removed, readers must be shown the new ones.
        self.view.show(&generation, namespaces, principals, former_members);
        self.view.show_cluster_id(cluster_id);
        old.remove()
    }
}

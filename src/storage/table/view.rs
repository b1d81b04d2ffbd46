//! The applied table of one set, for reading.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use arc_swap::ArcSwap;
use tokio::sync::Semaphore;

use super::{generation::Generation, namespaces::Namespaces};
use crate::{
    sequence::{SectionId, SectionRecord, SetId},
    storage::{
        blocking::BlockingExecutor,
        database::Database,
        error::StoreError,
        layout::{Family, generation_prefix, section_key},
    },
};

/// How many readers are at the disk at once: a slow one takes no more threads from the others' work.
const READERS_MAX: usize = 16;

/// The table, for reading, beside the state machine.
#[derive(Clone)]
pub struct AppliedView {
    db: Arc<Database>,
    set: SetId,
    generation: Arc<AtomicU32>,
    /// The greatest generation that a snapshot arrives as, or did.
    last_generation: Arc<AtomicU32>,
    namespaces: Arc<ArcSwap<Namespaces>>,
    blocking: BlockingExecutor,
    readers: Arc<Semaphore>,
}

impl AppliedView {
    /// A view of the table whose records are those of `generation`.
    pub(in crate::storage) fn open(
        generation: &Generation,
        blocking: BlockingExecutor,
    ) -> Result<Self, StoreError> {
        let number = generation.number();
        Ok(AppliedView {
            db: generation.db().clone(),
            set: generation.set(),
            generation: Arc::new(AtomicU32::new(number)),
            last_generation: Arc::new(AtomicU32::new(number)),
            namespaces: Arc::new(ArcSwap::from_pointee(generation.read_namespaces()?)),
            blocking,
            readers: Arc::new(Semaphore::new(READERS_MAX)),
        })
    }

    /// The database that holds the table.
    pub(in crate::storage) fn db(&self) -> &Arc<Database> {
        &self.db
    }

    /// A generation that has no records yet.
    pub(in crate::storage) fn fresh_generation(&self) -> Generation {
        let number = self.last_generation.fetch_add(1, Ordering::Relaxed) + 1;
        Generation::new(&self.db, self.set, number)
    }

    /// Shows the namespaces as they are now.
    pub(in crate::storage) fn show_namespaces(&self, namespaces: Arc<Namespaces>) {
        self.namespaces.store(namespaces);
    }

    /// Shows the table whose records are those of `generation`.
    pub(in crate::storage) fn show(&self, generation: &Generation, namespaces: Namespaces) {
        self.generation
            .store(generation.number(), Ordering::Release);
        self.show_namespaces(Arc::new(namespaces));
    }

    /// The namespaces.
    pub fn namespaces(&self) -> arc_swap::Guard<Arc<Namespaces>> {
        self.namespaces.load()
    }

    /// A section's record as [`AppliedView::section`] reads it, without blocking the caller's thread.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read_section(&self, id: SectionId) -> Result<SectionRecord, StoreError> {
        let failed = |why: String| StoreError::invalid(format!("the table was not read: {why}"));
        let reader = self.readers.clone().acquire_owned().await;
        let reader = reader.map_err(|error| failed(error.to_string()))?;
        let view = self.clone();
        let read = self.blocking.run(move || {
            // A caller that gives up leaves its thread at the disk: it counts until it is back.
            let _reader = reader;
            view.section(&id)
        });
        read.await.map_err(|error| failed(error.to_string()))?
    }

    /// A section's record; the default where there is none. Reads the disk where it must: blocks.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn section(&self, id: &SectionId) -> Result<SectionRecord, StoreError> {
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            let key = section_key(&generation_prefix(self.set, generation), id);
            let record = self.db.get(Family::Applied, &key)?;
            // A snapshot may have replaced the table meanwhile.
            if self.generation.load(Ordering::Acquire) == generation {
                return Ok(record.unwrap_or_default());
            }
        }
    }
}

//! The applied table of one set, for readers beside the state machine.
//!
//! Invariant: a read sees a section as it was after some entry, also while a snapshot replaces the table.

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

/// How many threads read sections at once. A slow disk cannot take more of the threads for blocking
/// work.
const READERS_MAX: usize = 16;

/// The applied table of one set, for readers. Clones read the same table.
#[derive(Clone)]
pub struct AppliedView {
    db: Arc<Database>,
    set: SetId,
    generation: Arc<AtomicU32>,
    /// The greatest generation that was given to the table or to a snapshot since the table was opened.
    last_generation: Arc<AtomicU32>,
    namespaces: Arc<ArcSwap<Namespaces>>,
    blocking: BlockingExecutor,
    readers: Arc<Semaphore>,
}

impl AppliedView {
    /// A view of the table with the records of `generation`.
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

    /// A new generation, which has no records yet.
    pub(in crate::storage) fn fresh_generation(&self) -> Generation {
        let number = self.last_generation.fetch_add(1, Ordering::Relaxed) + 1;
        Generation::new(&self.db, self.set, number)
    }

    /// Shows these namespaces to readers from now on.
    pub(in crate::storage) fn show_namespaces(&self, namespaces: Arc<Namespaces>) {
        self.namespaces.store(namespaces);
    }

    /// Shows the records of `generation` to readers from now on.
    pub(in crate::storage) fn show(&self, generation: &Generation, namespaces: Namespaces) {
        debug_assert_ne!(
            generation.number(),
            self.generation.load(Ordering::Relaxed),
            "a generation becomes the table once"
        );
        self.generation
            .store(generation.number(), Ordering::Release);
        self.show_namespaces(Arc::new(namespaces));
    }

    /// The namespaces as of the last applied batch of entries.
    pub fn namespaces(&self) -> arc_swap::Guard<Arc<Namespaces>> {
        self.namespaces.load()
    }

    /// Reads a section's record as [`AppliedView::section`] does, on a thread for blocking work.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub async fn read_section(&self, id: SectionId) -> Result<SectionRecord, StoreError> {
        let failed = |why: String| StoreError::invalid(format!("the table cannot be read: {why}"));
        let reader = self.readers.clone().acquire_owned().await;
        let reader = reader.map_err(|error| failed(error.to_string()))?;
        let view = self.clone();
        let read = self.blocking.run(move || {
            // If the caller gives up, the thread is still busy: the permit is held until it is done.
            let _reader = reader;
            view.section(&id)
        });
        read.await.map_err(|error| failed(error.to_string()))?
    }

    /// Reads a section's record; the default if there is none. May read the disk: blocks.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn section(&self, id: &SectionId) -> Result<SectionRecord, StoreError> {
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            let key = section_key(&generation_prefix(self.set, generation), id);
            let record = self.db.get(Family::Applied, &key)?;
            // If a snapshot replaced the table meanwhile, the record may have been removed: read again.
            if self.generation.load(Ordering::Acquire) == generation {
                return Ok(record.unwrap_or_default());
            }
        }
    }
}

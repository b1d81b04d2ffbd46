//! The ceilings of a namespace's sections, as they were at one moment.
//!
//! Invariant: a thread and its view of the table live for `TIME_MAX` at most, and for `READER_MAX` while nobody reads.
//! Ceilings that were read ahead wait for their reader beyond that, at most `CEILINGS_HELD` of them.

use std::time::Duration;

use rocksdb::{Direction, IteratorMode, ReadOptions};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use super::{generation::Generation, view::AppliedView};
use crate::{
    planted_bugs::{Bug, is_planted},
    sequence::{Ledger, Namespace, SectionKey, SectionRecord},
    storage::{
        error::StoreError,
        layout::{Family, ledger_key, namespace_sections_range, section_of},
    },
};

/// How many sections a part has.
const PART_SECTIONS: usize = 4_096;
/// How many parts are read before they are taken.
const PARTS_AHEAD: usize = 2;
/// How many ceilings an export holds at most: those read ahead, and a part in the hands of either side.
pub const CEILINGS_HELD: usize = PART_SECTIONS * (PARTS_AHEAD + 2);
/// How long an export may take.
const TIME_MAX: Duration = Duration::from_secs(900);
/// How long it waits for a part to be taken.
const READER_MAX: Duration = Duration::from_secs(30);

/// Some sections and their ceilings.
pub type CeilingsPart = Vec<(SectionKey, u64)>;

/// The ceilings of a namespace's sections, part by part. It ends early if nobody takes a part for long.
pub type Ceilings = mpsc::Receiver<Result<CeilingsPart, StoreError>>;

/// Where a thread sends what it reads, until when, and what for.
struct CeilingsReading {
    namespace: Namespace,
    send: mpsc::Sender<Result<CeilingsPart, StoreError>>,
    runtime: Handle,
    end: Instant,
}

impl AppliedView {
    /// Reads the ceilings of the sections of `namespace` as they are when this returns, in the order of the table. No
    /// number above its section's was handed out up to a moment at which this node leads. An empty part is the last one.
    /// `held` is dropped once the table is not read any more.
    pub async fn ceilings(&self, namespace: &Namespace, held: impl Send + 'static) -> Ceilings {
        let (send, parts) = mpsc::channel(PARTS_AHEAD);
        let (taken, is_taken) = oneshot::channel();
        let generation = self.generation();
        let reading = CeilingsReading {
            namespace: namespace.clone(),
            send,
            runtime: Handle::current(),
            end: Instant::now() + TIME_MAX,
        };
        tokio::task::spawn_blocking(move || {
            let _held = held;
            let view = generation.db.db.snapshot();
            // On an error nobody waits for the export any more: the first part is not taken.
            let _ = taken.send(());
            if let Err(error) = reading.read(&generation, &view) {
                reading.give(Err(error));
            }
        });
        // On an error the thread is gone, and the parts end early.
        let _ = is_taken.await;
        parts
    }
}

impl CeilingsReading {
    fn read(
        &self, generation: &Generation, view: &rocksdb::Snapshot<'_>,
    ) -> Result<(), StoreError> {
        let (db, prefix) = (&generation.db, generation.prefix());
        let family = db.family(Family::Applied)?;
        let ledger_key = ledger_key(&prefix);
        let ledger = view.get_cf(family, &ledger_key);
        let ledger = match ledger.map_err(|error| db.failed(&error))? {
            Some(bytes) => db.decode::<Ledger>(Family::Applied, &ledger_key, &bytes)?,
            None => Ledger::default(),
        };
        let (from, to) = namespace_sections_range(&prefix, self.namespace.id);
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(to);
        options.fill_cache(false);
        let mode = IteratorMode::From(&from, Direction::Forward);
        let mut part = CeilingsPart::new();
        for record in view.iterator_cf_opt(family, options, mode) {
            let (key, value) = record.map_err(|error| db.failed(&error))?;
            let record: SectionRecord = db.decode(Family::Applied, &key, &value)?;
            let not_a_section = || db.damaged(Family::Applied, &key, "its key names no section");
            let section = section_of(&key[prefix.len()..]).ok_or_else(not_a_section)?;
            let ceiling = match is_planted(Bug::ExportTellsFloor) {
                false => record.ceiling_at(ledger.epoch, self.namespace.config.increment),
                true => record.floor,
            };
            let ceiling = ceiling.min(self.namespace.greatest_number());
            if ceiling > 0 {
                part.push((section.key, ceiling));
            }
            if part.len() == PART_SECTIONS && !self.give(Ok(std::mem::take(&mut part))) {
                return Ok(());
            }
        }
        if part.is_empty() || self.give(Ok(part)) {
            self.give(Ok(CeilingsPart::new()));
        }
        Ok(())
    }

    /// False if the part is not taken in time.
    fn give(&self, part: Result<CeilingsPart, StoreError>) -> bool {
        let until = self.end.min(Instant::now() + READER_MAX);
        let giving = timeout_at(until, self.send.send(part));
        matches!(self.runtime.block_on(giving), Ok(Ok(())))
    }
}

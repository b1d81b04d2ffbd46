//! Fills the records in memory from the table, batch by batch, beside the state machine.
//!
//! Invariant: what `RecentRecords` had missed is noted before anything of the table
//! is read. `recent.rs` says why no old record comes in then.

use super::view::AppliedView;
use crate::{
    sequence::SectionRecord,
    storage::{
        error::StoreError,
        layout::{Family, kind_range, section_of},
    },
};

/// How many records a batch reads. It takes about a millisecond, unless the disk is slow.
const BATCH_RECORDS: usize = 1_024;

/// One fill of the records in memory, from the beginning of the table on. Only records of sections that the next epoch
/// may give a chunk of are added: any other section is bumped at its first touch.
pub struct RecordsFill {
    view: AppliedView,
    /// Where the next batch begins: a key without its generation's prefix.
    from: Vec<u8>,
}

impl RecordsFill {
    /// A fill of what `view` keeps in memory.
    pub fn new(view: AppliedView) -> Self {
        let (from, _) = kind_range(&[], b's');
        RecordsFill { view, from }
    }

    /// Reads the next batch, where blocking is allowed. False if it was the last one: there is no room for more, or
    /// the table has no more.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or a record is damaged.
    pub async fn next_batch(&mut self) -> Result<bool, StoreError> {
        let (view, from) = (self.view.clone(), self.from.clone());
        let read = self.view.blocking().run(move || batch(&view, &from)).await;
        let failed = |error| StoreError::invalid(format!("the table cannot be read: {error}"));
        let Some(next) = read.map_err(failed)?? else {
            return Ok(false);
        };
        self.from = next;
        Ok(true)
    }
}

/// Reads one batch. Returns where the next one begins, if there is more to do. Blocks.
fn batch(view: &AppliedView, from: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let recent = view.recent_records();
    // First of all: see the invariant.
    let Some(before) = recent.begin_fill() else {
        return Ok(None);
    };
    let generation = view.generation();
    let epoch = generation.read_ledger()?.epoch;
    let (db, prefix) = (&generation.db, generation.prefix());
    let mut left = BATCH_RECORDS;
    let (_, to) = kind_range(&prefix, b's');
    for record in generation.records(&[&prefix, from].concat(), to)? {
        let (key, value) = record?;
        let name = &key[prefix.len()..];
        if left == 0 {
            return Ok(Some(name.to_vec()));
        }
        left -= 1;
        let record: SectionRecord = db.decode(Family::Applied, &key, &value)?;
        if !record.is_live_next(epoch) {
            continue;
        }
        let not_a_section = || db.damaged(Family::Applied, &key, "its key names no section");
        let id = section_of(name).ok_or_else(not_a_section)?;
        if recent.fill(id, record, &before).is_err() {
            return Ok(Some(name.to_vec()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;

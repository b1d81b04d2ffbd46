//! Makes a cluster of one out of the data directory of one surviving node, offline.
//!
//! What the others committed beyond this copy is lost, ceilings among it; so all ceilings are raised
//! by a margin, and so is the `start` of each namespace, for sections that this copy never heard of.
//! The log goes, the one voter is this node, and a new incarnation keeps the old nodes' messages out.
//!
//! Invariant: the directory is the old node's until one synced, atomic write makes it the new one's.
//! What comes after that write (the marker) is completed by another run, and nothing else opens the
//! directory before: the record [`RECOVERY_KEY`] stands until the end.

mod margin;
mod raised_table;
mod survivor;
mod switch;

use std::{path::Path, sync::Arc};

use rocksdb::WriteBatch;

use super::{
    data_dir,
    database::Database,
    error::StoreError,
    identity,
    layout::{Family, RECOVERY_KEY},
    options::StoreOptions,
    recovery_record::{Pending, Recovery},
};
use crate::{clock::BootClock, sequence::SetId};
use survivor::Survivor;

pub use margin::Margin;

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
    data_dir::check_contents(dir)?;
    let Some(marker) = identity::read_marker(dir)? else {
        return Err(StoreError::Refused(format!(
            "{} is not the data directory of a node: there is no file NODE in it",
            dir.display()
        )));
    };
    let lock = data_dir::lock(dir)?;
    if !Database::path(dir).join("CURRENT").exists() {
        return Err(identity::part_missing(dir, "the database"));
    }
    let newest = identity::newest_release(Some(&marker));
    let options = StoreOptions::new(Arc::new(BootClock));
    let db = Arc::new(Database::open(dir, lock, newest, &options)?);
    if let Some(mut pending) = db.get::<Pending>(Family::HardState, RECOVERY_KEY)? {
        pending.recovery.completed_only = true;
        return match dry_run {
            true => Ok(pending.recovery),
            false => finish(&db, pending),
        };
    }
    let (cluster, node) = (marker.identity.cluster.clone(), marker.identity.node);
    let identity = identity::reconcile(&db, Some(marker), &cluster, node)?;
    let survivor = Survivor::read(&db, set, identity)?;
    let plan = margin.plan(&survivor)?;
    let recovery = raised_table::raise(&survivor, &plan, dry_run)?;
    if dry_run {
        return Ok(recovery);
    }
    let pending = switch::switch(&survivor, recovery)?;
    finish(&db, pending)
}

/// What is left after the switch; may be done again.
fn finish(db: &Database, pending: Pending) -> Result<Recovery, StoreError> {
    identity::write_marker(db, &pending.identity)?;
    let mut batch = WriteBatch::default();
    batch.delete_cf(db.family(Family::HardState)?, RECOVERY_KEY);
    db.write(batch, true)?;
    Ok(pending.recovery)
}

#[cfg(test)]
mod tests;

//! Makes a cluster of one out of the data directory of one surviving node, offline.
//!
//! Entries that the lost nodes committed after this copy ends are lost, and raised ceilings with them.
//! Therefore all ceilings are raised by a margin. So is the `start` of each namespace, for sections that
//! this copy does not know. Where ids of keys hold a time, numbers follow the clock: these namespaces are raised to a number
//! above all that may be lost (`lost_times`), and by no margin unless one is given. Leases of worker ids may be lost as
//! well. Therefore no lease goes on, and the next ones lie above what this machine's clock shows, by more than a lease ever
//! reaches ahead. The log is emptied, this node becomes the only voter, and a new incarnation keeps messages of the lost
//! nodes out.
//!
//! Steps: read the copy (`survivor`), plan (`margin`), write the raised table beside the one in use
//! (`raised_table`), switch (`switch`), write the marker.
//!
//! Invariant: one synced, atomic write, the switch, turns the old node's directory into the new one's.
//! It also writes the record [`RECOVERY_KEY`], which stands until the marker is written: until then
//! another run completes the recovery, and no node opens the directory.

mod lost_times;
mod margin;
mod raised_table;
mod survivor;
mod switch;

use std::{path::Path, sync::Arc};

use rocksdb::WriteBatch;

use super::{
    data_dir,
    database::Database,
    directory_check,
    error::StoreError,
    identity,
    layout::{Family, RECOVERY_KEY},
    options::StoreOptions,
    recovery_record::{Pending, Recovery},
    table::{AppliedMeta, Generation},
};
use crate::{
    clock::{BootClock, Clock},
    sequence::{Principals, SetId},
};
use survivor::Survivor;

pub use margin::Margin;

/// Makes a cluster of one out of `dir`. A dry run only tells what that would do. Returns what was done, and the principals
/// of the recovered cluster. Blocks.
///
/// # Errors
/// [`StoreError::Inaccessible`] if the user of this process cannot use the directory; [`StoreError::WrongSetUp`] if it holds
/// other files; [`StoreError::Refused`] if the directory is in use, is not a member's, or a margin does not fit a
/// namespace; [`StoreError::Damaged`] or [`StoreError::OtherRelease`] if a record cannot be read. Nothing
/// has changed then. [`StoreError::Io`] or [`StoreError::Database`] if the disk fails. If it fails after
/// the switch, another run completes the recovery.
pub fn recover(
    dir: &Path, set: SetId, margin: &Margin, dry_run: bool,
) -> Result<(Recovery, Principals), StoreError> {
    if !dir.exists() {
        return Err(StoreError::Refused(format!(
            "{} does not exist; give the data directory of the surviving node: --data-dir",
            dir.display()
        )));
    }
    directory_check::check_access(dir)?;
    recover_accessible(dir, set, margin, dry_run)
        .map_err(|error| directory_check::denied_or(dir, error))
}

/// Recovers a directory whose files may not be open to this user yet.
fn recover_accessible(
    dir: &Path, set: SetId, margin: &Margin, dry_run: bool,
) -> Result<(Recovery, Principals), StoreError> {
    data_dir::check_contents(dir)?;
    let Some(marker) = identity::read_marker(dir)? else {
        return Err(StoreError::Refused(format!(
            "{} is not the data directory of a node: it has no file NODE; give the data directory of the \
             surviving node: --data-dir",
            dir.display()
        )));
    };
    let lock = data_dir::lock(dir)?;
    if !Database::is_there(dir)? {
        return Err(identity::part_missing(dir, "the database"));
    }
    let newest = identity::newest_release(Some(&marker));
    let options = StoreOptions::new(Arc::new(BootClock));
    let db = Arc::new(Database::open(dir, lock, newest, &options)?);
    if let Some(mut pending) = db.get::<Pending>(Family::HardState, RECOVERY_KEY)? {
        pending.recovery.completed_only = true;
        // The raised table is the one in use.
        let table = AppliedMeta::read(&db, set)?.unwrap_or_default();
        let principals = Generation::new(&db, set, table.generation).read_principals()?;
        if !dry_run {
            finish(&db, &pending, marker.dev)?;
        }
        return Ok((pending.recovery, principals));
    }
    let (cluster, node, dev) = (marker.identity.cluster.clone(), marker.identity.node, marker.dev);
    let marker = identity::reconcile(&db, Some(marker), &cluster, node)?;
    let identity = marker.ok_or_else(|| survivor::never_formed(&db))?.identity;
    let now_ms = BootClock.wall_ms();
    let survivor = Survivor::read(&db, set, identity, now_ms)?;
    survivor.check_founded()?;
    let plan = margin.plan(&survivor.known, now_ms, dir)?;
    let recovery = raised_table::raise(&survivor, &plan, dry_run)?;
    let principals = Principals::clone(&survivor.principals);
    if dry_run {
        return Ok((recovery, principals));
    }
    let pending = switch::switch(&survivor, recovery)?;
    finish(&db, &pending, dev)?;
    Ok((pending.recovery, principals))
}

/// Does what follows the switch. It may be done a second time.
fn finish(db: &Database, pending: &Pending, dev: bool) -> Result<(), StoreError> {
    identity::write_marker(db, &pending.identity, dev)?;
    let mut batch = WriteBatch::default();
    batch.delete_cf(db.family(Family::HardState)?, RECOVERY_KEY);
    db.write(batch, true)
}

#[cfg(test)]
mod tests;

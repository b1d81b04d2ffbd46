//! Keeps the records of live sections in memory, for the state machine and for the moment in which this node becomes
//! leader.
//!
//! The state machine adds what it writes, with three gaps: what was written before the node was started, what came
//! with a snapshot, and what the node's own terms wrote. The gaps are filled from the table, in the background.
//!
//! Invariant: no batch of a fill begins while this node leads. Its term's memory has the keys.

use std::{future, sync::Arc, time::Duration};

use crate::{
    consensus::Group,
    storage::{AppliedView, RecordsFill},
};

/// The pause before each batch of a fill. With it a million records take several seconds.
const PAUSE: Duration = Duration::from_millis(5);

/// Fills the records in memory from the table when the node starts, after a snapshot was installed, and after
/// each term of its own.
pub(in crate::node) async fn fill_recent_records(group: Arc<Group>) {
    let view = &group.view;
    let mut leadership = group.leadership();
    let mut cleared = view.recent_records().cleared();
    while leadership.wait_for(|now| now.own.is_none()).await.is_ok() {
        drop(cleared.borrow_and_update());
        let mut fill = Some(RecordsFill::new(view.clone()));
        loop {
            tokio::select! {
                biased;
                _ = leadership.wait_for(|now| now.own.is_some()) => break,
                _ = cleared.changed() => break,
                () = pause(fill.is_some()) => fill = go_on(fill, view).await,
            }
        }
    }
}

/// Waits until the next batch is due: for ever if the fill is done.
async fn pause(goes_on: bool) {
    match goes_on {
        true => tokio::time::sleep(PAUSE).await,
        false => future::pending().await,
    }
}

/// Reads the next batch, whatever happens meanwhile: if the disk hangs, one thread waits for it, and not more. `None`
/// if the fill is done.
async fn go_on(fill: Option<RecordsFill>, view: &AppliedView) -> Option<RecordsFill> {
    let mut fill = fill?;
    match fill.next_batch().await {
        Ok(true) => return Some(fill),
        Ok(false) => {
            let records = view.recent_records().len();
            tracing::debug!(records, "the records of sections are in memory");
        }
        // The error of a call that needs the record says what to do.
        Err(error) => tracing::warn!(%error, "the records of sections cannot be read ahead"),
    }
    None
}

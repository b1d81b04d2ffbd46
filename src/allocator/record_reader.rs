//! The record reader: at the first touch of a section in a term, reads the section's record from the disk if it
//! is not in memory. Sections that ask while one read is under way are read together.
//!
//! Invariant: a section is bumped only after its record was looked at, because the lift may have given a chunk.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{
    bumper::{ENTRY_SECTIONS_MAX, Request},
    memory::{Memory, Place},
};
use crate::{consensus::TermLease, storage::StoreError};

/// Serves one term's requests until the term is dropped or lost.
pub async fn run(
    memory: Arc<Memory>,
    lease: Arc<TermLease>,
    mut requests: mpsc::UnboundedReceiver<Place>,
    bumper: mpsc::UnboundedSender<Request>,
) {
    let mut places = Vec::new();
    // One read brings as many sections as one entry bumps.
    while requests.recv_many(&mut places, ENTRY_SECTIONS_MAX).await > 0 {
        if let Err(error) = read(&memory, &mut places, &bumper).await {
            tracing::error!(term = memory.term(), %error, "the records of sections cannot be read");
            // A term in which nobody can take numbers must end.
            lease.void();
            // Close first: a call that asks after `abandon` must notice that nobody listens.
            requests.close();
            memory.abandon();
            return;
        }
    }
}

/// Reads the records of the sections at `places`, and asks for the bumps that are needed then.
async fn read(
    memory: &Memory,
    places: &mut Vec<Place>,
    bumper: &mpsc::UnboundedSender<Request>,
) -> Result<(), StoreError> {
    let unread = places.drain(..);
    let (places, ids): (Vec<_>, Vec<_>) = unread
        .filter_map(|place| Some((place, memory.section_id(place)?)))
        .unzip();
    let records = memory.view().read_sections(ids.clone()).await?;
    let namespaces = memory.view().namespaces();
    for ((place, id), record) in places.into_iter().zip(ids).zip(records) {
        // Namespaces are never removed.
        if let Some(namespace) = namespaces.by_id(id.namespace)
            && memory.record_read(place, &id, record, namespace)
        {
            // The bumper has ended, so the term is over. `abandon` tells the calls that wait.
            if bumper.send(Request::Bump(place)).is_err() {
                memory.abandon();
            }
        }
    }
    Ok(())
}

//! The record reader: at the first touch of a section in a term, reads the section's record from the disk if it
//! is not in memory. Sections that ask while as many reads as may be are under way are read together.
//!
//! Invariant: a section is bumped only after its record was looked at, because the lift may have given a chunk.

use std::sync::Arc;

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::sync::mpsc;

use super::{
    bumper::Request,
    memory::{Memory, Place},
};
use crate::{
    consensus::TermLease,
    sequence::{SectionId, SectionRecord},
    storage::StoreError,
};

/// How many reads are under way at most. The disk serves them side by side.
const READS_MAX: usize = 4;

/// How many sections one read brings at most.
const READ_SECTIONS_MAX: usize = 1_024;

/// Sections and their records, as they were read.
type Read = Vec<(Place, SectionId, SectionRecord)>;

/// Serves one term's requests until the term is dropped or lost.
pub async fn run(
    memory: Arc<Memory>,
    lease: Arc<TermLease>,
    mut requests: mpsc::UnboundedReceiver<Place>,
    bumper: mpsc::UnboundedSender<Request>,
) {
    let mut reads = FuturesUnordered::new();
    let mut places = Vec::new();
    loop {
        let done = tokio::select! {
            biased;
            Some(done) = reads.next() => done,
            asked = requests.recv_many(&mut places, READ_SECTIONS_MAX), if reads.len() < READS_MAX => {
                if asked == 0 {
                    // The term is dropped, and its memory with it.
                    return;
                }
                reads.push(read(&memory, std::mem::take(&mut places)));
                continue;
            }
        };
        match done {
            Ok(read) => take_in(&memory, read, &bumper),
            Err(error) => {
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
}

/// Reads the records of the sections at `places`.
async fn read(memory: &Memory, places: Vec<Place>) -> Result<Read, StoreError> {
    // Keys that are new to the term come this way when the memory is full: they wait until others were let go.
    memory.room().wait().await;
    let (places, ids): (Vec<_>, Vec<_>) = (places.into_iter())
        .filter_map(|place| Some((place, memory.section_id(place)?)))
        .unzip();
    let records = memory.view().read_sections(ids.clone()).await?;
    let read = places.into_iter().zip(ids).zip(records);
    Ok(read
        .map(|((place, id), record)| (place, id, record))
        .collect())
}

/// Gives the sections their records, and asks for the bumps that are needed then.
fn take_in(memory: &Memory, read: Read, bumper: &mpsc::UnboundedSender<Request>) {
    let namespaces = memory.view().namespaces();
    for (place, id, record) in read {
        let Some(namespace) = namespaces.by_id(id.namespace) else {
            memory.namespace_gone(place, &id);
            continue;
        };
        if memory.record_read(place, &id, record, namespace) {
            // The bumper has ended, so the term is over. `abandon` tells the calls that wait.
            if bumper.send(Request::Bump(place)).is_err() {
                memory.abandon();
            }
        }
    }
}

#[cfg(test)]
mod tests;

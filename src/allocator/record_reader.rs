//! The record reader: at the first touch of a section in a term, reads the section's record from the disk if it
//! is not in memory. Sections that ask while as many reads as may be are under way are read together.
//!
//! Invariant: a section is bumped only after its record was looked at, because the epoch may have given a chunk. A record
//! that was read before a release of the section is not looked at.

use std::sync::Arc;

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::sync::mpsc;

use super::{
    bumper::Request,
    memory::{Memory, MemoryPlace, Need},
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

/// Sections, what was noted before the read, and their records.
type Read = Vec<(MemoryPlace, (SectionId, Option<u64>), SectionRecord)>;

/// Serves one term's requests until the term is dropped or lost.
pub async fn run(
    memory: Arc<Memory>, lease: Arc<TermLease>, mut requests: mpsc::UnboundedReceiver<MemoryPlace>,
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
            Ok(read) => {
                let again = take_in(&memory, read, &bumper);
                if !again.is_empty() {
                    reads.push(self::read(&memory, again));
                }
            }
            Err(error) => {
                tracing::error!(term = memory.term(), %error, "the records of sections cannot be read");
                // A term in which nobody can take numbers must end.
                lease.void();
                // Close first: a call that asks after `abandon` must notice that nobody listens.
                requests.close();
                memory.abandon(&lease);
                return;
            }
        }
    }
}

/// Reads the records of the sections at `places`.
async fn read(memory: &Memory, places: Vec<MemoryPlace>) -> Result<Read, StoreError> {
    // Keys that are new to the term come this way when the memory is full: they wait until others were evicted.
    memory.room().wait().await;
    if memory.gate().is_deserted() {
        // Nobody waits for a record any more, and nobody will: reads must not keep the disk from a handover.
        return Ok(Vec::new());
    }
    let (places, noted): (Vec<_>, Vec<_>) =
        (places.into_iter()).filter_map(|place| Some((place, memory.begin_read(place)?))).unzip();
    let ids = noted.iter().map(|(id, _)| id.clone()).collect();
    let records = memory.view().read_sections(ids).await?;
    assert_eq!(noted.len(), records.len(), "each section has a record");
    let read = places.into_iter().zip(noted).zip(records);
    Ok(read.map(|((place, noted), record)| (place, noted, record)).collect())
}

/// Gives the sections their records, and asks for the bumps that are needed then. Returns the sections whose records must
/// be read again.
fn take_in(
    memory: &Memory, read: Read, bumper: &mpsc::UnboundedSender<Request>,
) -> Vec<MemoryPlace> {
    let namespaces = memory.view().namespaces();
    let mut again = Vec::new();
    for (place, noted, record) in read {
        let Some(namespace) = namespaces.by_id(noted.0.namespace) else {
            memory.namespace_gone(place, &noted.0);
            continue;
        };
        match memory.record_read(place, &noted, record, namespace) {
            Some(Need::Read) => again.push(place),
            Some(Need::Bump) => {
                // The bumper ends once the gate is closed and nobody is inside: then nobody waits for this bump. One that
                // fails abandons the memory itself.
                let _ = bumper.send(Request::Bump(place));
            }
            None => {}
        }
    }
    again
}

#[cfg(test)]
mod tests;

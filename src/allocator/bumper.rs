//! Raises ceilings: collects the sections that ask while one log entry is under way into the next.
//!
//! Invariant: one entry is under way at a time, and a chunk is granted to the term that proposed it
//! and to no other.

use std::{collections::VecDeque, sync::Arc};

use tokio::sync::{mpsc, oneshot};

use super::memory::{Memory, Place};
use crate::{
    consensus::{Group, ProposeError, TermLease},
    planted::{Bug, is_planted},
    sequence::{Bump, Bumped, Chunk, Command, Outcome},
};

/// How many sections one log entry bumps at most: some 200 KB.
pub const ENTRY_SECTIONS_MAX: usize = 8_192;

/// What the bumper is asked.
#[derive(Debug)]
pub enum Request {
    /// The section at this place wants numbers.
    Bump(Place),
    /// Finish what came before, and answer.
    Finish(oneshot::Sender<()>),
}

/// Serves one term's requests until the term is dropped or lost.
pub async fn run(
    group: Arc<Group>,
    memory: Arc<Memory>,
    lease: Arc<TermLease>,
    mut requests: mpsc::UnboundedReceiver<Request>,
) {
    let mut waiting = Vec::new();
    // Sections that a bump was not enough for.
    let mut again: VecDeque<Place> = VecDeque::new();
    loop {
        // Half an entry at most: the other half is for those that ask for the first time.
        let first = again.len().min(ENTRY_SECTIONS_MAX / 2);
        if first == 0 && requests.recv_many(&mut waiting, ENTRY_SECTIONS_MAX).await == 0 {
            return;
        }
        while waiting.len() + first < ENTRY_SECTIONS_MAX
            && let Ok(request) = requests.try_recv()
        {
            waiting.push(request);
        }
        let mut places: Vec<Place> = again.drain(..first).collect();
        let mut finish = None;
        for request in waiting.drain(..) {
            match request {
                Request::Bump(place) => places.push(place),
                Request::Finish(done) => finish = Some(done),
            }
        }
        match bump(&group, &memory, places).await {
            Ok(unserved) => again.extend(unserved),
            Err(error) => {
                tracing::info!(term = memory.term(), %error, "no more bumps in this term");
                // Closed first: who asks after `abandon` notices that nobody listens.
                requests.close();
                memory.abandon();
                // Raft may go on leading in this term (it refuses proposals while it hears from no
                // majority): a term in which nobody can take numbers must end.
                lease.void();
                return;
            }
        }
        if let Some(done) = finish {
            // The one who asked may have given up.
            let _ = done.send(());
            return;
        }
    }
}

/// Proposes one entry for the sections at `places`, and gives each what it got. Answers those that need
/// a further bump.
#[tracing::instrument(level = "debug", name = "propose", skip_all, fields(term = memory.term(), sections = places.len()))]
async fn bump(
    group: &Group,
    memory: &Memory,
    mut places: Vec<Place>,
) -> Result<Vec<Place>, ProposeError> {
    let mut bumps = Vec::with_capacity(places.len());
    {
        let namespaces = group.view().namespaces();
        places.retain(|&place| {
            let bump = memory.wanted(place, &namespaces);
            bump.map(|bump| bumps.push(bump)).is_some()
        });
    }
    if bumps.is_empty() {
        return Ok(Vec::new());
    }
    if is_planted(Bug::ChunkFromLocalRead) {
        for (place, bump) in places.iter().zip(&bumps) {
            read_chunk(group, memory, *place, bump);
        }
    }
    let started = memory.now();
    let outcome = group
        .propose(memory.term(), Command::Bump(bumps.clone()))
        .await?;
    let Outcome::Bumped(answers) = outcome else {
        return Err(ProposeError::Refused(format!(
            "a bump was answered with {outcome:?}"
        )));
    };
    let took = memory.now().since(started);
    memory.bump_took(took);
    let metrics = memory.metrics();
    metrics.bump_seconds.observe(took, 1);
    metrics.bump_entries.inc();
    metrics.bumps.inc_by(bumps.len() as u64);
    // As they are by now: who waits is served by what was changed since the bump was proposed, too.
    let namespaces = group.view().namespaces();
    let mut again = Vec::new();
    for ((place, Bump { section, .. }), answer) in places.into_iter().zip(bumps).zip(answers) {
        // Namespaces are never removed, and the request named an applied one.
        let namespace = namespaces.by_id(section.namespace);
        let Some(namespace) = namespace.filter(|_| answer != Bumped::NoNamespace) else {
            return Err(ProposeError::Refused(format!(
                "there is no namespace {:?}",
                section.namespace
            )));
        };
        tracing::trace!(?section, ?answer, "bumped");
        if memory.bumped(place, &section, answer, namespace) {
            again.push(place);
        }
    }
    Ok(again)
}

/// A planted bug: the chunk may be a predecessor's.
fn read_chunk(group: &Group, memory: &Memory, place: Place, bump: &Bump) {
    let record = group.view().section(&bump.section).unwrap_or_default();
    let namespaces = group.view().namespaces();
    if record.term < memory.term()
        && record.max_seq > 0
        && let Some(namespace) = namespaces.by_id(bump.section.namespace)
    {
        let chunk = Bumped::Chunk(Chunk {
            old: record.max_seq.saturating_sub(bump.numbers),
            new: record.max_seq,
            left: 0,
        });
        memory.bumped(place, &bump.section, chunk, namespace);
    }
}

//! Raises ceilings: collects the sections that ask while one log entry is under way into the next.
//!
//! Invariant: one entry is under way at a time, and a chunk is granted to the term that proposed it
//! and to no other.

use std::{sync::Arc, time::Instant};

use tokio::sync::{mpsc, oneshot};

use super::term::Memory;
use crate::{
    consensus::{Group, ProposeError, TermLease},
    metrics::SkipCause,
    planted::{Bug, is_planted},
    sequence::{Bump, Bumped, Chunk, Command, NamespaceId, Outcome, SectionId},
};

/// How many sections one log entry bumps at most: some 200 KB.
pub const ENTRY_SECTIONS_MAX: usize = 8_192;

/// What the bumper is asked.
#[derive(Debug)]
pub enum Request {
    /// This section wants numbers.
    Bump(SectionId),
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
    while requests.recv_many(&mut waiting, ENTRY_SECTIONS_MAX).await > 0 {
        let mut sections = Vec::with_capacity(waiting.len());
        let mut finish = None;
        for request in waiting.drain(..) {
            match request {
                Request::Bump(section) => sections.push(section),
                Request::Finish(done) => finish = Some(done),
            }
        }
        if !sections.is_empty()
            && let Err(error) = bump(&group, &memory, sections).await
        {
            tracing::info!(term = memory.term(), %error, "no more bumps in this term");
            // Closed first: who asks after `abandon` notices that nobody listens.
            requests.close();
            memory.abandon();
            // Raft may go on leading in this term (it refuses proposals while it hears from no
            // majority): a term in which nobody can take numbers must end.
            lease.void();
            return;
        }
        if let Some(done) = finish {
            // The one who asked may have given up.
            let _ = done.send(());
            return;
        }
    }
}

#[tracing::instrument(level = "debug", name = "propose", skip_all, fields(term = memory.term(), sections = sections.len()))]
async fn bump(
    group: &Group,
    memory: &Memory,
    sections: Vec<SectionId>,
) -> Result<(), ProposeError> {
    let bumps: Vec<Bump> = sections
        .into_iter()
        .map(|section| Bump {
            numbers: memory.wanted(&section),
            section,
        })
        .collect();
    if is_planted(Bug::ChunkFromLocalRead) {
        bumps
            .iter()
            .for_each(|bump| read_chunk(group, memory, bump));
    }
    let started = Instant::now();
    let outcome = group
        .propose(memory.term(), Command::Bump(bumps.clone()))
        .await?;
    let Outcome::Bumped(answers) = outcome else {
        return Err(ProposeError::Refused(format!(
            "a bump was answered with {outcome:?}"
        )));
    };
    let metrics = memory.metrics();
    metrics
        .bump_seconds
        .observe(started.elapsed().as_secs_f64());
    metrics.bump_entries.inc();
    metrics.bumps.inc_by(bumps.len() as u64);
    let namespaces = group.view().namespaces();
    let config = |id: NamespaceId| namespaces.by_id(id).map(|namespace| &namespace.config);
    for (bump, answer) in bumps.into_iter().zip(answers) {
        match answer {
            Bumped::Chunk(chunk) => {
                let step = config(bump.section.namespace).map_or(0, |config| config.step);
                grant(memory, bump.section, chunk, step);
            }
            Bumped::Exhausted => {
                let max = config(bump.section.namespace).map_or(0, |config| config.max);
                memory.with_section(&bump.section, |section| section.exhaust(max));
            }
            // Namespaces are never removed, and the request named an applied one.
            Bumped::NoNamespace => {
                return Err(ProposeError::Refused(format!(
                    "there is no namespace {:?}",
                    bump.section.namespace
                )));
            }
        }
    }
    Ok(())
}

/// A planted bug: the chunk may be a predecessor's.
fn read_chunk(group: &Group, memory: &Memory, bump: &Bump) {
    let record = group.view().section(&bump.section).unwrap_or_default();
    if record.term < memory.term() && record.max_seq > 0 {
        let chunk = Chunk {
            old: record.max_seq.saturating_sub(bump.numbers),
            new: record.max_seq,
            left: 0,
        };
        memory.with_section(&bump.section, |section| section.grant(chunk));
    }
}

fn grant(memory: &Memory, section: SectionId, chunk: Chunk, step: u64) {
    tracing::trace!(?section, old = chunk.old, new = chunk.new, "chunk");
    let left = chunk.left.min(step);
    memory.metrics().skip(SkipCause::leader_change, left);
    memory.with_section(&section, |section| section.grant(chunk));
}

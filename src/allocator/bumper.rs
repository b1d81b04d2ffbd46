//! The bumper: raises the ceilings of one term's sections. Sections that ask while a log entry is under
//! way are collected into the next one; if they are more than it takes, those that are asked for most come first.
//!
//! Invariant: one entry is under way at a time, and a chunk goes only to the term that proposed it.
//! No bump is proposed again: if one fails, its outcome is unknown, and the term ends.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    backlog::Backlog,
    memory::{Memory, MemoryPlace},
};
use crate::{
    consensus::{Group, ProposeError, TermLease},
    sequence::{Bump, Bumped, Command, EntryOutcome, Skipped},
};

/// The most sections that one log entry bumps, releases or trims. An entry with so many bumps has some 200 KB.
pub const ENTRY_SECTIONS_MAX: usize = 8_192;

/// The shortest time between two entries that only tell of skipped numbers.
const TELL_PAUSE: Duration = Duration::from_secs(10);

/// A request to the bumper.
#[derive(Debug)]
pub enum Request {
    /// Bump the section at this place.
    Bump(MemoryPlace),
    /// Finish the bumps that were asked for before, answer, and end.
    Finish(oneshot::Sender<()>),
}

/// Serves one term's requests until the term is dropped, closed or lost.
pub async fn run(
    group: Arc<Group>, memory: Arc<Memory>, lease: Arc<TermLease>,
    mut requests: mpsc::UnboundedReceiver<Request>,
) {
    let mut asked = Vec::new();
    let mut backlog = Backlog::new();
    let mut finish = None;
    // Sections that need a further bump.
    let mut again: VecDeque<MemoryPlace> = VecDeque::new();
    // When an entry last told of skipped numbers.
    let mut told_at = Instant::now();
    loop {
        // They get at most half an entry: the other half is for sections that ask for the first time.
        let first = again.len().min(ENTRY_SECTIONS_MAX / 2);
        if first == 0 && backlog.is_empty() {
            tokio::select! {
                biased;
                count = requests.recv_many(&mut asked, ENTRY_SECTIONS_MAX) => if count == 0 {
                    return;
                },
                () = memory.unreported().wait_until(told_at + TELL_PAUSE) => {}
            }
        }
        while let Ok(request) = requests.try_recv() {
            asked.push(request);
        }
        for request in asked.drain(..) {
            match request {
                Request::Bump(place) => backlog.push(place),
                Request::Finish(done) => finish = Some(done),
            }
        }
        let mut places: Vec<MemoryPlace> = again.drain(..first).collect();
        let calls = |place| memory.calls_waiting(place);
        places.extend(backlog.take(ENTRY_SECTIONS_MAX - first, calls).await);
        let skipped = memory.unreported().take();
        if !skipped.is_empty() {
            told_at = Instant::now();
        }
        match bump(&group, &memory, places, skipped).await {
            Ok(unserved) => again.extend(unserved),
            Err(error) => return end_term(&memory, &lease, &mut requests, &error),
        }
        if backlog.is_empty()
            && let Some(done) = finish.take()
        {
            // The receiver may have given up.
            let _ = done.send(());
            return;
        }
    }
}

/// Ends the term, because a bump failed.
fn end_term(
    memory: &Memory, lease: &TermLease, requests: &mut mpsc::UnboundedReceiver<Request>,
    error: &ProposeError,
) {
    tracing::info!(term = memory.term(), %error, "no more bumps in this term");
    // Raft refuses proposals while it hears from no majority, and may go on leading in this term. A term in which nobody can
    // take numbers must end.
    lease.void();
    // Close first: a call that asks after `abandon` must notice that nobody listens.
    requests.close();
    memory.abandon(lease);
}

/// Proposes one entry for the sections at `places`, which also tells what was `skipped`, and gives each section its answer.
/// Returns the places that need a further bump.
///
/// # Errors
/// [`ProposeError`] if the entry was not committed in this term, or its outcome does not fit the proposal.
/// The term is then lost.
#[tracing::instrument(level = "debug", name = "propose", skip_all, fields(term = memory.term(), sections = places.len()))]
async fn bump(
    group: &Group, memory: &Memory, mut places: Vec<MemoryPlace>, skipped: Vec<Skipped>,
) -> Result<Vec<MemoryPlace>, ProposeError> {
    assert!(
        places.len() <= ENTRY_SECTIONS_MAX,
        "{} sections are too many for an entry",
        places.len()
    );
    let mut bumps = Vec::with_capacity(places.len());
    {
        let namespaces = group.view.namespaces();
        places.retain(|&place| {
            let bump = memory.next_bump(place, &namespaces);
            bump.map(|bump| bumps.push(bump)).is_some()
        });
    }
    if bumps.is_empty() && skipped.is_empty() {
        return Ok(Vec::new());
    }
    let (started, entry) = (memory.now(), memory.begin_entry());
    let (told, now_ms) = (skipped.clone(), memory.wall_ms());
    let command = Command::Bump { bumps: bumps.clone(), skipped: told, now_ms };
    let outcome = match group.propose(memory.term(), command).await {
        Err(error) if bumps.is_empty() => {
            // Nobody waits for it: the term need not end. If it was not proposed, a later entry tells of the same numbers.
            if matches!(error, ProposeError::NotLeader(_)) {
                for Skipped { namespace, by, numbers } in skipped {
                    memory.unreported().note(namespace, by, numbers);
                }
            }
            tracing::debug!(term = memory.term(), %error, "what nobody got is not told");
            return Ok(Vec::new());
        }
        outcome => outcome?,
    };
    let answers = match outcome {
        // Every bump has an answer.
        EntryOutcome::Bumped(answers) if answers.len() == bumps.len() => answers,
        other => {
            let asked = bumps.len();
            return Err(ProposeError::Refused(format!(
                "{asked} bumps were answered with {other:?}"
            )));
        }
    };
    let took = memory.now().since(started);
    memory.bump_took(took);
    // Before anybody is woken who waits for it.
    memory.entry_ended(entry);
    let metrics = memory.set_metrics();
    metrics.bump_seconds.observe(took, 1);
    metrics.bump_entries.inc();
    metrics.bumps.inc_by(bumps.len() as u64);
    Ok(give_answers(group, memory, places, bumps, answers))
}

/// Gives each section at `places` the answer to its bump. Returns the places that need a further bump.
fn give_answers(
    group: &Group, memory: &Memory, places: Vec<MemoryPlace>, bumps: Vec<Bump>,
    answers: Vec<Bumped>,
) -> Vec<MemoryPlace> {
    // Read again: a call that waits is served under changes made since the bump was proposed, too.
    let namespaces = group.view.namespaces();
    let mut again = Vec::new();
    for ((place, Bump { section, .. }), answer) in places.into_iter().zip(bumps).zip(answers) {
        // A namespace that was deleted meanwhile may have been there when the bump was applied: then its chunk is not
        // used.
        let namespace = namespaces.by_id(section.namespace);
        let Some(namespace) = namespace.filter(|_| answer != Bumped::NoNamespace) else {
            memory.namespace_gone(place, &section);
            continue;
        };
        tracing::trace!(?section, ?answer, "bumped");
        if memory.bump_answered(place, &section, answer, namespace) {
            again.push(place);
        }
    }
    again
}

//! Gapless keys: one task for each term proposes what callers take. Calls that arrive while an entry is under way
//! are collected into the next one.
//!
//! # Why no fence is needed
//!
//! A call is proposed after it began, and answered after its entry was applied. So of two calls that follow one
//! another the second one's numbers are taken later in the log, whichever leader proposed them, and the log's order is
//! the order of the numbers. A deposed leader learns that its entry was committed, or nothing: it cannot answer out
//! of order.
//!
//! # What may be asked again
//!
//! An entry whose outcome is not known may be applied later. It is never proposed again from here: without a request
//! id, numbers would be committed that nobody is given.
//!
//! Invariant: one entry is under way at a time, and each call is told what it got, that it was not proposed, or that
//! its outcome is not known.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};

use super::held::{Delivery, Shortage};
use crate::{
    clock::{Clock, Instant},
    consensus::{Group, ProposeError, TermLease},
    metrics::Metrics,
    planted_bugs::{Bug, is_planted},
    sequence::{Command, Outcome, Remembered, Remembering, Take, Taken},
};

/// An entry is proposed once it has so many takes. It then has some 250 KB; 1.4 MB with the longest names and ids.
const ENTRY_TAKES_MAX: usize = 4_096;
/// How many ids an entry forgets beyond two for each that it may add.
const FORGET_MIN: u64 = 16;

/// How request ids are remembered.
#[derive(Debug, Clone, Copy)]
pub struct RequestIdLimits {
    /// For how long.
    pub keep: Duration,
    /// How many at most.
    pub ids_max: u64,
}

/// A call that takes numbers of one gapless key or of many.
pub struct Call {
    /// What it takes.
    pub takes: Vec<Take>,
    /// Where it waits. An answer for each take, in order.
    pub reply: oneshot::Sender<Result<Vec<Given>, NotTaken>>,
}

/// What a call gets for one take.
pub type Given = Result<Delivery, Refused>;

/// Why a take was refused. It took nothing.
#[derive(Debug)]
pub enum Refused {
    /// The request id was used for this.
    Reused(Remembered),
    /// So many request ids are remembered already.
    IdsFull(u64),
    /// The namespace is gone.
    NoNamespace,
}

/// Why a call has no answer.
#[derive(Debug, Clone, Copy)]
pub enum NotTaken {
    /// Nothing was proposed, or the term may not write any more: nothing was taken.
    NotProposed,
    /// The entry may have been applied, or may still be.
    Unknown,
}

/// What the task works with.
pub struct Taker {
    /// Where it proposes.
    pub group: Arc<Group>,
    /// The lease of the term.
    pub lease: Arc<TermLease>,
    /// The node's clock.
    pub clock: Arc<dyn Clock>,
    /// The node's metrics.
    pub metrics: Arc<Metrics>,
    /// How request ids are remembered.
    pub limits: RequestIdLimits,
}

/// Serves one term's calls until the term is dropped or lost.
pub async fn run(taker: Taker, mut calls: mpsc::UnboundedReceiver<Call>) {
    // Up to when the term's time is part of the table's clock.
    let mut counted = taker.clock.now();
    loop {
        let (entry, takes) = tokio::select! {
            biased;
            () = taker.lease.wait_until(TermLease::is_void) => break,
            entry = next_entry(&mut calls) => match entry {
                Some(entry) => entry,
                None => return,
            },
        };
        let remembering = taker.remembering(&mut counted, takes.len());
        if is_planted(Bug::GaplessAnsweredBeforeCommit) {
            taker.answer_before_commit(entry, &takes);
            let _ = taker.propose(remembering, takes).await;
            continue;
        }
        let mut proposing = pin!(taker.propose(remembering, takes));
        let proposed = tokio::select! {
            biased;
            proposed = &mut proposing => proposed,
            // What waits behind is told at once, and may ask the next leader. The entry may still be committed.
            () = taker.lease.wait_until(TermLease::is_void) => {
                refuse_waiting(&mut calls);
                proposing.await
            }
        };
        if let Err(why) = taker.answer(entry, proposed) {
            tracing::info!(
                term = taker.lease.term(),
                why,
                "no more numbers of gapless keys in this term"
            );
            // As in the bumper: a term in which nobody can take numbers must end.
            taker.lease.void();
            break;
        }
    }
    refuse_waiting(&mut calls);
}

/// A call that waits for its entry: where its answer goes, and how many takes it has.
type Waiting = (oneshot::Sender<Result<Vec<Given>, NotTaken>>, usize);

/// Waits for calls, and collects what fits one entry. `None` if no call can come any more.
async fn next_entry(
    calls: &mut mpsc::UnboundedReceiver<Call>,
) -> Option<(Vec<Waiting>, Vec<Take>)> {
    let (mut entry, mut takes) = (Vec::new(), Vec::new());
    while takes.len() < ENTRY_TAKES_MAX {
        let call = match takes.is_empty() {
            true => calls.recv().await?,
            false => match calls.try_recv() {
                Ok(call) => call,
                Err(_) => break,
            },
        };
        // A caller that has gone takes nothing.
        if !call.reply.is_closed() {
            entry.push((call.reply, call.takes.len()));
            takes.extend(call.takes);
        }
    }
    Some((entry, takes))
}

/// Tells the calls that wait that nothing was proposed, and lets no call in any more.
fn refuse_waiting(calls: &mut mpsc::UnboundedReceiver<Call>) {
    calls.close();
    while let Ok(call) = calls.try_recv() {
        // The caller may have gone.
        let _ = call.reply.send(Err(NotTaken::NotProposed));
    }
}

impl Taker {
    /// How ids are remembered in the next entry. Time is counted in whole milliseconds: the rest is left for the entry
    /// that follows.
    fn remembering(&self, counted: &mut Instant, takes: usize) -> Remembering {
        let elapsed_ms = self.clock.now().since(*counted).as_millis() as u64;
        *counted = counted.after(Duration::from_millis(elapsed_ms));
        Remembering {
            elapsed_ms,
            keep_ms: match is_planted(Bug::RequestIdForgotten) {
                false => self.limits.keep.as_millis() as u64,
                true => 0,
            },
            ids_max: self.limits.ids_max,
            forget_max: 2 * takes as u64 + FORGET_MIN,
        }
    }

    #[tracing::instrument(level = "debug", name = "propose", skip_all, fields(term = self.lease.term(), takes = takes.len()))]
    async fn propose(
        &self,
        remembering: Remembering,
        takes: Vec<Take>,
    ) -> Result<(Vec<Take>, Outcome), ProposeError> {
        let started = self.clock.now();
        let command = Command::Take {
            remembering,
            takes: takes.clone(),
        };
        let outcome = self.group.propose(self.lease.term(), command).await?;
        let took = self.clock.now().since(started);
        self.metrics.take_seconds.observe(took, 1);
        self.metrics.take_entries.inc();
        self.metrics.takes.inc_by(takes.len() as u64);
        Ok((takes, outcome))
    }

    /// Tells the calls of an entry what they got.
    ///
    /// # Errors
    /// Why the term must end.
    fn answer(
        &self,
        entry: Vec<Waiting>,
        proposed: Result<(Vec<Take>, Outcome), ProposeError>,
    ) -> Result<(), String> {
        let (not_taken, why) = match proposed {
            Ok((takes, Outcome::Took(answers))) => {
                debug_assert_eq!(takes.len(), answers.len(), "every take has an answer");
                let mut given = takes.iter().zip(answers);
                for (reply, takes) in entry {
                    let given = given.by_ref().take(takes);
                    let given = given.map(|(take, taken)| self.give(take, taken));
                    // If the caller has gone, what it was given comes back and counts as skipped.
                    drop(reply.send(Ok(given.collect())));
                }
                return Ok(());
            }
            // The term may not write: the entry did nothing.
            Ok((_, Outcome::Refused(refused))) => (NotTaken::NotProposed, refused.to_string()),
            Ok((_, outcome)) => (NotTaken::Unknown, format!("the answer was {outcome:?}")),
            Err(error @ ProposeError::NotLeader(_)) => (NotTaken::NotProposed, error.to_string()),
            Err(error) => (NotTaken::Unknown, error.to_string()),
        };
        for (reply, _) in entry {
            // The caller may have gone.
            let _ = reply.send(Err(not_taken));
        }
        Err(why)
    }

    /// What a call is given for a take. Numbers that were taken under a request id are handed out, whether or not
    /// this caller is still there: whoever asks again gets them.
    fn give(&self, take: &Take, taken: Taken) -> Given {
        let delivery = |taken, numbers| Delivery::new(taken, numbers, self.metrics.clone());
        match taken {
            Taken::Range(range) if take.request.is_none() => Ok(delivery(Ok(range), take.count)),
            Taken::Range(range) => {
                self.metrics.numbers.inc_by(take.count);
                Ok(delivery(Ok(range), 0))
            }
            Taken::Repeated(range) => {
                self.metrics.requests_repeated.inc();
                Ok(delivery(Ok(range), 0))
            }
            Taken::Exhausted { left } => Ok(delivery(Err(Shortage::Exhausted { left }), 0)),
            Taken::OverQuota { keys_max } => Ok(delivery(Err(Shortage::OverQuota { keys_max }), 0)),
            Taken::NoNamespace => Err(Refused::NoNamespace),
            Taken::Reused(used) => Err(Refused::Reused(used)),
            Taken::IdsFull { ids_max } => Err(Refused::IdsFull(ids_max)),
        }
    }

    /// A planted bug: answers what the entry will come to if nothing goes wrong.
    fn answer_before_commit(&self, entry: Vec<Waiting>, takes: &[Take]) {
        let mut records = std::collections::BTreeMap::new();
        let namespaces = self.group.view().namespaces();
        let mut guess = |take: &Take| {
            let namespace = namespaces.by_id(take.section.namespace);
            let namespace = namespace.ok_or(Refused::NoNamespace)?;
            let before = records.get(&take.section).copied();
            let read = || self.group.view().section(&take.section).unwrap_or_default();
            let progression = namespace.config.progression();
            let taken = before.unwrap_or_else(read).take(progression, 0, take.count);
            let taken = taken.map(|(record, range)| {
                records.insert(take.section.clone(), record);
                range
            });
            let taken = taken.map_err(|left| Shortage::Exhausted { left });
            Ok(Delivery::new(taken, take.count, self.metrics.clone()))
        };
        let mut takes = takes.iter();
        for (reply, count) in entry {
            let given = takes.by_ref().take(count).map(&mut guess).collect();
            drop(reply.send(Ok(given)));
        }
    }
}

//! Gapless keys: one task for each term proposes what callers take. Calls that arrive while an entry is under way are
//! collected into the next one, which does not wait for the others if it has many takes.
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
//! Invariant: each call is in one entry, and is told what it got, that it was not proposed, or that its outcome is not
//! known.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::sync::{mpsc, oneshot};

use super::held::{Delivery, Shortage};
use crate::{
    clock::{Clock, Instant},
    consensus::{Group, ProposeError, TermLease},
    metrics::Metrics,
    planted_bugs::{Bug, is_planted},
    sequence::{Command, Outcome, Remembered, Remembering, Take, Taken},
};

/// An entry lets no further call in once it has so many takes. It then has some 250 KB; 1.4 MB with the longest names and
/// ids.
const ENTRY_TAKES_MAX: usize = 4_096;
/// So many entries are under way at most. While one reaches the disks, another is sent to the peers, and a third one is
/// applied.
const ENTRIES_MAX: usize = 4;
/// While entries are under way, the next one is proposed only once it has so many takes: an entry costs the leader as
/// much CPU as some five takes.
const ENTRY_TAKES_MIN: usize = 32;
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
    let mut under_way = FuturesUnordered::new();
    let mut next = Entry::default();
    loop {
        tokio::select! {
            biased;
            () = taker.lease.wait_until(TermLease::is_void) => break,
            Some(answered) = under_way.next() => if taker.end_term_on_failure(answered) {
                break;
            },
            call = calls.recv(), if next.takes < ENTRY_TAKES_MAX => match call {
                Some(call) => next.add_all(call, &mut calls),
                None => break,
            },
        }
        let may_go = match under_way.len() {
            0 => next.takes > 0,
            under_way => under_way < ENTRIES_MAX && next.takes >= ENTRY_TAKES_MIN,
        };
        if may_go {
            let (waiting, takes) = std::mem::take(&mut next).begin();
            if !takes.is_empty() {
                let remembering = taker.remembering(&mut counted, takes.len());
                under_way.push(taker.take(waiting, remembering, takes));
            }
        }
    }
    // What waits is told at once, and may ask the next leader. What is under way may still be committed.
    next.refuse();
    refuse_waiting(&mut calls);
    while let Some(answered) = under_way.next().await {
        taker.end_term_on_failure(answered);
    }
}

/// A call that waits for its entry: where its answer goes, and how many takes it has.
type Waiting = (oneshot::Sender<Result<Vec<Given>, NotTaken>>, usize);

/// Calls that are to be proposed together.
#[derive(Default)]
struct Entry {
    calls: Vec<Call>,
    /// How many takes they have.
    takes: usize,
}

impl Entry {
    /// Adds a call, and those that wait behind it, as long as there is room.
    fn add_all(&mut self, first: Call, calls: &mut mpsc::UnboundedReceiver<Call>) {
        let mut next = Some(first);
        while let Some(call) = next {
            self.takes += call.takes.len();
            self.calls.push(call);
            next = match self.takes < ENTRY_TAKES_MAX {
                true => calls.try_recv().ok(),
                false => None,
            };
        }
    }

    /// Who waits for an answer, and the takes of all of them, in their order. A caller that has gone takes nothing.
    fn begin(self) -> (Vec<Waiting>, Vec<Take>) {
        let mut takes = Vec::with_capacity(self.takes);
        let there = self.calls.into_iter().filter(|call| !call.reply.is_closed());
        let waiting = there.map(|call| {
            let count = call.takes.len();
            takes.extend(call.takes);
            (call.reply, count)
        });
        (waiting.collect(), takes)
    }

    /// Tells the calls that nothing was proposed.
    fn refuse(self) {
        for call in self.calls {
            // The caller may have gone.
            let _ = call.reply.send(Err(NotTaken::NotProposed));
        }
    }
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
    /// Proposes an entry, and tells its calls what they got.
    ///
    /// # Errors
    /// Why the term must end.
    async fn take(
        &self, calls: Vec<Waiting>, remembering: Remembering, takes: Vec<Take>,
    ) -> Result<(), String> {
        if is_planted(Bug::GaplessAnsweredBeforeCommit) {
            self.answer_before_commit(calls, &takes);
            let _ = self.propose(remembering, takes).await;
            return Ok(());
        }
        let proposed = self.propose(remembering, takes).await;
        self.answer(calls, proposed)
    }

    /// If an entry failed, the term may not write: nobody can take numbers in it, and it ends, as in the bumper. True if so.
    fn end_term_on_failure(&self, answered: Result<(), String>) -> bool {
        let Err(why) = answered else {
            return false;
        };
        tracing::info!(
            term = self.lease.term(),
            why,
            "no more numbers of gapless keys in this term"
        );
        self.lease.void();
        true
    }

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
        &self, remembering: Remembering, takes: Vec<Take>,
    ) -> Result<(Vec<Take>, Outcome), ProposeError> {
        let started = self.clock.now();
        let command =
            Command::Take { remembering, takes: takes.clone(), now_ms: self.clock.wall_ms() };
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
        &self, calls: Vec<Waiting>, proposed: Result<(Vec<Take>, Outcome), ProposeError>,
    ) -> Result<(), String> {
        let (not_taken, why) = match proposed {
            Ok((takes, Outcome::Took(answers))) => {
                debug_assert_eq!(takes.len(), answers.len(), "every take has an answer");
                let mut given = takes.iter().zip(answers);
                for (reply, takes) in calls {
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
        for (reply, _) in calls {
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
    fn answer_before_commit(&self, calls: Vec<Waiting>, takes: &[Take]) {
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
        for (reply, count) in calls {
            let given = takes.by_ref().take(count).map(&mut guess).collect();
            drop(reply.send(Ok(given)));
        }
    }
}

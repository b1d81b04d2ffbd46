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
//! # Asking again
//!
//! An entry whose outcome is not known may be applied later. It is never proposed again from here: without a request
//! id, numbers would be committed that nobody is given.
//!
//! # The end of the term
//!
//! Once the gate is closed nothing more is proposed: a handover waits for the entries under way, and for no call behind
//! them. These are told so, and ask the next leader.
//!
//! Invariant: each call is in one entry, and is told what it got, that it was not proposed, or that it may be done.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::sync::{mpsc, oneshot};

use crate::{
    allocator::{
        held_numbers::Delivery,
        memory::Memory,
        outcome::{Unserved, UsedId, Why},
    },
    clock::{Clock, Instant},
    consensus::{Group, ProposeError, TermLease},
    metrics::NamespaceCounts,
    planted_bugs::{Bug, is_planted},
    sequence::{
        Command, EntryOutcome, FirstUse, Key, MessagePart, NoRoom, PartTaken, Remembering,
        SectionId, SectionKey, Taken,
    },
    storage::LowDisk,
};

/// An entry with this many takes lets no further call in. It then has some 250 KB; 1.4 MB with the longest names and
/// ids.
const ENTRY_TAKES_MAX: usize = 4_096;
/// How many entries are under way at most. While one reaches the disks, another is sent to the peers, and a third one is
/// applied.
const ENTRIES_MAX: usize = 4;
/// While entries are under way, the next one is proposed only once it has this many takes: an entry costs the leader as
/// much CPU as some five takes.
const ENTRY_TAKES_MIN: usize = 32;
/// How many ids an entry forgets beyond two for each that it may add.
const FORGET_MIN: u64 = 16;

/// How request ids are remembered, and how much one call may take.
#[derive(Debug, Clone, Copy)]
pub struct GaplessLimits {
    /// For how long ids are remembered whose messages state no retry window.
    pub keep: Duration,
    /// How many bytes of ids are remembered at most.
    pub bytes_max: u64,
    /// The most numbers of a key in one call. A namespace may allow fewer.
    pub count_max: u64,
}

/// A call that takes numbers of one gapless key or of many.
pub struct TakeCall {
    /// The part of the message that it takes.
    pub part: MessagePart,
    /// Where it waits.
    pub reply: TakeReply,
}

/// Where the answer of a call goes that waits for its entry: what it gets for each of its takes, in order.
type TakeReply = oneshot::Sender<Result<Vec<Delivery>, Unserved>>;

/// The parts of the term that the task works with.
pub struct Taker {
    /// The memory of the term, which has its gate.
    pub memory: Arc<Memory>,
    /// Where it proposes.
    pub group: Arc<Group>,
    /// The lease of the term.
    pub lease: Arc<TermLease>,
    /// The node's clock.
    pub clock: Arc<dyn Clock>,
    /// How request ids are remembered, and how much one call may take.
    pub limits: GaplessLimits,
}

/// Serves one term's calls until the term is closed, dropped or lost.
pub async fn run(taker: Taker, mut calls: mpsc::UnboundedReceiver<TakeCall>) {
    // Up to when the term's time is part of the table's clock.
    let mut counted = taker.clock.now();
    let mut under_way = FuturesUnordered::new();
    let mut next = GaplessEntry::default();
    let mut closed = pin!(taker.memory.gate().closed());
    loop {
        tokio::select! {
            biased;
            () = taker.lease.until_void() => break,
            () = &mut closed => break,
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
            let (waiting, parts) = std::mem::take(&mut next).begin();
            if !parts.is_empty() {
                let remembering = taker.remembering(&mut counted, parts.len());
                under_way.push(taker.take(waiting, remembering, parts));
            }
        }
    }
    // Calls that wait are told at once, and may ask the next leader. The entry that is under way may still be committed.
    next.refuse();
    refuse_waiting(&mut calls);
    while let Some(answered) = under_way.next().await {
        taker.end_term_on_failure(answered);
    }
}

/// Calls that are to be proposed together.
#[derive(Default)]
struct GaplessEntry {
    calls: Vec<TakeCall>,
    /// How many takes they have.
    takes: usize,
}

impl GaplessEntry {
    /// Adds a call, and those that wait behind it, as long as there is room.
    fn add_all(&mut self, first: TakeCall, calls: &mut mpsc::UnboundedReceiver<TakeCall>) {
        let mut next = Some(first);
        while let Some(call) = next {
            self.takes += call.part.takes.len();
            self.calls.push(call);
            next = match self.takes < ENTRY_TAKES_MAX {
                true => calls.try_recv().ok(),
                false => None,
            };
        }
    }

    /// The calls that wait for an answer, and the part that each takes, in their order. A caller that has gone takes nothing.
    fn begin(self) -> (Vec<TakeReply>, Vec<MessagePart>) {
        let there = self.calls.into_iter().filter(|call| !call.reply.is_closed());
        there.map(|call| (call.reply, call.part)).unzip()
    }

    /// Tells the calls that nothing was proposed.
    fn refuse(self) {
        for call in self.calls {
            // The caller may have gone.
            let _ = call.reply.send(Err(Why::AskLeader.into()));
        }
    }
}

/// Tells the calls that wait that nothing was proposed, and lets no call in any more.
fn refuse_waiting(calls: &mut mpsc::UnboundedReceiver<TakeCall>) {
    calls.close();
    while let Ok(call) = calls.try_recv() {
        // The caller may have gone.
        let _ = call.reply.send(Err(Why::AskLeader.into()));
    }
}

impl Taker {
    /// Proposes an entry, and tells its calls what they got.
    ///
    /// # Errors
    /// Why the term must end.
    async fn take(
        &self, calls: Vec<TakeReply>, remembering: Remembering, parts: Vec<MessagePart>,
    ) -> Result<(), String> {
        if is_planted(Bug::GaplessAnsweredBeforeCommit) {
            self.answer_before_commit(calls, &parts);
            let _ = self.propose(remembering, parts).await;
            return Ok(());
        }
        let (parts, proposed) = self.propose(remembering, parts).await;
        self.answer(calls, &parts, proposed)
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
    fn remembering(&self, counted: &mut Instant, parts: usize) -> Remembering {
        let elapsed_ms = self.clock.now().since(*counted).as_millis() as u64;
        *counted = counted.after(Duration::from_millis(elapsed_ms));
        Remembering {
            elapsed_ms,
            keep_ms: match is_planted(Bug::RequestIdForgotten) {
                false => self.limits.keep.as_millis() as u64,
                true => 0,
            },
            bytes_max: self.limits.bytes_max,
            forget_max: 2 * parts as u64 + FORGET_MIN,
        }
    }

    #[tracing::instrument(level = "debug", name = "propose", skip_all, fields(term = self.lease.term(), parts = parts.len()))]
    async fn propose(
        &self, remembering: Remembering, parts: Vec<MessagePart>,
    ) -> (Vec<MessagePart>, Result<EntryOutcome, ProposeError>) {
        let (started, entry) = (self.clock.now(), self.memory.begin_entry());
        let low = self.group.view.limiting_disk();
        let no_room = low.map(|LowDisk { free_mb, reserve_mb, .. }| NoRoom { free_mb, reserve_mb });
        let (parts_sent, now_ms) = (parts.clone(), self.clock.wall_ms());
        let count_max = self.limits.count_max;
        let command = Command::Take { remembering, parts: parts_sent, no_room, count_max, now_ms };
        let proposed = self.group.propose(self.lease.term(), command).await;
        if proposed.is_err() {
            return (parts, proposed);
        }
        let took = self.clock.now().since(started);
        self.memory.entry_ended(entry);
        self.memory.set_metrics().take_seconds.observe(took, 1);
        self.memory.set_metrics().take_entries.inc();
        let takes = parts.iter().map(|part| part.takes.len() as u64).sum();
        self.memory.set_metrics().takes.inc_by(takes);
        (parts, proposed)
    }

    /// Tells the calls of an entry what they got.
    ///
    /// # Errors
    /// Why the term must end.
    fn answer(
        &self, calls: Vec<TakeReply>, parts: &[MessagePart],
        proposed: Result<EntryOutcome, ProposeError>,
    ) -> Result<(), String> {
        let (may_be_taken, why) = match proposed {
            // Every part has an answer.
            Ok(EntryOutcome::Took(answers)) if parts.len() == answers.len() => {
                for (reply, (part, taken)) in calls.into_iter().zip(parts.iter().zip(answers)) {
                    // If the caller has gone, what it was given comes back and counts as skipped.
                    drop(reply.send(self.give(part, taken)));
                }
                return Ok(());
            }
            // The term may not write: the entry did nothing.
            Ok(EntryOutcome::Refused(refused)) => (false, refused.to_string()),
            Ok(outcome) => (true, format!("the answer was {outcome:?}")),
            Err(error) => (!matches!(error, ProposeError::NotLeader(_)), error.to_string()),
        };
        for (reply, part) in calls.into_iter().zip(parts) {
            let may_be_done = if may_be_taken { part.takes.len() } else { 0 };
            // The caller may have gone.
            let _ = reply.send(Err(Unserved { why: Why::AskLeader, may_be_done }));
        }
        Err(why)
    }

    /// The numbers that a call is given for its part of a message.
    fn give(&self, part: &MessagePart, taken: PartTaken) -> Result<Vec<Delivery>, Unserved> {
        let counts = self.memory.counts_of(part.namespace).shared();
        let taken = match taken {
            PartTaken::Taken(taken) => taken,
            PartTaken::Repeated(taken) => {
                self.memory.set_metrics().requests_repeated.inc();
                return Ok(taken
                    .into_iter()
                    .map(|taken| self.delivery(taken, 0, &counts))
                    .collect());
            }
            // A caller that asks again is told that it does not exist.
            PartTaken::NoNamespace => return Err(Why::AskLeader.into()),
            PartTaken::Reused(used) => return Err(Why::Reused(used.map(used_id)).into()),
            PartTaken::IdsFull(full) => return Err(Why::IdsFull(Box::new(full)).into()),
            PartTaken::Expired { made_ms, clock_ms } => {
                return Err(Why::IdExpired { made_ms, clock_ms }.into());
            }
        };
        assert_eq!(part.takes.len(), taken.len(), "each take has an answer");
        let given = part.takes.iter().zip(taken).map(|(take, taken)| {
            if let Taken::Range(range) = &taken {
                assert_eq!(
                    (range.last - range.first) / range.increment + 1,
                    take.count,
                    "{take:?} has an answer of another length: {range:?}"
                );
            }
            // Numbers that were taken under a request id are handed out, whether or not this caller is still there:
            // a caller that asks again gets them.
            let is_kept = part.id.is_some() && matches!(taken, Taken::Range(_));
            counts.hand_out(if is_kept { take.count } else { 0 }, 0);
            self.delivery(taken, if is_kept { 0 } else { take.count }, &counts)
        });
        Ok(given.collect())
    }

    /// The answer to a take, of which `count` numbers count as skipped if nobody accepts them.
    fn delivery(&self, taken: Taken, count: u64, counts: &Arc<NamespaceCounts>) -> Delivery {
        let taken = match taken {
            Taken::Range(range) => Ok(range),
            Taken::Exhausted { left } => Err(Why::Exhausted { left }),
            Taken::NoRoom(NoRoom { free_mb, reserve_mb }) => {
                // The entry says how much room there was, and not where. So the disk that is low now is told of, with its own
                // figures. If none is low any more, the entry's figures are told as those of the leader's disk.
                let low = LowDisk { free_mb, reserve_mb, follower: None };
                Err(Why::LowDisk(self.group.view.limiting_disk().unwrap_or(low)))
            }
            Taken::OverKeysMax { keys_max } => Err(Why::OverKeysMax { keys_max }),
            Taken::TooLarge { count_max } => Err(Why::TooLarge { count_max }),
            Taken::LeftOut => Err(Why::LeftOut),
        };
        Delivery::new(taken, count, counts.clone())
    }

    /// A planted bug: answers what the entry will come to if nothing goes wrong.
    fn answer_before_commit(&self, calls: Vec<TakeReply>, parts: &[MessagePart]) {
        let mut records = std::collections::BTreeMap::new();
        let namespaces = self.group.view.namespaces();
        let mut guess = |part: &MessagePart| {
            let namespace = namespaces.by_id(part.namespace).ok_or(Why::AskLeader)?;
            let counts = self.memory.counts(namespace).shared();
            let progression = namespace.config.progression();
            let taken = part.takes.iter().map(|take| {
                let section = SectionId { namespace: part.namespace, key: take.section.clone() };
                let read = || self.group.view.section(&section).unwrap_or_default();
                let before = records.get(&section).copied().unwrap_or_else(read);
                let taken = match before.take(progression, 0, take.count) {
                    Ok((record, range)) => {
                        records.insert(section, record);
                        Taken::Range(range)
                    }
                    Err(left) => Taken::Exhausted { left },
                };
                self.delivery(taken, take.count, &counts)
            });
            Ok(taken.collect())
        };
        for (reply, part) in calls.into_iter().zip(parts) {
            drop(reply.send(guess(part)));
        }
    }
}

/// The request that a request id was used for.
fn used_id(FirstUse { keys, first }: FirstUse) -> Box<UsedId> {
    let key = match first.section {
        SectionKey::Id(id) => Key::Id(id).into(),
        SectionKey::Name(name) => Key::Name(&name).into(),
    };
    Box::new(UsedId { keys, key, count: first.count })
}

//! The actions that can happen next, and how each changes the state.

use crate::{
    ledger::*,
    record::{Age, Chunk},
    rules::{Margin::*, *},
    state::*,
};
use Act::*;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    /// A node is elected, and logs its first entry. (`tell` puts every action into words.)
    Elect(usize),
    BeginEpoch(usize),
    CatchUp(usize),
    Apply(usize),
    Read(usize),
    Use(usize),
    Bump(usize, u8),
    Checkpoint(usize),
    Take(usize),
    Close(usize),
    Leave(usize),
    Send(usize, usize),
    LogHandOff(usize, usize),
    Trim(usize),
    ReturnEpoch(usize),
    Reopen(usize),
    Abandon(usize),
    Restart(usize),
    RaiseMax,
    Release(usize),
    Raise(usize),
    Delete(usize),
    BeginFill(usize),
    EndFill(usize),
    TakeGapless(usize),
}

impl Rules {
    /// Carries out one action; `None` if it is not possible.
    pub fn act(&self, state: &mut State, act: Act) -> Option<()> {
        match act {
            Elect(n) => self.elect(state, n),
            BeginEpoch(n) => self.begin_epoch(state, n),
            CatchUp(n) => self.catch_up(state, n),
            Apply(n) => self.apply(state, n),
            Read(n) => self.read(state, n),
            Use(n) => self.use_record(state, n),
            Bump(n, step) => self.bump(state, n, step),
            Checkpoint(n) => self.checkpoint(state, n),
            Take(n) => self.take(state, n),
            Close(n) => self.close(state, n),
            Leave(n) => self.leave(state, n),
            Send(n, to) => self.send(state, n, to),
            LogHandOff(n, successor) => self.hand_off(state, n, successor),
            Trim(n) => self.trim(state, n),
            ReturnEpoch(n) => self.return_epoch(state, n),
            Reopen(n) => self.reopen(state, n),
            Abandon(n) => self.abandon(state, n),
            Restart(n) => self.restart(state, n),
            RaiseMax => {
                state.table.max = u8::MAX;
                Some(())
            }
            Release(n) => self.release(state, n),
            Raise(n) => self.raise(state, n),
            Delete(n) => self.delete(state, n),
            BeginFill(n) => self.begin_fill(state, n),
            EndFill(n) => self.end_fill(state, n),
            TakeGapless(n) => self.take_gapless(state, n),
        }
    }

    /// A node is elected. It knows all that is committed, and may have applied less.
    fn elect(&self, state: &mut State, n: usize) -> Option<()> {
        possible(state.term < self.terms)?;
        state.term += 1;
        let view = state.view();
        let node = &mut state.nodes[n];
        node.leads = Some(Term::new(state.term, state.handed_out.top));
        node.behind.clear();
        if node.applied != view && self.follows_views() {
            node.behind.push(Committed { answer: None, view });
        }
        self.begin(state, n)
    }

    /// A new leader logs its first entry: it takes over if it holds a memory, and begins an epoch otherwise.
    fn begin(&self, state: &mut State, n: usize) -> Option<()> {
        let end = state.table.ledger.end;
        let held = state.nodes[n].received;
        let leads = state.leads(n)?;
        leads.memory = held.flatten();
        if self.check == Check::Happens(Event::SuccessorWentOn) {
            leads.taken_over = leads.memory.map_or(0, |chunk| chunk.ceiling);
        }
        let handed_off = match held {
            None if !self.keep(TakesOverWhatItHolds) => end.map(|end| end.digest),
            _ => held,
        };
        if self.keep(MemoryUsedOnce) {
            state.nodes[n].received = None;
        }
        let entry =
            handed_off.map_or(Entry::BeginEpoch, |digest| Entry::TakeOver { successor: n, digest });
        self.log(state, n, entry)
    }

    /// A leader that may not take over begins an epoch instead.
    fn begin_epoch(&self, state: &mut State, n: usize) -> Option<()> {
        let leads = state.leads(n)?;
        possible(leads.stage == Stage::Refused)?;
        leads.stage = Stage::Beginning;
        self.log(state, n, Entry::BeginEpoch)
    }

    /// Logs an entry of the leader `n`.
    pub fn log(&self, state: &mut State, n: usize, entry: Entry) -> Option<()> {
        let is_first = state.leads(n)?.stage == Stage::Beginning;
        let outcome = state.log(self, n, entry)?;
        // Only the first entry's leader goes another way if it is refused.
        possible(is_first || outcome != Outcome::Refused)?;
        state.note_write(self, outcome);
        Some(())
    }

    /// A node that does not lead applies all that is committed.
    fn catch_up(&self, state: &mut State, n: usize) -> Option<()> {
        possible(self.follows_views() && state.nodes[n].leads.is_none())?;
        let view = state.view();
        state.nodes[n].apply(self, view, false);
        Some(())
    }

    /// A leader applies the next entry. If it proposed the entry, this is the answer.
    fn apply(&self, state: &mut State, n: usize) -> Option<()> {
        let node = &mut state.nodes[n];
        possible(!node.behind.is_empty())?;
        let Committed { answer, view } = node.behind.remove(0);
        node.apply(self, view, answer.is_some());
        let leads = node.leads.as_mut()?;
        match (leads.stage, answer) {
            (Stage::Beginning, Some(Outcome::Begun(epoch))) => {
                (leads.stage, leads.epoch) = (Stage::Open, epoch);
            }
            (Stage::Beginning, Some(Outcome::Refused)) => {
                (leads.stage, leads.memory, leads.taken_over) = (Stage::Refused, None, 0);
            }
            (_, Some(Outcome::Bumped(chunk))) => leads.memory = Some(grant(leads.memory, chunk)),
            (Stage::Closed, Some(Outcome::Trimmed)) => leads.stage = Stage::Trimmed,
            (_, Some(Outcome::Released)) => {
                (leads.memory, leads.evicting, leads.read) = (None, false, None);
            }
            (_, Some(Outcome::Deleted)) => (leads.memory, leads.read) = (None, None),
            (_, Some(Outcome::Raised(chunk))) => self.raised(state, n, chunk),
            (_, Some(Outcome::Took(number))) => self.took(state, n, number),
            (_, _) => {}
        }
        Some(())
    }

    /// A leader reads the section's record in its own table. `Current` is answered from it as well.
    fn read(&self, state: &mut State, n: usize) -> Option<()> {
        let node = &mut state.nodes[n];
        let leads = node.leads.as_mut()?;
        possible(leads.reads(self) && leads.read.is_none())?;
        if leads.touches(self) {
            // A record in memory is looked at if it is older than the epoch.
            let recent = node.recent.filter(|record| record.epoch < leads.epoch);
            leads.read = Some(recent.unwrap_or(node.applied.record));
        }
        if !self.keep(OwnEpoch) {
            leads.epoch = node.applied.epoch;
        }
        if leads.epoch > 0 && leads.term == state.term && leads.answers_current(self) {
            let current = node.applied.record.used_before(self, leads.epoch);
            state.answer_current(self, n, current);
        }
        Some(())
    }

    /// The record that was read becomes the leader's chunk, if the section is live.
    fn use_record(&self, state: &mut State, n: usize) -> Option<()> {
        let HandedOut { top, top_epoch, .. } = state.handed_out;
        let recent = state.nodes[n].recent;
        let leads = state.nodes[n].leads.as_mut()?;
        possible(leads.serves() && leads.epoch > 0)?;
        let (epoch, read) = (leads.epoch, leads.read?);
        let chunk = read.epoch_chunk(self, epoch)?;
        (leads.read, leads.memory) = (None, Some(chunk));
        if recent == Some(read) {
            state.happens(self, Event::RecentRecordUsed, epoch);
        }
        if (chunk.cur_seq, epoch) == (top, top_epoch) {
            state.happens(self, Event::ReturnedUsed, epoch);
        }
        Some(())
    }

    /// A leader logs a bump: of a section that is not live, or of which less than a step is left.
    fn bump(&self, state: &mut State, n: usize, step: u8) -> Option<()> {
        let bumps = |outcome| matches!(outcome, Outcome::Bumped(_) | Outcome::Raised(_));
        possible(!state.nodes[n].awaits(bumps) && !self.has(Part::Gapless))?;
        let (before, epoch) = (state.table.record, state.table.ledger.epoch);
        possible(before.ceiling(self, epoch) < self.numbers)?;
        let leads = self.writes(state, n)?;
        possible(!(leads.is_abandoned() && self.keep(AbandonedBumpsNothing)))?;
        let left = leads.left();
        match (leads.memory, leads.read) {
            (Some(_), _) => possible(left < step)?,
            // There is nothing to look for: the record's numbers may be used.
            (None, _) if leads.is_abandoned() || !self.keep(ReadBeforeBump) => {}
            (None, read) => possible(read?.epoch_chunk(self, leads.epoch).is_none())?,
        }
        possible(!leads.evicting)?;
        leads.read = leads.read.filter(|_| leads.memory.is_some());
        let numbers = step - left + self.extra;
        let was_released = leads.memory.is_none() && before.floor == before.max_seq;
        self.log(state, n, Entry::Bump { numbers, step })?;
        match before.epoch {
            0 if before.max_seq > 0 => state.happens(self, Event::BumpedOnceDeleted, epoch),
            written if was_released && written == epoch => {
                state.happens(self, Event::BumpedOnceReleased, epoch);
            }
            _ => {}
        }
        if before.age(self, epoch) == Age::NotLive && before.step > 0 {
            state.happens(self, Event::BumpedBeyondK, epoch);
        }
        Some(())
    }

    /// A leader writes a section that it touched in its epoch.
    fn checkpoint(&self, state: &mut State, n: usize) -> Option<()> {
        possible(!self.is_last(state.term))?;
        let View { record, epoch } = state.view();
        possible(matches!(record.age(self, epoch), Age::Live(_)))?;
        let leads = self.writes(state, n)?;
        leads.memory.filter(|_| !leads.evicting)?;
        self.log(state, n, Entry::Checkpoint)?;
        state.happens(self, Event::Checkpointed, epoch);
        Some(())
    }

    /// The term of `n`, if it writes sections: as long as calls are inside, or may come.
    pub fn writes<'a>(&self, state: &'a mut State, n: usize) -> Option<&'a mut Term> {
        self.knows_namespace(state, n)?;
        let leads = state.leads(n)?;
        let late = match leads.stage {
            Stage::Closed | Stage::Trimmed => !self.keep(WritesEndBeforeTrims),
            Stage::Ended => !self.keep(EndsOnce),
            Stage::Beginning | Stage::Refused | Stage::Open | Stage::Abandoned => false,
        };
        possible(leads.serves() || late)?;
        Some(leads)
    }

    /// A call takes a number.
    fn take(&self, state: &mut State, n: usize) -> Option<()> {
        let leads = state.nodes[n].leads.as_mut()?;
        possible(leads.takes(self))?;
        // A memory is lost once the lease is void: a number that is taken then is not answered, so it closes
        // no gap.
        possible(!(leads.is_abandoned() && self.check == Check::Gap))?;
        leads.inside = false;
        state.hand_out(self, n)
    }

    /// A leader closes its gate. A call inside could have taken its steps before the gate closed, too; so one
    /// stays inside only where nobody waits for it.
    fn close(&self, state: &mut State, n: usize) -> Option<()> {
        possible(!self.is_last(state.term))?;
        self.knows_namespace(state, n)?;
        let leads = state.leads(n)?;
        possible(leads.stage == Stage::Open)?;
        leads.stage = Stage::Closed;
        leads.inside = !(self.keep(EmptyToHandOff) && self.keep(EmptyToTrim));
        Some(())
    }

    /// The call inside leaves without a number.
    fn leave(&self, state: &mut State, n: usize) -> Option<()> {
        let leads = state.nodes[n].leads.as_mut()?;
        possible(std::mem::replace(&mut leads.inside, false))
    }

    /// A leader's memory arrives at another node: while it serves, or once its gate is closed.
    fn send(&self, state: &mut State, n: usize, to: usize) -> Option<()> {
        possible(!self.is_last(state.term))?;
        let leads = *state.leads(n)?;
        possible(matches!(leads.stage, Stage::Open | Stage::Closed))?;
        state.nodes[to].received = Some(leads.memory);
        Some(())
    }

    /// A leader names its successor.
    fn hand_off(&self, state: &mut State, n: usize, successor: usize) -> Option<()> {
        let received = state.nodes[successor].received;
        let leads = state.leads(n)?;
        let digest = leads.memory;
        possible(received == Some(digest) || !self.keep(SentWhole))?;
        let trimmed = leads.stage == Stage::Trimmed && !self.keep(TrimsOrSuccessor);
        let lost = leads.is_abandoned() && !self.keep(AbandonedHandsNothingOff);
        possible(leads.stage == Stage::Closed || trimmed || lost || self.ends_again(leads))?;
        possible(!leads.inside || !self.keep(EmptyToHandOff))?;
        let successor = Some(successor);
        self.end(state, n, TermEnd { successor, digest })
    }

    /// A leader that has trimmed all that it touched returns its epoch.
    fn return_epoch(&self, state: &mut State, n: usize) -> Option<()> {
        let leads = state.leads(n)?;
        let needs_no_trim = match leads.memory {
            None => true,
            Some(chunk) if chunk.left() == 0 && !self.keep(UsedUpIsTrimmed) => true,
            Some(_) => !self.keep(TrimsBeforeReturn),
        };
        let trimmed = leads.stage == Stage::Trimmed;
        let lost = leads.is_abandoned() && !self.keep(AbandonedReturnsNothing);
        let untouched = (leads.stage == Stage::Closed || lost) && needs_no_trim;
        possible(trimmed || untouched || self.ends_again(leads))?;
        possible(!leads.inside || !self.keep(EmptyToTrim))?;
        let (successor, digest) = (None, None);
        self.end(state, n, TermEnd { successor, digest })
    }

    fn ends_again(&self, leads: &Term) -> bool {
        leads.stage == Stage::Ended && !self.keep(EndsOnce)
    }

    /// A leader logs its last entry, once nothing is under way.
    fn end(&self, state: &mut State, n: usize, end: TermEnd) -> Option<()> {
        let awaited = |outcome| match outcome {
            Outcome::Bumped(_) => self.keep(BumpsAwaited),
            Outcome::Released => self.keep(ReleaseAwaited),
            Outcome::Trimmed | Outcome::Raised(_) | Outcome::Deleted => true,
            // It is applied before, or refused.
            Outcome::Took(_)
            | Outcome::Checkpointed
            | Outcome::Refused
            | Outcome::Begun(_)
            | Outcome::TermEnded => false,
        };
        possible(!state.nodes[n].awaits(awaited))?;
        state.leads(n)?.stage = Stage::Ended;
        self.log(state, n, Entry::EndTerm(end))
    }

    /// A leader lowers the ceiling to the numbers that it used.
    fn trim(&self, state: &mut State, n: usize) -> Option<()> {
        let awaited = |outcome| match outcome {
            Outcome::Bumped(_) | Outcome::Checkpointed => self.keep(WritesEndBeforeTrims),
            Outcome::Trimmed | Outcome::Raised(_) | Outcome::Released | Outcome::Deleted => true,
            Outcome::Refused | Outcome::Begun(_) | Outcome::TermEnded | Outcome::Took(_) => false,
        };
        possible(!state.nodes[n].awaits(awaited))?;
        let leads = state.leads(n)?;
        possible(!leads.inside || !self.keep(EmptyToTrim))?;
        let lost = leads.is_abandoned() && !self.keep(AbandonedTrimsNothing);
        possible(leads.stage == Stage::Closed || lost || self.ends_again(leads))?;
        let used = match leads.memory {
            Some(chunk) => chunk.cur_seq,
            // The used numbers are not known any more.
            None => lost.then_some(0)?,
        };
        self.log(state, n, Entry::Trim { used })
    }

    /// A leader opens its gate again.
    fn reopen(&self, state: &mut State, n: usize) -> Option<()> {
        possible(!self.keep(ClosedForGood))?;
        let leads = state.nodes[n].leads.as_mut()?;
        possible(leads.stage == Stage::Ended)?;
        leads.stage = Stage::Open;
        Some(())
    }

    /// A leader loses its memory while its term goes on: its lease ended, or a bump of it failed. Its gate is
    /// closed; a call inside may go on.
    fn abandon(&self, state: &mut State, n: usize) -> Option<()> {
        possible(!self.is_last(state.term))?;
        let leads = state.leads(n)?;
        possible(!matches!(leads.stage, Stage::Ended | Stage::Abandoned))?;
        leads.inside = leads.serves();
        (leads.stage, leads.memory, leads.taken_over) = (Stage::Abandoned, None, 0);
        leads.evicting = false;
        Some(())
    }

    /// A node crashes and restarts: it forgets the memory that it was sent, and does not lead any more.
    fn restart(&self, state: &mut State, n: usize) -> Option<()> {
        let node = &mut state.nodes[n];
        node.received.take()?;
        (node.leads, node.recent, node.fill) = (None, None, None);
        Some(())
    }
}

/// Within a term the memory only grows.
pub fn grant(memory: Memory, chunk: Chunk) -> Chunk {
    match memory {
        Some(before) if before.ceiling == chunk.cur_seq => {
            Chunk::above(before.cur_seq, chunk.ceiling)
        }
        Some(before) => Chunk::above(before.cur_seq.max(chunk.cur_seq), chunk.ceiling),
        None => chunk,
    }
}

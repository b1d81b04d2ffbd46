//! Actions.

use crate::{
    rules::{Fence::*, Margin::*, *},
    state::{Phase::*, *},
};
use Act::*;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    /// By so many units on each node's clock. (`tell` says all of them in words.)
    Tick([u8; NODES]),
    Send(usize, usize),
    Deliver(usize),
    Arrive(usize),
    Elect(usize, usize),
    Hear(usize),
    Bump(usize),
    Grant(usize),
    Begin(usize, Kind),
    GoOn(usize),
    Close(usize),
    LogTrim(usize),
    Transfer(usize, usize),
    Reopen(usize),
    Restart(usize),
}

impl Rules {
    /// One step of the world; `None` where it is not possible.
    pub fn act(&self, state: &mut State, act: Act) -> Option<()> {
        match act {
            Tick(rates) => {
                for (node, units) in state.nodes.iter_mut().zip(rates) {
                    node.promise = node.promise.saturating_sub(units);
                    if let Some(leads) = &mut node.leads {
                        leads.lease = leads.lease.saturating_sub(units);
                    }
                    if let Some(message) = &mut node.message {
                        message.age = self.leader_lease.min(message.age + units);
                    }
                }
            }
            Send(n, to) => {
                let leads = *state.leads(n)?;
                possible(leads.phase != Void && leads.term < self.terms)?;
                // Whatever it had sent before is given up for lost.
                let last = state.nodes[n].message;
                state.nodes[n].message = Some(Message {
                    to,
                    age: 0,
                    acknowledged: !self.keep(AckOfItsOwnMessage)
                        && last.is_some_and(|last| last.to == to && last.acknowledged),
                });
            }
            Deliver(n) => {
                let term = state.nodes[n].term;
                let message = state.nodes[n].message.as_mut()?;
                let to = message.to;
                possible(!std::mem::replace(&mut message.acknowledged, true))?;
                possible(state.nodes[to].term <= term)?;
                state.hear_of(self, to, term);
                state.nodes[to].promise = self.follower_lease;
            }
            Arrive(n) => {
                let message = state.nodes[n].message.take()?;
                let leads = state.leads(n)?;
                possible(message.acknowledged && leads.phase != Void)?;
                let sent = self.keep(LeaseSinceSending);
                let age = if sent { message.age } else { 0 };
                leads.lease = leads.lease.max(self.leader_lease - age);
            }
            Elect(winner, voter) => {
                let free = |n: usize| state.nodes[n].promise == 0;
                let stands = free(winner) || !self.keep(CandidateKeepsPromise);
                let told = |(term, to): (u8, usize)| winner == to && state.nodes[to].term <= term;
                let transferred = state.transfer.is_some_and(told);
                possible(state.last_term() < self.terms)?;
                possible(transferred || free(voter) && stands)?;
                state.transfer = state.transfer.filter(|_| !transferred);
                state.elect(self, winner, voter);
            }
            Hear(n) => state.hear_of(self, n, state.last_term()),
            Bump(n) => {
                let leads = state.commits(n)?;
                let old = state.table.max_seq;
                possible(leads.phase == Open && leads.chunk.is_empty())?;
                possible(state.nodes[n].bumped.is_none() && old + STEP <= self.numbers)?;
                state.table = Record {
                    max_seq: old + STEP,
                    floor: state.table.used_before(leads.term),
                    term: leads.term,
                };
                state.nodes[n].bumped = Some(Chunk::above(old, old + STEP));
            }
            Grant(n) => {
                let granted = state.nodes[n].bumped.take()?;
                let chunk = &mut state.nodes[n].leads.as_mut()?.chunk;
                // Within a term the memory only grows.
                *chunk = Chunk::above(granted.cur_seq.max(chunk.cur_seq), granted.ceiling);
            }
            Begin(n, kind) => {
                possible(state.nodes[n].call.is_none())?;
                possible(state.nodes[n].leads?.phase == Open)?;
                state.go_on(self, n, state.begin(n, kind)?)?;
            }
            GoOn(n) => {
                let call = state.nodes[n].call?;
                // A call that does not pass the fence is over as well.
                state.go_on(self, n, call);
            }
            Close(n) => {
                possible(state.handovers < self.handovers)?;
                state.handovers += 1;
                let seen = state.seen;
                let leads = state.leads(n).filter(|leads| leads.phase == Open)?;
                leads.phase = Closed;
                if !leads.chunk.is_empty() {
                    let taken = self.keep(TrimCountsTaken);
                    let used = if taken { leads.chunk.cur_seq } else { seen };
                    state.trim = Some((leads.term, used));
                }
            }
            LogTrim(n) => {
                let (term, used) = state.trim.take()?;
                let logged_in = state.commits(n)?.term;
                possible(logged_in == term || !self.keep(TrimInItsTerm))?;
                let table = &mut state.table;
                if (table.term == logged_in || !self.keep(TrimByOwner)) && used <= table.max_seq {
                    table.max_seq = used.max(table.floor);
                    table.floor = table.max_seq;
                }
            }
            Transfer(n, to) => {
                let open = !self.keep(ClosedToTransfer);
                let leads = state.leads(n)?;
                possible(leads.phase == if open { Open } else { Closed })?;
                if !open {
                    (leads.phase, leads.lease) = (Void, 0);
                }
                state.transfer = Some((leads.term, to));
            }
            Reopen(n) => {
                let leads = state.leads(n).filter(|leads| leads.phase == Void)?;
                possible(!self.keep(ClosedForGood))?;
                leads.phase = Open;
            }
            Restart(n) => {
                possible(state.restarts < self.restarts)?;
                state.restarts += 1;
                let silent = self.keep(SilenceAfterRestart);
                state.nodes[n] = Node {
                    term: state.nodes[n].term,
                    promise: if silent { self.follower_lease } else { 0 },
                    ..Node::default()
                };
            }
        }
        Some(())
    }

    /// Forgets what cannot matter any more, so that fewer states are told apart.
    pub fn forget(&self, state: &mut State) {
        let last = state.last_term() == self.terms;
        let exact = self.keep(LeaseSinceSending) && self.keep(AckOfItsOwnMessage);
        let in_time = |message: &Message| !exact || message.age < self.leader_lease;
        for node in &mut state.nodes {
            // After the last term's election nobody votes, and no timer rules with a quorum fence.
            if last || self.fence == Quorum {
                node.promise = 0;
            }
            // The lease would have run out; a promise that begins so late only hinders elections.
            node.message = node.message.filter(in_time);
        }
    }
}

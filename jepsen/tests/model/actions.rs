//! The actions that can happen next, and how each changes the state.

use crate::{
    rules::{Fence::*, Margin::*, *},
    state::{Phase::*, *},
};
use Act::*;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    /// Each node's clock advances by so many units. (`tell` puts every action into words.)
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
    /// Carries out one action; `None` if it is not possible.
    pub fn act(&self, state: &mut State, act: Act) -> Option<()> {
        match act {
            Tick(rates) => self.tick(state, rates),
            Send(n, to) => self.send(state, n, to),
            Deliver(n) => self.deliver(state, n),
            Arrive(n) => self.arrive(state, n),
            Elect(winner, voter) => self.elect(state, winner, voter),
            Hear(n) => self.hear(state, n),
            Bump(n) => self.bump(state, n),
            Grant(n) => self.grant(state, n),
            Begin(n, kind) => self.begin(state, n, kind),
            GoOn(n) => self.go_on(state, n),
            Close(n) => self.close(state, n),
            LogTrim(n) => self.log_trim(state, n),
            Transfer(n, to) => self.transfer(state, n, to),
            Reopen(n) => self.reopen(state, n),
            Restart(n) => self.restart(state, n),
        }
    }

    /// Time passes on each node's clock.
    fn tick(&self, state: &mut State, units_of: [u8; NODES]) -> Option<()> {
        for (node, units) in state.nodes.iter_mut().zip(units_of) {
            node.promise = node.promise.saturating_sub(units);
            if let Some(leads) = &mut node.leads {
                leads.lease = leads.lease.saturating_sub(units);
            }
            if let Some(message) = &mut node.message {
                message.age = self.leader_lease.min(message.age + units);
            }
        }
        Some(())
    }

    /// A leader sends a heartbeat.
    fn send(&self, state: &mut State, n: usize, to: usize) -> Option<()> {
        let leads = *state.leads(n)?;
        possible(leads.phase != Void && leads.term < self.terms)?;
        // At most one message is under way: the one before it is lost.
        let last = state.nodes[n].message;
        state.nodes[n].message = Some(Message {
            to,
            age: 0,
            acknowledged: !self.keep(AckOfItsOwnMessage)
                && last.is_some_and(|last| last.to == to && last.acknowledged),
        });
        Some(())
    }

    /// A heartbeat arrives. Its receiver acknowledges it and promises to keep out of elections.
    fn deliver(&self, state: &mut State, n: usize) -> Option<()> {
        let term = state.nodes[n].term;
        let message = state.nodes[n].message.as_mut()?;
        let to = message.to;
        possible(!std::mem::replace(&mut message.acknowledged, true))?;
        possible(state.nodes[to].term <= term)?;
        state.hear_of(self, to, term);
        state.nodes[to].promise = self.follower_lease;
        Some(())
    }

    /// An acknowledgement comes back and extends the lease.
    fn arrive(&self, state: &mut State, n: usize) -> Option<()> {
        let message = state.nodes[n].message.take()?;
        let leads = state.leads(n)?;
        possible(message.acknowledged && leads.phase != Void)?;
        let sent = self.keep(LeaseSinceSending);
        let age = if sent { message.age } else { 0 };
        leads.lease = leads.lease.max(self.leader_lease - age);
        Some(())
    }

    /// One node is elected with the vote of another.
    fn elect(&self, state: &mut State, winner: usize, voter: usize) -> Option<()> {
        let free = |n: usize| state.nodes[n].promise == 0;
        let stands = free(winner) || !self.keep(CandidateKeepsPromise);
        let told = |(term, to): (u8, usize)| winner == to && state.nodes[to].term <= term;
        let transferred = state.transfer.is_some_and(told);
        possible(state.last_term() < self.terms)?;
        possible(transferred || free(voter) && stands)?;
        state.transfer = state.transfer.filter(|_| !transferred);
        state.elect(self, winner, voter);
        Some(())
    }

    /// A node hears of the last term.
    fn hear(&self, state: &mut State, n: usize) -> Option<()> {
        state.hear_of(self, n, state.last_term());
        Some(())
    }

    /// A leader's bump is applied.
    fn bump(&self, state: &mut State, n: usize) -> Option<()> {
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
        Some(())
    }

    /// The chunk of a bump becomes the leader's.
    fn grant(&self, state: &mut State, n: usize) -> Option<()> {
        let granted = state.nodes[n].bumped.take()?;
        let chunk = &mut state.nodes[n].leads.as_mut()?.chunk;
        // Within a term the memory only grows.
        *chunk = Chunk::above(granted.cur_seq.max(chunk.cur_seq), granted.ceiling);
        Some(())
    }

    /// A call begins.
    fn begin(&self, state: &mut State, n: usize, kind: Kind) -> Option<()> {
        possible(state.nodes[n].call.is_none())?;
        possible(state.nodes[n].leads?.phase == Open)?;
        state.go_on(self, n, state.begin(n, kind)?)?;
        Some(())
    }

    /// A paused call goes on. It also ends where it does not pass the fence.
    fn go_on(&self, state: &mut State, n: usize) -> Option<()> {
        let call = state.nodes[n].call?;
        state.go_on(self, n, call);
        Some(())
    }

    /// A leader closes its allocator and proposes a trim.
    fn close(&self, state: &mut State, n: usize) -> Option<()> {
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
        Some(())
    }

    /// The trim is applied in a leader's term.
    fn log_trim(&self, state: &mut State, n: usize) -> Option<()> {
        let (term, used) = state.trim.take()?;
        let logged_in = state.commits(n)?.term;
        possible(logged_in == term || !self.keep(TrimInItsTerm))?;
        let table = &mut state.table;
        if (table.term == logged_in || !self.keep(TrimByOwner)) && used <= table.max_seq {
            table.max_seq = used.max(table.floor);
            table.floor = table.max_seq;
        }
        Some(())
    }

    /// A leader tells another node to take over.
    fn transfer(&self, state: &mut State, n: usize, to: usize) -> Option<()> {
        let open = !self.keep(ClosedToTransfer);
        let leads = state.leads(n)?;
        possible(leads.phase == if open { Open } else { Closed })?;
        if !open {
            (leads.phase, leads.lease) = (Void, 0);
        }
        state.transfer = Some((leads.term, to));
        Some(())
    }

    /// A leader opens its allocator again.
    fn reopen(&self, state: &mut State, n: usize) -> Option<()> {
        let leads = state.leads(n).filter(|leads| leads.phase == Void)?;
        possible(!self.keep(ClosedForGood))?;
        leads.phase = Open;
        Some(())
    }

    /// A node crashes and restarts.
    fn restart(&self, state: &mut State, n: usize) -> Option<()> {
        possible(state.restarts < self.restarts)?;
        state.restarts += 1;
        let silent = self.keep(SilenceAfterRestart);
        state.nodes[n] = Node {
            term: state.nodes[n].term,
            promise: if silent { self.follower_lease } else { 0 },
            ..Node::default()
        };
        Some(())
    }

    /// Forgets the parts of a state that cannot matter any more, so that fewer states are told apart.
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

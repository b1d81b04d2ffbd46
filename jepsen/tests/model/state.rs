//! The state of three nodes, and how Raft changes it.

use crate::rules::{Margin::*, *};

pub const NODES: usize = 3;
/// By how much one bump raises `max_seq`.
pub const STEP: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct State {
    pub nodes: [Node; NODES],
    /// The applied table: the entries that a majority has logged.
    pub table: Record,
    /// A trim that was proposed: its term, and the number down to which it trims.
    pub trim: Option<(u8, u8)>,
    /// A message under way that lets a node campaign at once: the term in which it was sent, and its receiver.
    pub transfer: Option<(u8, usize)>,
    pub restarts: u8,
    pub handovers: u8,
    /// The numbers that were handed out, as bits, and the greatest answer of any call.
    pub answered: u16,
    pub seen: u8,
    pub broken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Node {
    /// The last term that it voted in or heard of: on disk.
    pub term: u8,
    /// For how long it keeps out of elections.
    pub promise: u8,
    pub leads: Option<Term>,
    /// The answer of apply to its bump, on its way.
    pub bumped: Option<Chunk>,
    pub call: Option<Call>,
    pub message: Option<Message>,
}

/// A term's allocator and lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Term {
    pub term: u8,
    pub phase: Phase,
    /// How much is left of it.
    pub lease: u8,
    pub chunk: Chunk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Phase {
    #[default]
    Open,
    Closed,
    Void,
}

/// The numbers above `cur_seq` up to `ceiling` can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Chunk {
    pub cur_seq: u8,
    pub ceiling: u8,
}

/// A message of a leader to `to`, or its acknowledgement, `age` after it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    pub to: usize,
    pub age: u8,
    pub acknowledged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Call {
    pub kind: Kind,
    pub term: u8,
    /// How many of its steps it has done.
    pub done: usize,
    /// The greatest answer when it began.
    pub seen: u8,
    pub value: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Record {
    pub max_seq: u8,
    /// The value of `max_seq` when `term` first bumped it.
    pub floor: u8,
    pub term: u8,
}

impl Chunk {
    pub fn above(cur_seq: u8, ceiling: u8) -> Self {
        Chunk { cur_seq, ceiling }
    }

    pub fn is_empty(self) -> bool {
        self.cur_seq >= self.ceiling
    }
}

impl Record {
    pub fn used_before(self, term: u8) -> u8 {
        let own = self.term == term;
        if own { self.floor } else { self.max_seq }
    }
}

impl State {
    pub fn last_term(&self) -> u8 {
        self.nodes.iter().map(|node| node.term).max().unwrap_or(0)
    }

    /// The term that `n` leads, unless it has voted in a later one.
    pub fn leads(&mut self, n: usize) -> Option<&mut Term> {
        let node = &mut self.nodes[n];
        node.leads.as_mut().filter(|leads| leads.term == node.term)
    }

    /// The term that a call belongs to, unless `n` has lost it.
    pub fn term_of(&mut self, n: usize, call: Call) -> Option<&mut Term> {
        let leads = self.nodes[n].leads.as_mut();
        leads.filter(|leads| leads.term == call.term)
    }

    /// Whether another node follows `n` in `term`: the two are a majority.
    pub fn followed(&self, n: usize, term: u8) -> bool {
        (0..NODES).any(|p| p != n && self.nodes[p].term == term)
    }

    /// The term in which `n` can commit its entries.
    pub fn commits(&self, n: usize) -> Option<Term> {
        let leads = self.nodes[n].leads?;
        let committing = leads.term == self.nodes[n].term && self.followed(n, leads.term);
        committing.then_some(leads)
    }

    /// Drops the term: memory, lease, awaited answers, and the calls that it will not let pass.
    pub fn drop_term(&mut self, rules: &Rules, n: usize) {
        let node = &mut self.nodes[n];
        node.leads = None;
        node.bumped = node.bumped.filter(|_| !rules.keep(ChunkInItsTerm));
        node.call = node.call.filter(|call| !rules.steps[call.done..].contains(&Step::Check));
    }

    pub fn hear_of(&mut self, rules: &Rules, n: usize, term: u8) {
        if term > self.nodes[n].term {
            self.nodes[n].term = term;
            self.nodes[n].message = None;
            if rules.keep(LaterTermVoids) {
                self.drop_term(rules, n);
            }
        }
    }

    pub fn elect(&mut self, rules: &Rules, winner: usize, voter: usize) {
        let term = self.last_term() + 1;
        for n in [winner, voter] {
            self.hear_of(rules, n, term);
            self.nodes[n].promise = 0;
        }
        self.drop_term(rules, winner);
        let mut leads = Term { term, ..Term::default() };
        if !rules.keep(ChunkFromApply) {
            let max_seq = self.table.max_seq;
            leads.chunk = Chunk::above(max_seq.saturating_sub(STEP), max_seq);
        }
        self.nodes[winner].leads = Some(leads);
    }
}

//! The state of the nodes: the committed entries, the applied ones, and the leaders' memories.

use crate::{
    ledger::*,
    record::{Chunk, Record},
    rules::{Margin::*, *},
};

pub const NODES_MAX: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct State {
    pub nodes: [Node; NODES_MAX],
    /// The table after all that is committed.
    pub table: Table,
    /// The last term that has a leader.
    pub term: u8,
    pub handed_out: HandedOut,
    /// How often the section was evicted.
    pub releases: u8,
    pub broken: bool,
    /// The epochs in which the event that is looked for happened, as bits.
    pub happened: u8,
}

/// The numbers that were handed out, as far as the check must know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct HandedOut {
    /// The numbers, as bits. Kept for `Check::Unique`.
    pub numbers: u32,
    /// The greatest number.
    pub top: u8,
    /// The epoch that it belongs to. Kept for `Check::Gap` and `Event::ReturnedUsed`.
    pub top_epoch: u8,
    /// How often the section was written since then; 2 is twice or more. Kept for `Check::Gap`.
    pub touches: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Node {
    pub leads: Option<Term>,
    /// A leader's memory that it was sent.
    pub received: Option<Memory>,
    /// The view of a read here: the effect of the entries that the node has applied.
    pub applied: View,
    /// The entries that are committed and not applied here. They are kept for a node with a leader's memory.
    pub behind: Vec<Committed>,
    /// The record that it has in memory, beside its table.
    pub recent: Option<Record>,
    /// The record that was read from its table, to be added to the records in memory.
    pub fill: Option<Record>,
}

/// A committed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Committed {
    /// The answer to this node's own proposal.
    pub answer: Option<Outcome>,
    pub view: View,
}

/// The part of its own table that a leader can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct View {
    pub record: Record,
    pub epoch: u8,
}

/// A leader's memory. A deposed leader keeps it until the node leads again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    pub term: u8,
    pub stage: Stage,
    /// A call is inside the closed gate: it may yet take a number.
    pub inside: bool,
    /// The epoch whose chunks it holds. 0: its first entry is not applied yet.
    pub epoch: u8,
    pub memory: Memory,
    /// The section is evicted, and the answer to its release has not arrived.
    pub evicting: bool,
    /// The section's record was read, and is not used yet.
    pub read: Option<Record>,
    /// The ceiling of the chunk that it took over. Kept for `Event::SuccessorWentOn`.
    pub taken_over: u8,
    /// The greatest number that this term and earlier ones handed out.
    pub seen: u8,
    /// The least number that later terms handed out. 0: none.
    pub below: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Its first entry is logged.
    Beginning,
    /// It was refused.
    Refused,
    Open,
    /// The gate is closed.
    Closed,
    Trimmed,
    /// Its hand-off is logged.
    Ended,
    /// The gate is closed and the memory is lost, while the term goes on.
    Abandoned,
}

impl Stage {
    pub fn is_before_open(self) -> bool {
        matches!(self, Stage::Beginning | Stage::Refused)
    }
}

impl Term {
    pub fn new(term: u8, seen: u8) -> Self {
        Term {
            term,
            stage: Stage::Beginning,
            inside: false,
            epoch: 0,
            memory: None,
            evicting: false,
            read: None,
            taken_over: 0,
            seen,
            below: 0,
        }
    }

    /// Calls are inside, or may come.
    pub fn serves(&self) -> bool {
        self.stage == Stage::Open || self.inside
    }

    pub fn is_abandoned(&self) -> bool {
        self.stage == Stage::Abandoned
    }

    /// A record that is read can become its chunk.
    pub fn touches(&self, rules: &Rules) -> bool {
        let is_untouched = self.memory.is_none() || !rules.keep(TouchOnce);
        is_untouched && !(self.is_abandoned() && rules.keep(AbandonedTouchesNothing))
    }

    /// Whether its answer to `Current` can come from a record.
    pub fn answers_current(&self, rules: &Rules) -> bool {
        !(self.is_abandoned() && rules.keep(AbandonedAnswersNoCurrent))
    }

    /// A record that is read now can matter.
    pub fn reads(&self, rules: &Rules) -> bool {
        let for_current = self.is_abandoned() && self.answers_current(rules);
        let early = !rules.keep(ReadAfterOwnEntry) && self.stage == Stage::Beginning;
        (self.touches(rules) || for_current) && (early || self.serves())
    }

    /// A call takes numbers of its memory.
    pub fn takes(&self, rules: &Rules) -> bool {
        self.serves() && !(self.evicting && rules.keep(NothingTakenWhileEvicting))
    }

    /// How many numbers it can take before the next chunk.
    pub fn left(&self) -> u8 {
        self.memory.map_or(0, Chunk::left)
    }
}

impl Node {
    /// An own proposal with such an outcome is committed, and its answer has not arrived.
    pub fn awaits(&self, which: impl Fn(Outcome) -> bool) -> bool {
        let mut answers = self.behind.iter().flat_map(|entry| entry.answer);
        answers.any(which)
    }

    /// Applies a committed entry. `by_itself`: it proposed the entry.
    pub fn apply(&mut self, rules: &Rules, view: View, by_itself: bool) {
        let is_written = self.applied.record != view.record;
        self.applied = view;
        if !(rules.has(Part::RecentRecords) && is_written) {
            return;
        }
        // The memory of a term knows what the term writes: a record is not added, but a record that is there is replaced.
        if !by_itself || (self.recent.is_some() && rules.keep(WrittenReplaces)) {
            self.recent = Some(view.record);
        }
        if rules.keep(FillLooksAgain) {
            self.fill = None;
        }
    }
}

impl State {
    pub fn view(&self) -> View {
        View { record: self.table.record, epoch: self.table.ledger.epoch }
    }

    /// The term that `n` leads, if it is the last one: only then can it log.
    pub fn leads(&mut self, n: usize) -> Option<&mut Term> {
        let last = self.term;
        let leads = self.nodes[n].leads.as_mut();
        leads.filter(|leads| leads.term == last)
    }

    /// Logs an entry of the leader `n`. It is committed at once; its answer arrives later or never.
    pub fn log(&mut self, rules: &Rules, n: usize, entry: Entry) -> Option<Outcome> {
        let term = self.leads(n)?.term;
        let outcome = self.table.apply(rules, term, entry);
        let view = self.view();
        for (m, node) in self.nodes.iter_mut().enumerate() {
            if node.leads.is_some() {
                let answer = (m == n).then_some(outcome);
                node.behind.push(Committed { answer, view });
            }
        }
        Some(outcome)
    }
}

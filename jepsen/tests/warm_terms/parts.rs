//! The actions in the parts of the protocol that most searches leave out ([`Part`]).

use crate::{
    actions::grant,
    ledger::*,
    record::Chunk,
    rules::{Margin::*, *},
    state::*,
};

/// How often the section is evicted. Each release can be followed by a bump of the same numbers, time after time.
const RELEASES_MAX: u8 = 2;

impl Rules {
    /// A leader evicts its section: it logs the numbers that were used of it. Nothing else is under way.
    pub fn release(&self, state: &mut State, n: usize) -> Option<()> {
        possible(self.has(Part::Releases) && state.releases < RELEASES_MAX)?;
        possible(!state.nodes[n].awaits(|answer| !matches!(answer, Outcome::Begun(_))))?;
        let leads = state.leads(n)?;
        possible(leads.stage == Stage::Open && !leads.evicting)?;
        let used = leads.memory?.cur_seq;
        leads.evicting = true;
        state.releases += 1;
        self.log(state, n, Entry::Release { used })
    }

    /// A leader raises a floor to the next number that its term has no chunk of.
    pub fn raise(&self, state: &mut State, n: usize) -> Option<()> {
        possible(self.has(Part::Floors))?;
        let is_bump = |answer| matches!(answer, Outcome::Bumped(_) | Outcome::Raised(_));
        possible(!state.nodes[n].awaits(is_bump))?;
        let (record, epoch) = (state.table.record, state.table.ledger.epoch);
        let ceiling = record.ceiling(self, epoch);
        possible(ceiling < self.numbers)?;
        let leads = self.writes(state, n)?;
        possible(leads.stage == Stage::Open && !leads.evicting)?;
        if leads.memory.is_none() {
            // The record is read first, as before any bump.
            possible(leads.read?.epoch_chunk(self, leads.epoch).is_none())?;
            leads.read = None;
        }
        if !self.keep(RaisedOnceCommitted) {
            self.raised(state, n, Chunk::above(ceiling, ceiling + 1));
            return Some(());
        }
        self.log(state, n, Entry::Raise)?;
        if self.check == Check::Gap {
            // A caller that raises a floor wants these numbers skipped, answered or not.
            state.pass_over(self, n, ceiling + 1);
        }
        Some(())
    }

    /// A floor is raised: all numbers of the chunk, and those before it, are passed over. The leader of the last term
    /// answers that. A deposed one may, too, as long as no later term has answered; then the numbers of that
    /// term lie above the chunk all the same, since it was committed before.
    pub fn raised(&self, state: &mut State, n: usize, chunk: Chunk) {
        let is_last = state.leads(n).is_some();
        if let Some(leads) = &mut state.nodes[n].leads
            && !leads.is_abandoned()
        {
            let granted = grant(leads.memory, chunk);
            leads.memory = Some(Chunk::above(granted.ceiling, granted.ceiling));
            let epoch = leads.epoch;
            state.happens(self, Event::RaisedInTwoEpochs, epoch);
            if is_last && self.check != Check::Gap {
                state.pass_over(self, n, granted.ceiling);
            }
        }
    }

    /// A leader has the namespace deleted, and created again.
    pub fn delete(&self, state: &mut State, n: usize) -> Option<()> {
        possible(self.has(Part::Deletions) && state.table.record.epoch > 0)?;
        // Entries under way are for the old namespace, and are dropped.
        possible(!state.nodes[n].awaits(|_| true))?;
        possible(state.leads(n)?.stage == Stage::Open)?;
        self.log(state, n, Entry::Delete)
    }

    /// The namespace that the leader `n` knows is there. Of one that was deleted it can write nothing, and nobody asks for
    /// its numbers once the leader knows.
    pub fn knows_namespace(&self, state: &State, n: usize) -> Option<()> {
        possible(!state.nodes[n].awaits(|answer| answer == Outcome::Deleted))
    }

    /// A node reads the record in its table, to add it to the records in memory.
    pub fn begin_fill(&self, state: &mut State, n: usize) -> Option<()> {
        possible(self.has(Part::RecentRecords) && !self.is_last(state.term))?;
        let node = &mut state.nodes[n];
        possible(node.leads.is_none() && node.recent.is_none() && node.fill.is_none())?;
        node.fill = Some(node.applied.record).filter(|record| record.max_seq > 0);
        Some(())
    }

    /// The record that was read is added, if there is none in memory.
    pub fn end_fill(&self, state: &mut State, n: usize) -> Option<()> {
        let node = &mut state.nodes[n];
        let read = node.fill.take()?;
        node.recent = node.recent.or(Some(read));
        Some(())
    }

    /// An entry takes a number of a gapless key.
    pub fn take_gapless(&self, state: &mut State, n: usize) -> Option<()> {
        possible(self.has(Part::Gapless))?;
        let View { record, .. } = state.nodes[n].applied;
        let number = state.table.record.ceiling(self, state.table.ledger.epoch) + 1;
        possible(number <= self.numbers)?;
        let leads = state.leads(n)?;
        possible(leads.stage == Stage::Open)?;
        let epoch = leads.epoch;
        if !self.keep(TookOnceCommitted) {
            self.took(state, n, record.ceiling(self, epoch) + 1);
            return Some(());
        }
        self.log(state, n, Entry::Take)?;
        if self.check == Check::Gap {
            // Somebody is given it, or nobody knows of it.
            state.give(self, n, number)?;
        }
        Some(())
    }

    /// The leader learns the number that its entry took, and answers.
    pub fn took(&self, state: &mut State, n: usize, number: u8) {
        let epoch = state.nodes[n].leads.map_or(0, |leads| leads.epoch);
        state.happens(self, Event::TookInTwoEpochs, epoch);
        if self.check != Check::Gap {
            let _ = state.give(self, n, number);
        }
    }
}

//! Forgets the parts of a state that cannot matter any more, so that fewer states are told apart. Where
//! the search looks for a broken promise (`Unique`, `Order`), deposed leaders are kept, so that the
//! transcript shows it.

use crate::{
    ledger::Outcome,
    record::Chunk,
    rules::{Margin::*, *},
    state::*,
};

impl State {
    pub fn forget(&mut self, rules: &Rules) {
        for n in 0..rules.nodes {
            self.forget_deposed(rules, n);
            self.nodes[n].forget_reads(rules);
        }
        if rules.is_last(self.term) {
            for node in &mut self.nodes {
                node.received = None;
                if node.leads.is_none() {
                    (node.recent, node.fill) = (None, None);
                }
            }
        }
        if matches!(rules.check, Check::Strict | Check::Gap) {
            self.rename(rules);
        }
    }

    /// Drops a deposed leader whose numbers cannot break a promise any more.
    fn forget_deposed(&mut self, rules: &Rules, n: usize) {
        let last = self.term;
        let node = &mut self.nodes[n];
        let Some(leads) = node.leads.filter(|leads| leads.term < last) else {
            return;
        };
        for entry in &mut node.behind {
            entry.answer = entry.answer.filter(|answer| match answer {
                Outcome::Begun(_) | Outcome::Bumped(_) | Outcome::Released | Outcome::Took(_) => {
                    true
                }
                // Without these it may take more than it would.
                Outcome::Raised(_) | Outcome::Deleted => false,
                Outcome::Refused
                | Outcome::TermEnded
                | Outcome::Checkpointed
                | Outcome::Trimmed => false,
            });
        }
        let drops = match rules.check {
            // The numbers that it would still take can only fill gaps.
            Check::Gap => true,
            Check::Strict => self.judge_rest(rules, n, leads),
            Check::Unique | Check::Order | Check::Happens(_) => false,
        };
        if drops {
            self.nodes[n].leads = None;
        }
    }

    /// Judges all that a deposed leader may yet take, once later terms have passed it. False before.
    fn judge_rest(&mut self, rules: &Rules, n: usize, leads: Term) -> bool {
        let Some(rest) = self.nodes[n].may_take(rules, &leads) else {
            return false;
        };
        let reach = rest.iter().map(|chunk| chunk.ceiling).max().unwrap_or(0);
        // From now on, all numbers of later terms lie above its reach, or break their own order.
        let mut others = self.nodes.iter().flat_map(|node| &node.leads);
        if others.any(|other| other.term > leads.term && other.seen < reach) {
            return false;
        }
        for chunk in rest {
            self.judge(leads.fits(chunk.cur_seq, chunk.ceiling));
        }
        true
    }

    /// Numbers the nodes by their states: states that differ in the nodes' numbers alone are one.
    fn rename(&mut self, rules: &Rules) {
        let mut order: Vec<usize> = (0..rules.nodes).collect();
        order.sort_by(|&a, &b| self.nodes[b].cmp(&self.nodes[a]));
        if order.is_sorted() {
            return;
        }
        let mut nodes = order.iter().map(|&n| self.nodes[n].clone());
        self.nodes = std::array::from_fn(|_| nodes.next().unwrap_or_default());
        let end = self.table.ledger.end.as_mut();
        if let Some(successor) = end.and_then(|end| end.successor.as_mut()) {
            *successor = order.iter().position(|n| n == successor).unwrap_or(*successor);
        }
    }
}

impl Node {
    /// Forgets records that would only be read, where nothing is read any more.
    fn forget_reads(&mut self, rules: &Rules) {
        let may_forget = self.awaits(|answer| answer == Outcome::Deleted);
        let Some(leads) = &mut self.leads else {
            self.behind.clear();
            if !rules.follows_views() {
                self.applied = View::default();
            }
            return;
        };
        match (rules.check, leads.memory) {
            (Check::Gap, _) => (leads.seen, leads.below) = (0, 0),
            // All that it takes next is greater.
            (Check::Strict, Some(chunk)) => leads.seen = leads.seen.max(chunk.cur_seq),
            (_, _) => {}
        }
        let may_read_later = (leads.stage.is_before_open() && leads.memory.is_none())
            || (may_forget || leads.evicting || rules.has(Part::RecentRecords));
        if !leads.reads(rules) && !may_read_later {
            leads.read = None;
            self.behind.retain(|entry| entry.answer.is_some());
            for entry in &mut self.behind {
                entry.view = View::default();
            }
            self.applied = View::default();
        }
    }

    /// The chunks that a deposed leader may yet take numbers of. `None`: not known yet.
    fn may_take(&self, rules: &Rules, leads: &Term) -> Option<Vec<Chunk>> {
        let begins = |answer| matches!(answer, Outcome::Begun(_));
        let is_open_later = leads.stage == Stage::Beginning && self.awaits(begins);
        possible(!is_open_later)?;
        possible(
            [OwnEpoch, TouchOnce, ClosedForGood].map(|margin| rules.keep(margin)) == [true; 3],
        )?;
        if !leads.serves() {
            return Some(vec![]);
        }
        let bumped = self.behind.iter().filter_map(|entry| match entry.answer? {
            Outcome::Bumped(chunk) => Some(chunk),
            Outcome::Took(number) => Some(Chunk::above(number - 1, number)),
            _ => None,
        });
        let views = self.behind.iter().map(|entry| entry.view);
        let found = views.chain([self.applied]).map(|view| view.record);
        let read = (found.chain(leads.read))
            .filter(|_| leads.touches(rules))
            .filter_map(|record| record.epoch_chunk(rules, leads.epoch));
        let owned = leads.memory.filter(|chunk| chunk.left() > 0 && leads.takes(rules));
        Some(owned.into_iter().chain(bumped).chain(read).collect())
    }
}

//! A caller's request: take, pause, pass the fence, answer.

use crate::{
    rules::{Fence::*, Kind::*, Step::*, *},
    state::{Phase::*, *},
};

impl State {
    pub fn begin(&self, n: usize, kind: Kind) -> Option<Call> {
        Some(Call { kind, term: self.nodes[n].leads?.term, ..Call::default() })
    }

    /// Goes on with a call until it pauses or ends.
    pub fn go_on(&mut self, rules: &Rules, n: usize, mut call: Call) -> Option<Call> {
        self.nodes[n].call = None;
        for step in &rules.steps[call.done..] {
            call.done += 1;
            match step {
                Invoke => call.seen = self.seen,
                Take => call.value = self.take(n, call)?,
                Pause => {
                    self.nodes[n].call = Some(call);
                    break;
                }
                Check => {
                    let leads = *self.term_of(n, call)?;
                    let up = match rules.fence {
                        Lease => leads.lease > 0,
                        Quorum => self.followed(n, leads.term),
                    };
                    // Nobody comes after the last term: its fence cannot matter.
                    possible(leads.phase != Void && (up || leads.term == rules.terms))?;
                }
                Answer => {
                    // `Current` hands nothing out, and may repeat an earlier answer.
                    let next = call.kind == Next;
                    let number = u16::from(next) << call.value;
                    let disordered = call.value < call.seen + u8::from(next);
                    self.broken = disordered || self.answered & number != 0;
                    self.answered |= number;
                    self.seen = self.seen.max(call.value);
                }
            }
        }
        Some(call)
    }

    pub fn take(&mut self, n: usize, call: Call) -> Option<u8> {
        let knows = self.nodes[n].term >= self.table.term;
        let table = self.table;
        match (call.kind, self.term_of(n, call)) {
            (_, Some(leads)) if leads.phase != Open => None,
            (Next, leads) => {
                let leads = leads.filter(|leads| !leads.chunk.is_empty())?;
                leads.chunk.cur_seq += 1;
                Some(leads.chunk.cur_seq)
            }
            (Current, Some(leads)) if leads.chunk.ceiling > 0 => Some(leads.chunk.cur_seq),
            // Its memory holds nothing (any more): a ceiling will do.
            (Current, _) => knows.then_some(table.used_before(call.term)),
        }
    }
}

//! The states that are searched, and the properties that must hold in every state.

use crate::{
    actions::{Act, Act::*},
    rules::{Fence::*, *},
    search::PROMISE,
    state::*,
};
use stateright::{Model, Property};

impl State {
    /// Numbers were handed out above the floor of the last term that bumped, and below.
    fn both_terms(&self) -> bool {
        let Record { floor, term, .. } = self.table;
        term > 1 && self.answered >> floor > 1 && self.answered & ((2 << floor) - 1) > 0
    }

    /// A deposed leader does not know it, and has numbers left.
    fn holds_in_vain(&self) -> bool {
        let deposed = |leads: &Term| leads.term < self.table.term && !leads.chunk.is_empty();
        self.nodes.iter().flat_map(|node| &node.leads).any(deposed)
    }
}

impl Model for Rules {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let mut state = State::default();
        state.elect(self, 0, 1);
        vec![state]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        for n in 0..NODES {
            acts.extend([Deliver(n), Arrive(n), Hear(n), Bump(n), Grant(n), GoOn(n)]);
            acts.extend([Close(n), LogTrim(n), Reopen(n), Restart(n)]);
            acts.extend(self.calls.iter().map(|&kind| Begin(n, kind)));
            for p in (0..NODES).filter(|&p| p != n) {
                acts.extend([Elect(n, p), Transfer(n, p)]);
                if self.fence == Lease {
                    acts.push(Send(n, p));
                }
            }
        }
        // A clock on which nothing runs out need not be drifted.
        let (slow, fast) = self.rates;
        let rates = state.nodes.map(|node| {
            let lease = node.leads.map_or(0, |leads| leads.lease);
            let idle = node.promise == 0 && lease == 0 && node.message.is_none();
            slow..=if idle { slow } else { fast }
        });
        for a in rates[0].clone() {
            for b in rates[1].clone() {
                acts.extend(rates[2].clone().map(|c| Tick([a, b, c])));
            }
        }
    }

    fn next_state(&self, before: &State, act: Act) -> Option<State> {
        let mut state = *before;
        self.act(&mut state, act)?;
        self.forget(&mut state);
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            // Numbers are unique, and in the order of the calls.
            Property::always(PROMISE, |_, state: &State| !state.broken),
            Property::sometimes("two terms answer", |_, state: &State| {
                state.both_terms() && state.holds_in_vain()
            }),
            Property::sometimes("so they do after a restart", |_, state: &State| {
                state.both_terms() && state.restarts > 0
            }),
            // 1 is the first half of the first chunk; where no trim returns 2, it is skipped.
            Property::sometimes("a handover leaves no gap", |_, state: &State| {
                state.both_terms() && state.table.floor == 1 && state.answered & 6 == 6
            }),
        ]
    }
}

//! The states that are searched, and the property that is looked for in every state.

use crate::{
    actions::{Act, Act::*},
    rules::*,
    search::PROMISE,
    state::*,
};
use stateright::{Model, Property};

pub const EVENT: &str = "the event happens";

impl Model for Rules {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let mut state = State::default();
        state.table.max = self.max;
        vec![state]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        acts.push(RaiseMax);
        for n in 0..self.nodes {
            acts.extend([Elect(n), CatchUp(n), Restart(n), BeginFill(n), EndFill(n)]);
            if state.nodes[n].leads.is_none() {
                continue;
            }
            acts.extend([BeginEpoch(n), Apply(n), Read(n), Use(n), Checkpoint(n), Take(n)]);
            acts.extend([Close(n), Leave(n), Trim(n), ReturnEpoch(n), Reopen(n), Abandon(n)]);
            acts.extend([Release(n), Raise(n), Delete(n), TakeGapless(n)]);
            acts.extend(self.steps.iter().map(|&step| Bump(n, step)));
            for to in (0..self.nodes).filter(|&to| to != n) {
                acts.extend([Send(n, to), LogHandOff(n, to)]);
            }
        }
    }

    fn next_state(&self, before: &State, act: Act) -> Option<State> {
        let mut state = before.clone();
        self.act(&mut state, act)?;
        state.forget(self);
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![match self.check {
            Check::Unique | Check::Order | Check::Strict | Check::Gap => {
                Property::always(PROMISE, |_, state: &State| !state.broken)
            }
            Check::Happens(event) => Property::sometimes(
                EVENT,
                match event {
                    Event::EpochChunksUsed | Event::RaisedInTwoEpochs | Event::TookInTwoEpochs => {
                        |_, state: &State| state.happened.count_ones() > 1
                    }
                    _ => |_, state: &State| state.happened > 0,
                },
            ),
        }]
    }
}

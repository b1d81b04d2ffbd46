//! Puts an action into words.

use crate::{
    actions::{Act, Act::*},
    rules::{Step::*, *},
    search::Told,
    state::*,
};

impl Told for Rules {
    fn tell(&self, before: &State, act: Act) -> String {
        let state = *before;
        let call = |n: usize, begun: Option<Call>| {
            let Some(begun) = begun else {
                return String::new();
            };
            let line = format!("node {n}, {:?} in term {}:", begun.kind, begun.term);
            let Some(call) = { state }.go_on(self, n, begun) else {
                return line + " no number, or the fence is down";
            };
            let told = |step: &Step| match step {
                Invoke => format!(" begins, after {} was answered;", call.seen),
                Take => format!(" takes {};", call.value),
                Pause => " pauses".to_owned(),
                Check => " passes the fence;".to_owned(),
                Answer => format!(" ANSWERS {}", call.value),
            };
            let done = &self.steps[begun.done..call.done];
            line + &done.iter().map(told).collect::<String>()
        };
        let (term, max_seq) = (state.last_term(), state.table.max_seq);
        match act {
            Tick(units) => format!("time passes: {units:?} units on the nodes' clocks"),
            Send(n, to) => format!("node {n} sends a heartbeat to node {to}"),
            Deliver(n) => format!("node {n}'s heartbeat arrives: acknowledged, a promise begins"),
            Arrive(n) => format!("the acknowledgement comes back to node {n}"),
            Elect(n, voter) => format!("node {n} is elected by node {voter} for term {}", term + 1),
            Hear(n) => format!("node {n} hears of term {term}"),
            Bump(n) => format!("a bump by node {n} raises max_seq to {}", max_seq + STEP),
            Grant(n) => format!("node {n} is granted the chunk that its bump was answered with"),
            Begin(n, kind) => call(n, state.begin(n, kind)),
            GoOn(n) => call(n, state.nodes[n].call),
            Close(n) => format!("node {n} closes its allocator and proposes a trim"),
            LogTrim(n) => format!("the trim is applied, in the term of node {n}"),
            Transfer(n, to) => format!("node {n} tells node {to} to take over"),
            Reopen(n) => format!("node {n} opens its allocator again"),
            Restart(n) => format!("node {n} crashes and restarts"),
        }
    }
}

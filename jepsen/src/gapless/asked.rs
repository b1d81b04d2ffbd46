//! The common part of all callers of gapless keys: how the answer to a call is recorded.

use std::{sync::Arc, time::Duration};

use rand::{RngExt, rngs::StdRng};

use super::answers::GaplessAnswers;
use crate::{
    address::Address,
    client::FirstAndLast,
    history::{Action, Interface, Op, Outcome},
    nodes::KnownNodes,
    record::{Flow, Recorder},
    target::Target,
};

/// The state that callers share.
#[derive(Clone)]
pub(super) struct Shared {
    pub answers: Arc<GaplessAnswers>,
    pub nodes: KnownNodes,
    pub recorder: Arc<Recorder>,
}

/// Makes calls one after the other.
pub(super) trait Caller: Send + 'static {
    /// Makes its call with this number.
    fn call(&mut self, number: u64) -> impl Future<Output = ()> + Send;
}

/// A call that has begun.
pub(super) struct GaplessCall {
    pub target: Target,
    pub count: u64,
    pub invoked_ns: u64,
}

impl Shared {
    /// A call that begins now.
    pub fn begin(&self, target: Target, count: u64) -> GaplessCall {
        GaplessCall { target, count, invoked_ns: self.recorder.now() }
    }

    /// Records the answer to a call. `request` is the name of the request in violations.
    pub fn answered(
        &self, call: &GaplessCall, answer: FirstAndLast, (node, interface): (u64, Interface),
        request: &str,
    ) {
        let returned_ns = self.recorder.now();
        let (first, last) = answer;
        let op = Op {
            process: self.recorder.new_process(),
            key: call.target.name(),
            action: Action::Next { count: call.count },
            invoked_ns: call.invoked_ns,
            returned_ns: Some(returned_ns),
            outcome: Outcome::Ok,
            first,
            last,
            node,
            interface,
            note: String::new(),
        };
        self.recorder.push(Some(Flow::Gapless), op);
        self.answers.answered(&call.target.name(), answer, returned_ns, request);
    }

    /// Notes that the caller was told that the outcome of its call is not known.
    pub fn unknown(&self, call: &GaplessCall) {
        self.answers.unknown(&call.target.name(), call.count, call.invoked_ns);
    }

    /// Any node.
    pub fn any_node(&self, rng: &mut StdRng) -> (u64, Address) {
        let nodes = self.nodes.read();
        nodes[rng.random_range(0..nodes.len())].clone()
    }
}

/// Waits for so many milliseconds.
pub(super) async fn pause(rng: &mut StdRng, range_ms: std::ops::Range<u64>) {
    let pause_ms = rng.random_range(range_ms);
    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
}

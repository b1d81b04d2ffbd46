//! Calls that are recorded in the history.

use crate::{
    client::{Client, FirstAndLast},
    connections::Failure,
    history::{Action, Interface, Op, Outcome},
    record::{Flow, Recorder},
    target::Target,
};

/// Makes one call over gRPC and records it.
pub async fn ask(
    recorder: &Recorder, client: &mut Client, node: u64, process: u64, target: &Target,
    action: Action,
) -> Outcome {
    let invocation = Invocation {
        invoked_ns: recorder.now(),
        node,
        interface: Interface::Unary,
        process,
        target,
        action,
    };
    let answer = client.ask(target, action).await;
    invocation.complete(recorder, answer.map_err(Failure::from))
}

/// An operation that has begun.
pub struct Invocation<'a> {
    /// When it began.
    pub invoked_ns: u64,
    /// The node that is asked.
    pub node: u64,
    /// The interface through which it is asked.
    pub interface: Interface,
    /// The process that asks.
    pub process: u64,
    /// The key.
    pub target: &'a Target,
    /// The action that is asked for.
    pub action: Action,
}

impl Invocation<'_> {
    /// Records how the operation ended.
    pub fn complete(self, recorder: &Recorder, answer: Result<FirstAndLast, Failure>) -> Outcome {
        let returned_ns = Some(recorder.now());
        let (outcome, (first, last), note) = match answer {
            Ok(answer) => (Outcome::Ok, answer, String::new()),
            Err(failure) => (failure.outcome, (0, 0), failure.note),
        };
        let op = Op {
            process: self.process,
            key: self.target.name(),
            action: self.action,
            invoked_ns: self.invoked_ns,
            returned_ns,
            outcome,
            first,
            last,
            node: self.node,
            interface: self.interface,
            note,
        };
        recorder.push(Flow::Numbers, op);
        outcome
    }
}

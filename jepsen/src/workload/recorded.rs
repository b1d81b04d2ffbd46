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
        // A last number, or a floor, that is answered says nothing of new numbers.
        let hands_out = matches!(self.action, Action::Next { .. });
        let flow = hands_out.then_some(Flow::Numbers);
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
        recorder.push(flow, op);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::target::OWN;

    #[test]
    fn a_read_or_a_floor_that_is_answered_does_not_hide_that_no_number_is_handed_out() {
        let recorder = Recorder::default();
        recorder.begin(Flow::Numbers);
        let target = Target { namespace: OWN, id: 1 };
        let answers = |action| {
            let invocation = Invocation {
                invoked_ns: 8,
                node: 1,
                interface: Interface::Unary,
                process: 0,
                target: &target,
                action,
            };
            assert_eq!(invocation.complete(&recorder, Ok((1, 1))), Outcome::Ok);
            recorder.answered_since(Flow::Numbers, 7).now_or_never().is_some()
        };
        assert!(!answers(Action::Current));
        assert!(!answers(Action::Raise { floor: 1 }));
        assert!(answers(Action::Next { count: 1 }));
        assert_eq!((recorder.recorded(), recorder.acknowledged()), (3, 3));
    }
}

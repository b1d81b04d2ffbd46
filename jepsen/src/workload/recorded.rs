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
        // A last number, or a floor, that is answered says nothing of new numbers, and they say nothing of it.
        let flow = match self.action {
            Action::Next { .. } => Some(Flow::Numbers),
            Action::Current => Some(Flow::LastNumbers),
            Action::Raise { .. } => None,
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
    fn an_answer_to_one_kind_of_call_does_not_hide_that_another_kind_is_not_answered() {
        let recorder = Recorder::default();
        recorder.begin(Flow::Numbers);
        recorder.begin(Flow::LastNumbers);
        let target = Target { namespace: OWN, id: 1 };
        let flows_again = |invoked_ns, action| {
            let invocation = Invocation {
                invoked_ns,
                node: 1,
                interface: Interface::Unary,
                process: 0,
                target: &target,
                action,
            };
            assert_eq!(invocation.complete(&recorder, Ok((1, 1))), Outcome::Ok);
            let since = invoked_ns - 1;
            let flows = |flow| recorder.answered_since(flow, since).now_or_never().is_some();
            (flows(Flow::Numbers), flows(Flow::LastNumbers))
        };
        assert_eq!(flows_again(8, Action::Raise { floor: 1 }), (false, false));
        assert_eq!(flows_again(9, Action::Current), (false, true));
        assert_eq!(flows_again(10, Action::Next { count: 1 }), (true, false));
        assert_eq!((recorder.recorded(), recorder.acknowledged()), (3, 3));
    }
}

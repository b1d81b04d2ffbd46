//! Calls that are recorded.

use tonic::Status;

use crate::{
    client::{self, Client, Target},
    history::{Action, Op, Outcome},
    record::Recorder,
};

/// Makes one call and records it.
pub async fn ask(
    recorder: &Recorder,
    client: &mut Client,
    node: u64,
    process: u64,
    target: &Target,
    action: Action,
) -> Outcome {
    let invoked_ns = recorder.now();
    let answer = client.ask(target, action).await;
    note(
        recorder,
        invoked_ns,
        (node, process, target, action),
        answer,
    )
}

/// Records how a call by `process` at `node` ended.
pub fn note(
    recorder: &Recorder,
    invoked_ns: u64,
    (node, process, target, action): (u64, u64, &Target, Action),
    answer: Result<client::Answer, Status>,
) -> Outcome {
    let returned_ns = Some(recorder.now());
    let (outcome, (first, last), note) = match answer {
        Ok(answer) => (Outcome::Ok, answer, String::new()),
        Err(status) => {
            let note = format!("{:?}: {}", status.code(), status.message());
            (client::outcome(&status), (0, 0), note)
        }
    };
    recorder.push(Op {
        process,
        key: target.name(),
        action,
        invoked_ns,
        returned_ns,
        outcome,
        first,
        last,
        node,
        note,
    });
    outcome
}

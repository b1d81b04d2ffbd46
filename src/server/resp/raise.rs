//! SET and SETNX: raise a key's floor. It goes upwards only.

use tokio::time::Instant;

use super::{
    key::{NodeAndAsker, written_key},
    reader::RedisCommand,
    refused::Refused,
};
use crate::{
    node::{CheckedRequest, Origin, ROUTE_UNWANTED, to_key},
    proto::{refusal, v1::RaiseRequest},
    sequence::{Verb, Wanted},
    server::written::{integer, key_in, shown},
};

/// The outcome of raising a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaiseOutcome {
    /// The floor is raised. Or the key was new and is to begin with 0, where it stands already.
    Done,
    /// The key was not new, and is as it was.
    NotNew,
}

/// Raises the key that SET or SETNX names to the value that it gives, by `deadline`. `only_if_new` is true for SETNX.
///
/// # Errors
/// If the command has other options than NX, the value is no number or below the last number, or the node cannot raise the
/// floor.
pub async fn raise(
    (context, by): NodeAndAsker<'_>, command: RedisCommand<'_>, mut only_if_new: bool,
    deadline: Instant,
) -> Result<RaiseOutcome, Refused> {
    for option in command.rest().skip(2) {
        if !option.eq_ignore_ascii_case(b"nx") {
            return Err(Refused::invalid(format!(
                "syntax error: SET has no option '{}' here; there are SET key value and SET key value NX, which raise the key",
                shown(option)
            )));
        }
        only_if_new = true;
    }
    let written = written_key(command.at(1).unwrap_or_default())?;
    let value = command.at(2).unwrap_or_default();
    let at_least = integer(value).ok_or_else(|| {
        Refused::invalid(format!(
            "value is not an integer or out of range: it is '{}'; give an integer from 0 on",
            shown(value)
        ))
    })?;
    let wanted = Wanted::On(Verb::Raise, written.namespace);
    let key = key_in(context, wanted, (written.key, by), deadline).await?;
    let message = RaiseRequest {
        namespace: written.namespace.to_owned(),
        key: to_key(&key),
        at_least,
        route_version: ROUTE_UNWANTED,
        members_version: None,
        // A new key stands at 0.
        only_if_new: only_if_new || at_least == 0,
    };
    let asked = CheckedRequest::of_caller(message, by.clone(), &context.traces, None)?;
    let raised = context.numbers.serve(&asked, Origin::Client, deadline).await?;
    // A node asks a second leader by itself if the first one's answer is lost, and so may a client. If the first try has raised
    // the floor, that is no reason to refuse the second.
    if raised.raised || (!only_if_new && raised.floor == at_least) {
        return Ok(RaiseOutcome::Done);
    }
    if only_if_new {
        return Ok(RaiseOutcome::NotNew);
    }
    let refused = refusal!(
        WrongState,
        "value {at_least} is below {}, up to which numbers are handed out; numbers only grow",
        raised.floor
    );
    Err(refused.into())
}

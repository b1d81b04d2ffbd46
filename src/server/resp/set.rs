//! SET: raises a key's floor. It goes upwards only.

use std::sync::Arc;

use tokio::time::Instant;

use super::{key::written_key, reader::Command, refused::Refused};
use crate::{
    metrics::Door,
    node::{Asked, NodeContext, Origin, ROUTE_UNWANTED, to_key},
    proto::{refusal, v1::RaiseRequest},
    sequence::OwnedKey,
    server::written::{self, integer, shown},
};

/// Raises the key that a command names to the value that it gives, by `deadline`.
///
/// # Errors
/// If the command has options, the value is none or below the last number, or the node cannot raise the floor.
pub async fn raise(
    context: &Arc<NodeContext>, command: Command<'_>, deadline: Instant,
) -> Result<(), Refused> {
    let arrived = Instant::now();
    if let Some(option) = command.at(3) {
        return Err(Refused::invalid(format!(
            "syntax error: SET has no option '{}' here; there is SET key value, which raises the key",
            shown(option)
        )));
    }
    let written = written_key(command.at(1).unwrap_or_default())?;
    let value = command.at(2).unwrap_or_default();
    let at_least = integer(value).ok_or_else(|| {
        Refused::invalid(format!(
            "value is not an integer or out of range: it is '{}'; give an integer from 1 on",
            shown(value)
        ))
    })?;
    let kind = context.leader.key_kind(written.namespace, deadline).await;
    let key = written::key(kind?, written.namespace, written.key)?;
    let message = RaiseRequest {
        namespace: written.namespace.to_owned(),
        key: to_key(&OwnedKey::from(key)),
        at_least,
        route_version: ROUTE_UNWANTED,
        members_version: None,
    };
    let answered = context.leader.serve(&Asked::new(message)?, Origin::Client, deadline).await;
    let spans = context.metrics.request_seconds.of(Door::redis);
    spans.observe(arrived.elapsed(), 1);
    let raised = answered?;
    // A node asks a second leader by itself if the first one's answer is lost, and so may a client. What the first try did
    // is no reason to refuse the second.
    if raised.raised || raised.floor == at_least {
        return Ok(());
    }
    let refused = refusal!(
        WrongState,
        "value {at_least} is below {}, up to which numbers are handed out; numbers only grow",
        raised.floor
    );
    Err(refused.into())
}

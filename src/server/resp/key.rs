//! Keys as Redis clients write them, namespace:key, and which numbers were handed out for them.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::Instant;

use super::refused::Refused;
use crate::{
    metrics::Door,
    node::{Asked, NodeContext, Origin, ROUTE_UNWANTED, to_key},
    proto::v1::CurrentRequest,
    sequence::{InvalidWrittenKey, OwnedKey, WrittenKey},
    server::written::{self, shown},
};

/// How many of a command's keys are asked for at a time.
const READS_AT_ONCE: usize = 64;

/// A key and its namespace, as a client wrote them.
///
/// # Errors
/// If there is no colon, or what comes before it is no name.
pub fn written_key(argument: &[u8]) -> Result<WrittenKey<'_>, Refused> {
    WrittenKey::parse(argument).map_err(|invalid| {
        Refused::invalid(match invalid {
            InvalidWrittenKey::NoNamespace => format!(
                "key '{}' names no namespace; write it as namespace:key, as in INCR book:42",
                shown(argument)
            ),
            InvalidWrittenKey::BadNamespace(name) => format!(
                "'{}' is no name of a namespace: 1 to 64 characters out of A-Z a-z 0-9 . _ -",
                shown(name.as_bytes())
            ),
        })
    })
}

/// The last numbers handed out for keys, in their order; `None` for one of which none was. Asks until `deadline`.
///
/// # Errors
/// If one is no key, or the node cannot tell.
pub async fn last_numbers(
    context: &Arc<NodeContext>, keys: impl Iterator<Item = &[u8]>, deadline: Instant,
) -> Result<Vec<Option<u64>>, Refused> {
    let arrived = Instant::now();
    let mut requests = Vec::new();
    for argument in keys {
        let written = written_key(argument)?;
        let kind = context.leader.key_kind(written.namespace, deadline).await;
        let key = written::key(kind?, written.namespace, written.key)?;
        requests.push(Asked::new(CurrentRequest {
            namespace: written.namespace.to_owned(),
            key: to_key(&OwnedKey::from(key)),
            route_version: ROUTE_UNWANTED,
            members_version: None,
        })?);
    }
    let asked = requests.len() as u64;
    let answers = stream::iter(requests).map(|request| async move {
        let answered = context.leader.serve(&request, Origin::Client, deadline).await;
        let answered = answered.map_err(Refused::from)?;
        Ok::<_, Refused>(answered.last)
    });
    let answers = answers.buffered(READS_AT_ONCE).try_collect().await;
    context.metrics.request_seconds.of(Door::redis).observe(arrived.elapsed(), asked);
    answers
}

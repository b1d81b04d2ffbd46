//! Keys, as Redis clients write them: the key that a text names, and its last number.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::Instant;

use super::{reader::RedisCommand, refused::Refused, replies::Replies};
use crate::{
    metrics::Interface,
    node::{Asker, CheckedRequest, NodeContext, Origin, ROUTE_UNWANTED, to_key},
    proto::v1::CurrentRequest,
    sequence::{InvalidWrittenKey, Verb, Wanted, WrittenKey},
    server::written::{key_in, shown},
};

/// The node, and who asks.
pub type NodeAndAsker<'a> = (&'a Arc<NodeContext>, &'a Asker);

/// How many of a command's keys are asked for at a time.
const READS_AT_ONCE: usize = 64;

/// Waits for the answer to so many `requests`, and records how long it took.
pub async fn timed<A>(
    context: &NodeContext, requests: usize, answering: impl Future<Output = A>,
) -> A {
    let arrived = Instant::now();
    let answer = answering.await;
    observe(context, arrived, requests);
    answer
}

pub(super) fn observe(context: &NodeContext, arrived: Instant, requests: usize) {
    let spans = context.metrics.request_seconds.of(Interface::redis);
    spans.observe(arrived.elapsed(), requests as u64);
}

/// A key and its namespace, as a client wrote them.
///
/// # Errors
/// If there is no colon, or the text before it is no name.
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
    (context, by): NodeAndAsker<'_>, keys: impl Iterator<Item = &[u8]>, deadline: Instant,
) -> Result<Vec<Option<u64>>, Refused> {
    let mut requests = Vec::new();
    for argument in keys {
        let written = written_key(argument)?;
        let wanted = Wanted::On(Verb::Read, written.namespace);
        let key = key_in(context, wanted, (written.key, by), deadline).await?;
        let message = CurrentRequest {
            namespace: written.namespace.to_owned(),
            key: to_key(&key),
            route_version: ROUTE_UNWANTED,
            members_version: None,
        };
        requests.push(CheckedRequest::of_caller(message, by.clone(), &context.traces, None)?);
    }
    let answers = stream::iter(requests).map(|request| async move {
        let answered = context.numbers.serve(&request, Origin::Client, deadline).await;
        let answered = answered.map_err(Refused::from)?;
        Ok::<_, Refused>(answered.last)
    });
    answers.buffered(READS_AT_ONCE).try_collect().await
}

/// Answers INCRBY by 0: the last number handed out for a key, and 0 for none.
///
/// # Errors
/// Those of [`last_numbers`].
pub async fn last_number(
    (context, by): NodeAndAsker<'_>, command: RedisCommand<'_>, deadline: Instant,
    replies: &mut Replies,
) -> Result<(), Refused> {
    let last = last_numbers((context, by), command.rest().take(1), deadline).await?;
    let namespace = written_key(command.at(1).unwrap_or_default())?.namespace;
    let wanted = Wanted::On(Verb::Read, namespace);
    let keys = context.namespaces.keys_of(wanted, by, deadline).await.map_err(Refused::from)?;
    let last = last.into_iter().flatten().next().unwrap_or(0);
    replies.number_of_key(last, keys.redis_strings);
    Ok(())
}

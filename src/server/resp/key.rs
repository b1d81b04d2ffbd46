//! Keys as Redis clients write them, namespace:key, and which numbers were handed out for them.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::Instant;

use super::refused::Refused;
use crate::{
    metrics::Door,
    node::{Current, KnownRoute, NodeContext, Origin},
    sequence::{Key, KeyKind, OwnedKey, check_name},
    server::{
        errors::to_client,
        written::{self, shown},
    },
};

/// How many of a command's keys are asked for at a time.
const READS_AT_ONCE: usize = 64;

/// A key and its namespace, as they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenKey<'a> {
    /// The namespace's name: what comes before the first colon.
    pub namespace: &'a str,
    /// The rest.
    pub key: &'a [u8],
}

impl<'a> WrittenKey<'a> {
    /// Parses an argument.
    ///
    /// # Errors
    /// If it has no colon, or what comes before it is no name.
    pub fn parse(argument: &'a [u8]) -> Result<Self, Refused> {
        let colon = argument.iter().position(|byte| *byte == b':');
        let (namespace, key) = colon
            .and_then(|at| {
                Some((
                    std::str::from_utf8(&argument[..at]).ok()?,
                    &argument[at + 1..],
                ))
            })
            .ok_or_else(|| {
                Refused::invalid(format!(
                    "key '{}' names no namespace; write it as namespace:key, as in INCR book:42",
                    shown(argument)
                ))
            })?;
        check_name(namespace).map_err(|_| {
            Refused::invalid(format!(
                "'{}' is no name of a namespace: 1 to 64 characters out of A-Z a-z 0-9 . _ -",
                shown(namespace.as_bytes())
            ))
        })?;
        Ok(WrittenKey { namespace, key })
    }

    /// The key as one of `kind`.
    ///
    /// # Errors
    /// As [`written::key`].
    pub fn as_key(&self, kind: KeyKind) -> Result<Key<'a>, Refused> {
        Ok(written::key(kind, self.namespace, self.key)?)
    }
}

/// The last numbers handed out for keys, in their order; `None` for one of which none was. Asks until `deadline`.
///
/// # Errors
/// If one is no key, or the node cannot tell.
pub async fn last_numbers(
    context: &Arc<NodeContext>,
    keys: impl Iterator<Item = &[u8]>,
    deadline: Instant,
) -> Result<Vec<Option<u64>>, Refused> {
    let arrived = Instant::now();
    let mut requests = Vec::new();
    for argument in keys {
        let written = WrittenKey::parse(argument)?;
        let kind = context.key_kind(written.namespace, deadline).await;
        let key = written.as_key(kind.map_err(to_client)?)?;
        requests.push(Current {
            namespace: written.namespace.to_owned(),
            key: OwnedKey::from(key),
            known: KnownRoute::UNWANTED,
        });
    }
    let asked = requests.len() as u64;
    let answers = stream::iter(requests).map(|request| async {
        let answered = context.serve(request, Origin::Client, deadline).await;
        let answered = answered.map_err(|failure| Refused::from(to_client(failure)))?;
        Ok::<_, Refused>(answered.answer)
    });
    let answers = answers.buffered(READS_AT_ONCE).try_collect().await;
    context
        .metrics
        .request_seconds
        .of(Door::redis)
        .observe(arrived.elapsed(), asked);
    answers
}

//! Ids with a shape for Redis clients: `INCR id:orders` makes one of the namespace `orders`, and `INCR id:room:42` one of key
//! 42 of the namespace `room`.

use std::sync::Arc;

use tokio::time::Instant;

use super::{refused::Refused, replies::Replies};
use crate::{
    metrics::Door,
    node::{NodeContext, to_key},
    proto::v1::NextIdsRequest,
    sequence::{OwnedKey, WrittenKey},
    server::written,
};

/// What comes before the namespace.
const ID: &str = "id";

/// Whose ids a key stands for.
#[derive(Debug, Clone, Copy)]
pub struct IdsOf<'a> {
    namespace: &'a str,
    /// As it was written.
    key: Option<&'a [u8]>,
}

/// Whose ids a key stands for. A namespace of the name `id` has keys of its own: then there are none.
pub fn ids_of<'a>(context: &NodeContext, key: WrittenKey<'a>) -> Option<IdsOf<'a>> {
    let namespaces = context.group.view().namespaces();
    if key.namespace != ID || namespaces.by_name(ID).is_some() {
        return None;
    }
    let of_key =
        WrittenKey::parse(key.key).map(|of| IdsOf { namespace: of.namespace, key: Some(of.key) });
    let of_all = || {
        let namespace = std::str::from_utf8(key.key).ok()?;
        Some(IdsOf { namespace, key: None })
    };
    of_key.ok().or_else(of_all)
}

/// The refusal of INCRBY.
pub fn one_at_a_time() -> Refused {
    Refused::invalid("INCRBY makes no ids, because they do not follow one another; INCR makes one")
}

/// Makes an id. One that is written as a number is a number, any other a text.
///
/// # Errors
/// Whatever the node refuses it for.
pub async fn next(
    context: &Arc<NodeContext>, of: IdsOf<'_>, deadline: Instant, replies: &mut Replies,
) -> Result<(), Refused> {
    let arrived = Instant::now();
    let key = match of.key {
        Some(written) => {
            let kind = context.leader.key_kind(of.namespace, deadline).await;
            let key = written::key(kind?, of.namespace, written)?;
            to_key(&OwnedKey::from(key))
        }
        None => None,
    };
    let request =
        NextIdsRequest { namespace: of.namespace.to_owned(), key, ..NextIdsRequest::default() };
    let made = context.ids.next(&request, deadline).await;
    let spans = context.metrics.request_seconds.of(Door::redis);
    spans.observe(arrived.elapsed(), 1);
    let (made, _reserved) = made?;
    for text in made.texts() {
        match text.parse() {
            Ok(number) => replies.number(number),
            Err(_) => replies.bulk(text),
        }
    }
    Ok(())
}

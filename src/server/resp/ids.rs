//! Ids with a shape for Redis clients: `INCR id:orders` makes one of the namespace `orders`.

use std::sync::Arc;

use tokio::time::Instant;

use super::{refused::Refused, replies::Replies};
use crate::{
    metrics::Door,
    node::{NextIds, NodeContext},
    sequence::WrittenKey,
    server::errors::to_client,
};

/// What comes before the namespace.
const ID: &str = "id";

/// The namespace whose ids a key stands for. A namespace of the name `id` has keys of its own: then there is none.
pub fn namespace_of<'a>(context: &NodeContext, key: WrittenKey<'a>) -> Option<&'a str> {
    let namespaces = context.group.view().namespaces();
    let stands_for_ids = key.namespace == ID && namespaces.by_name(ID).is_none();
    stands_for_ids.then(|| std::str::from_utf8(key.key).ok())?
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
    context: &Arc<NodeContext>,
    namespace: &str,
    deadline: Instant,
    replies: &mut Replies,
) -> Result<(), Refused> {
    let arrived = Instant::now();
    let request = NextIds {
        namespace: namespace.to_owned(),
        count: 1,
        parameters: Vec::new(),
    };
    let made = context.next_ids(&request, deadline).await;
    let spans = context.metrics.request_seconds.of(Door::redis);
    spans.observe(arrived.elapsed(), 1);
    let made = made.map_err(to_client)?;
    for text in made.texts() {
        match text.parse() {
            Ok(number) => replies.number(number),
            Err(_) => replies.bulk(text),
        }
    }
    Ok(())
}

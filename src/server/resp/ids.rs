//! Ids with a shape for Redis clients: `INCR id:orders` makes one of the namespace `orders`, and `INCR id:room:42` one
//! of key 42 of the namespace `room`.

use tokio::time::Instant;

use super::{key::NodeAndAsker, refused::Refused, replies::Replies};
use crate::{
    node::{NEXT_IDS, NodeContext, to_key},
    proto::v1::NextIdsRequest,
    sequence::{Verb, Wanted, WrittenKey},
    server::written::key_in,
};

/// The word before the namespace.
const ID: &str = "id";

/// The namespace, and the key in it, that the ids of a text belong to.
#[derive(Debug, Clone, Copy)]
pub struct IdsOf<'a> {
    namespace: &'a str,
    /// The key, as it was written.
    key: Option<&'a [u8]>,
}

/// The ids that a text stands for. If a namespace has the name `id`, the text is a key of that namespace, and stands for no
/// ids.
pub fn ids_of<'a>(context: &NodeContext, key: WrittenKey<'a>) -> Option<IdsOf<'a>> {
    if key.namespace != ID || context.group.view.namespaces().by_name(ID).is_some() {
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

/// The refusal of INCRBY by more than 1. Libraries send INCRBY by 1 for INCR.
pub fn one_at_a_time() -> Refused {
    Refused::invalid(
        "INCRBY makes one id, with the increment 1, as INCR: ids do not follow one another",
    )
}

/// Makes an id. One that is written as a number is a number, any other a text.
///
/// # Errors
/// Any refusal of the node.
pub async fn next(
    (context, by): NodeAndAsker<'_>, of: IdsOf<'_>, deadline: Instant, replies: &mut Replies,
) -> Result<(), Refused> {
    let wanted = Wanted::On(Verb::Next, of.namespace);
    let key = match of.key {
        Some(written) => to_key(&key_in(context, wanted, (written, by), deadline).await?),
        None => None,
    };
    let request =
        NextIdsRequest { namespace: of.namespace.to_owned(), key, ..NextIdsRequest::default() };
    let span = context.traces.of_caller(NEXT_IDS, None);
    let (made, _reserved) = context.ids.next(&request, (by, span.as_deref()), deadline).await?;
    let keys = context.namespaces.keys_of(wanted, by, deadline).await.map_err(Refused::from)?;
    for text in made.texts() {
        match text.parse::<u64>() {
            Ok(number) => replies.number_of_key(number, keys.redis_strings),
            Err(_) => replies.bulk(text),
        }
    }
    Ok(())
}

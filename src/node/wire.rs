//! The public API's messages, and the requests and answers that they stand for: both ways. The gRPC
//! doors use it, and so does forwarding, which carries the same messages.

mod floors;

use bytes::Bytes;

use super::{
    id_request::NextIds,
    request::{
        Answered, Current, Exhausted, Keys, ManyRanges, Next, NextMany, RefusedKeys, invalid_key,
        message_id,
    },
    route::{KnownRoute, Route},
};
use crate::{
    proto::{
        Refusal, refusal,
        v1::{self, key::Kind},
    },
    sequence::{MessageId, OwnedKey, Range},
};

fn known(version: u64, members_version: Option<u64>) -> KnownRoute {
    KnownRoute { version, members_version }
}

/// The key of a message.
pub(super) fn key_of(key: Option<v1::Key>) -> Result<OwnedKey, Refusal> {
    match key.and_then(|key| key.kind) {
        Some(Kind::Id(id)) => Ok(OwnedKey::Id(id)),
        Some(Kind::Name(name)) => OwnedKey::name(name).map_err(invalid_key),
        None => Err(refusal!(
            InvalidRequest,
            "the key is missing; give key.id (an unsigned 64-bit integer) or key.name (bytes)"
        )),
    }
}

/// The message that stands for a key.
pub fn to_key(key: &OwnedKey) -> Option<v1::Key> {
    let kind = match key {
        OwnedKey::Id(id) => Kind::Id(*id),
        OwnedKey::Name(name) => Kind::Name(name.clone()),
    };
    Some(v1::Key { kind: Some(kind) })
}

/// The keys of a message.
fn keys_of(ids: Vec<u64>, names: Vec<Bytes>) -> Result<Keys, Refusal> {
    if !ids.is_empty() && !names.is_empty() {
        return Err(refusal!(
            InvalidRequest,
            "the message has {} ids and {} names; give keys that are all of one kind",
            ids.len(),
            names.len()
        ));
    }
    Ok(match names.is_empty() {
        true => Keys::Ids(ids),
        false => Keys::Names(names),
    })
}

/// Ids and names, one of them empty.
fn to_keys(keys: &Keys) -> (Vec<u64>, Vec<Bytes>) {
    match keys {
        Keys::Ids(ids) => (ids.clone(), Vec::new()),
        Keys::Names(names) => (Vec::new(), names.clone()),
    }
}

fn request_id(id: &Option<MessageId>) -> Option<Bytes> {
    id.as_ref().map(|id| id.id.as_bytes().to_vec().into())
}

fn retry_window_ms(id: &Option<MessageId>) -> Option<u64> {
    id.as_ref()?.lifetime.window_ms()
}

fn made_ms(id: &Option<MessageId>) -> Option<u64> {
    id.as_ref()?.made_ms
}

impl TryFrom<v1::NextRequest> for Next {
    type Error = Refusal;

    fn try_from(message: v1::NextRequest) -> Result<Next, Refusal> {
        Ok(Next {
            key: key_of(message.key)?,
            namespace: message.namespace,
            count: message.count.unwrap_or(1),
            id: message_id(
                message.request_id.as_deref(),
                message.retry_window_ms,
                message.made_ms,
            )?,
            known: known(message.route_version, message.members_version),
        })
    }
}

impl From<&Next> for v1::NextRequest {
    fn from(request: &Next) -> Self {
        v1::NextRequest {
            namespace: request.namespace.clone(),
            key: to_key(&request.key),
            count: Some(request.count),
            route_version: request.known.version,
            members_version: request.known.members_version,
            request_id: request_id(&request.id),
            retry_window_ms: retry_window_ms(&request.id),
            made_ms: made_ms(&request.id),
        }
    }
}

impl TryFrom<v1::CurrentRequest> for Current {
    type Error = Refusal;

    fn try_from(message: v1::CurrentRequest) -> Result<Current, Refusal> {
        Ok(Current {
            key: key_of(message.key)?,
            namespace: message.namespace,
            known: known(message.route_version, message.members_version),
        })
    }
}

impl From<&Current> for v1::CurrentRequest {
    fn from(request: &Current) -> Self {
        v1::CurrentRequest {
            namespace: request.namespace.clone(),
            key: to_key(&request.key),
            route_version: request.known.version,
            members_version: request.known.members_version,
        }
    }
}

impl TryFrom<v1::NextIdsRequest> for NextIds {
    type Error = Refusal;

    fn try_from(message: v1::NextIdsRequest) -> Result<NextIds, Refusal> {
        Ok(NextIds {
            namespace: message.namespace,
            count: message.count.unwrap_or(1),
            key: message.key.map(|key| key_of(Some(key))).transpose()?,
            parameters: message.parameters.into_iter().collect(),
        })
    }
}

impl TryFrom<v1::NextManyRequest> for NextMany {
    type Error = Refusal;

    fn try_from(message: v1::NextManyRequest) -> Result<NextMany, Refusal> {
        let keys = keys_of(message.ids, message.names)?;
        let (window_ms, made_ms) = (message.retry_window_ms, message.made_ms);
        let id = message_id(message.request_id.as_deref(), window_ms, made_ms)?;
        let known = known(message.route_version, message.members_version);
        NextMany::new(message.namespace, keys, message.counts, id, known)
    }
}

impl From<&NextMany> for v1::NextManyRequest {
    fn from(request: &NextMany) -> Self {
        let (ids, names) = to_keys(&request.keys);
        v1::NextManyRequest {
            namespace: request.namespace.clone(),
            ids,
            names,
            counts: request.counts.clone(),
            route_version: request.known.version,
            members_version: request.known.members_version,
            request_id: request_id(&request.id),
            retry_window_ms: retry_window_ms(&request.id),
            made_ms: made_ms(&request.id),
            // These two belong to a stream. A forwarded message has its own.
            id: 0,
            timeout_ms: 0,
        }
    }
}

impl From<v1::NextResponse> for Answered<Range> {
    fn from(message: v1::NextResponse) -> Self {
        Answered {
            answer: Range {
                first: message.first,
                last: message.last,
                increment: message.increment,
            },
            route: message.route.map(Route::from),
        }
    }
}

impl From<Answered<Range>> for v1::NextResponse {
    fn from(Answered { answer, route }: Answered<Range>) -> Self {
        v1::NextResponse {
            first: answer.first,
            last: answer.last,
            increment: answer.increment,
            route: route.map(v1::Route::from),
        }
    }
}

impl From<v1::CurrentResponse> for Answered<Option<u64>> {
    fn from(message: v1::CurrentResponse) -> Self {
        Answered { answer: message.last, route: message.route.map(Route::from) }
    }
}

impl From<Answered<Option<u64>>> for v1::CurrentResponse {
    fn from(Answered { answer, route }: Answered<Option<u64>>) -> Self {
        v1::CurrentResponse { last: answer, route: route.map(v1::Route::from) }
    }
}

impl From<v1::NextManyResponse> for Answered<ManyRanges> {
    fn from(message: v1::NextManyResponse) -> Self {
        let exhausted = message.exhausted.map(|exhausted| Exhausted {
            places: exhausted.places,
            left: exhausted.left,
            why: exhausted.failure.unwrap_or_default().into(),
        });
        let refused = message.refused.into_iter().map(|refused| RefusedKeys {
            places: refused.places,
            why: refused.failure.unwrap_or_default().into(),
        });
        Answered {
            answer: ManyRanges {
                firsts: message.firsts,
                increment: message.increment,
                exhausted,
                refused: refused.collect(),
                gapless: message.gapless,
                namespace: None,
            },
            route: message.route.map(Route::from),
        }
    }
}

impl From<Answered<ManyRanges>> for v1::NextManyResponse {
    fn from(Answered { answer, route }: Answered<ManyRanges>) -> Self {
        let exhausted = answer.exhausted.map(|exhausted| v1::Exhausted {
            places: exhausted.places,
            left: exhausted.left,
            failure: Some(exhausted.why.into()),
        });
        let refused = answer.refused.into_iter().map(|refused| v1::RefusedKeys {
            places: refused.places,
            failure: Some(refused.why.into()),
        });
        v1::NextManyResponse {
            id: 0,
            firsts: answer.firsts,
            increment: answer.increment,
            exhausted,
            refused: refused.collect(),
            gapless: answer.gapless,
            failure: None,
            route: route.map(v1::Route::from),
        }
    }
}

impl From<v1::Route> for Route {
    fn from(message: v1::Route) -> Self {
        Route {
            version: message.version,
            leader: message.leader,
            address: message.address,
            members_version: message.members_version,
            members: message.members,
            cluster_id: message.cluster_id,
        }
    }
}

impl From<Route> for v1::Route {
    fn from(route: Route) -> Self {
        v1::Route {
            version: route.version,
            leader: route.leader,
            address: route.address,
            members_version: route.members_version,
            members: route.members,
            cluster_id: route.cluster_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_route() -> Option<v1::Route> {
        Some(v1::Route {
            version: 7,
            leader: 2,
            address: "b:1".into(),
            members_version: 5,
            members: vec!["a:1".into(), "b:1".into()],
            cluster_id: "f47ac10b-58cc-4372-a567-0e02b2c3d479".into(),
        })
    }

    fn many(ids: Vec<u64>, names: Vec<Bytes>, counts: Vec<u64>) -> v1::NextManyRequest {
        v1::NextManyRequest {
            namespace: "book".into(),
            ids,
            names,
            counts,
            route_version: 3,
            members_version: Some(4),
            request_id: Some(Bytes::from_static(b"orders-7")),
            ..v1::NextManyRequest::default()
        }
    }

    #[test]
    fn a_request_that_is_forwarded_is_the_request_that_came() {
        let next = v1::NextRequest {
            namespace: "book".into(),
            key: to_key(&OwnedKey::Name(Bytes::from_static(b"k"))),
            count: Some(3),
            route_version: 3,
            members_version: None,
            request_id: Some(Bytes::from_static(b"order-7")),
            retry_window_ms: Some(16_000),
            made_ms: Some(7),
        };
        let request = Next::try_from(next.clone()).unwrap();
        assert_eq!(v1::NextRequest::from(&request), next);
        let current = v1::CurrentRequest {
            namespace: "book".into(),
            key: to_key(&OwnedKey::Id(9)),
            route_version: 3,
            members_version: Some(4),
        };
        let request = Current::try_from(current.clone()).unwrap();
        assert_eq!(v1::CurrentRequest::from(&request), current);
        for message in [
            many(vec![1, 2], vec![], vec![5, 6]),
            many(vec![], vec![Bytes::from_static(b"k")], vec![]),
        ] {
            let request = NextMany::try_from(message.clone()).unwrap();
            assert_eq!(v1::NextManyRequest::from(&request), message);
        }
    }

    #[test]
    fn an_answer_that_was_forwarded_is_the_answer_that_the_leader_gave() {
        let next = v1::NextResponse { first: 1, last: 9, increment: 2, route: some_route() };
        let answer = Answered::<Range>::from(next.clone());
        assert_eq!(v1::NextResponse::from(answer), next);
        for last in [None, Some(5)] {
            let current = v1::CurrentResponse { last, route: None };
            let answer = Answered::<Option<u64>>::from(current.clone());
            assert_eq!(v1::CurrentResponse::from(answer), current);
        }
        let many = v1::NextManyResponse {
            firsts: vec![1, 0],
            increment: 2,
            exhausted: Some(v1::Exhausted {
                places: vec![1],
                left: vec![3],
                failure: Some(refusal!(NumbersExhausted, "used up").into()),
            }),
            refused: vec![v1::RefusedKeys {
                places: vec![0],
                failure: Some(refusal!(KeysMaxReached, "too many keys").into()),
            }],
            route: some_route(),
            ..v1::NextManyResponse::default()
        };
        let answer = Answered::<ManyRanges>::from(many.clone());
        assert_eq!(v1::NextManyResponse::from(answer), many);
    }

    #[test]
    fn a_message_that_is_no_request_is_refused_with_what_is_wrong() {
        let refused = |message: v1::NextManyRequest| {
            NextMany::try_from(message).unwrap_err().message().to_owned()
        };
        let name = || vec![Bytes::from_static(b"k")];
        assert!(refused(many(vec![1], name(), vec![])).contains("1 ids and 1 names"));
        assert!(refused(many(vec![], vec![], vec![])).contains("has 0 keys"));
        assert!(refused(many(vec![0; 65_537], vec![], vec![])).contains("has 65537 keys"));
        assert!(refused(many(vec![1, 2], vec![], vec![1])).contains("2 keys and 1 counts"));
        assert!(refused(many(vec![], vec![Bytes::new()], vec![])).contains("the key is empty"));
        let named = |id: Vec<u8>| v1::NextRequest {
            key: to_key(&OwnedKey::Id(1)),
            request_id: Some(id.into()),
            ..v1::NextRequest::default()
        };
        for (id, why) in [(vec![], "the request id is empty"), (vec![7; 65], "has 65 bytes")] {
            let refused = Next::try_from(named(id)).unwrap_err();
            assert!(refused.message().contains(why), "{refused}");
        }
        let no_key = Next::try_from(v1::NextRequest::default()).unwrap_err();
        assert!(no_key.message().contains("the key is missing"), "{no_key}");
    }
}

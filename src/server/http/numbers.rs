//! Numbers: the next ones of a key, or of many keys, and the last one handed out.

use std::{pin::pin, sync::Arc};

use axum::{
    Json,
    body::{Body, Bytes},
    extract::State,
    http::HeaderMap,
    response::Response,
};
use futures::FutureExt;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    body,
    number::{Form, Given, Number, SHOWN, Shown},
    problem::{Problem, Problems},
    request::{Due, InPath, InQuery, Node, OfKey, OfNamespace, Timeout, action, in_path, in_query},
    serve::{key, serve},
};
use crate::{
    metrics::Door,
    node::{Asked, NodeContext, ROUTE_UNWANTED, Reservation, to_key},
    proto::{
        Refusal, refusal,
        v1::{CurrentRequest, Failure, NextManyRequest, NextRequest},
    },
    sequence::KeyKind,
    server::{errors::count_response_errors, written},
};

/// The most keys of a request.
const KEYS_MAX: usize = 4_096;
/// How many bytes an answer has for each key.
const KEY_BYTES: usize = 100;

/// What may follow the question mark.
const ALLOWED: &str = "count=N, and numbers=string or numbers=number";

/// What a path ends with that takes numbers.
const NEXT: &str = ":next";

/// What follows the question mark.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// How many numbers; 1 unless given.
    #[param(minimum = 1)]
    count: Option<u64>,
    /// The form of numbers in the answer.
    #[serde(default)]
    numbers: Form,
}

/// What the caller calls a request, so that it can ask again.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// What a request for numbers of one key may say, for the description of the API.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // The description alone reads it.
pub struct Idempotency {
    /// What the caller calls this request: 1 to 64 bytes, for example a UUID. Gapless namespaces alone know it. Whoever asks
    /// again with it is answered with the same numbers, as long as it is remembered.
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 64, pattern = "^[!-~]+$")]
    idempotency_key: Option<String>,
}

/// The request id in the headers.
fn idempotency_key(headers: &HeaderMap) -> Option<Bytes> {
    let given = headers.get(IDEMPOTENCY_KEY)?;
    Some(Bytes::copy_from_slice(given.as_bytes()))
}

/// Consecutive numbers of a key.
#[derive(Debug, Serialize, ToSchema)]
pub struct Range {
    /// The first number.
    first: Number,
    /// The last number.
    last: Number,
    /// The distance between two neighbours.
    increment: Number,
}

/// The last number handed out for a key.
#[derive(Debug, Serialize, ToSchema)]
pub struct Last {
    /// null before the first one.
    last: Option<Number>,
}

/// The keys whose numbers are asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ManyAsked {
    /// The keys, 1 to 4 096.
    #[schema(min_items = 1, max_items = 4096)]
    keys: Vec<Given>,
    /// How many numbers of each key. Empty: one of each.
    #[serde(default)]
    counts: Vec<Given>,
}

/// The numbers of many keys, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub struct Many {
    /// null for a key that got none.
    ranges: Vec<Option<Range>>,
    /// Why some keys got none: they have too few left.
    #[serde(skip_serializing_if = "Option::is_none")]
    exhausted: Option<String>,
    /// The keys that got none for other reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<RefusedKeys>,
}

/// Keys that got no numbers for one reason.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefusedKeys {
    /// Their places in the request, from 0.
    places: Vec<u32>,
    /// What was wrong, and what to do.
    why: String,
}

/// Takes the next numbers of a key. They are greater than every number that anyone got of it before.
#[utoipa::path(post, path = "/v1/namespaces/{namespace}/keys/{key}:next", tag = "numbers",
    params(OfKey, Options, Idempotency, Timeout),
    responses((status = 200, body = Range), Problems))]
pub async fn next(
    State(context): Node, due: Due, path: InPath<(String, String)>, options: InQuery<Options>,
    headers: HeaderMap,
) -> Result<Json<Range>, Problem> {
    let (namespace, written) = in_path(path)?;
    let options = in_query(options, ALLOWED)?;
    let written = action(&written, NEXT, "to take a number", "GET, HEAD")?;
    let message = NextRequest {
        key: to_key(&key(&context, &namespace, written.as_bytes(), due).await?),
        namespace,
        count: options.count,
        request_id: idempotency_key(&headers),
        route_version: ROUTE_UNWANTED,
        ..NextRequest::default()
    };
    let range = serve(&context, Asked::new(message)?, due).await?;
    Ok(Json(Range {
        first: Number(range.first, options.numbers),
        last: Number(range.last, options.numbers),
        increment: Number(range.increment, options.numbers),
    }))
}

/// Takes numbers of many keys at once.
#[utoipa::path(post, path = "/v1/namespaces/{namespace}:next", tag = "numbers",
    params(OfNamespace, Shown, Idempotency, Timeout),
    request_body = ManyAsked, responses((status = 200, body = Many), Problems))]
pub async fn next_many(
    State(context): Node, due: Due, path: InPath<String>, options: InQuery<Options>,
    headers: HeaderMap, body: Body,
) -> Result<Response, Problem> {
    let written = in_path(path)?;
    let options = in_query(options, ALLOWED)?;
    let to_take = "to take numbers of many keys";
    let namespace = action(&written, NEXT, to_take, "GET, HEAD, PATCH, DELETE")?;
    if options.count.is_some() {
        let why = "count is for one key; for many keys give \"counts\" in the body";
        return Err(refusal!(InvalidRequest, "{why}").into());
    }
    let asked: ManyAsked = body::json(&context, body, due).await?;
    let counts = asked.counts.iter().map(|count| count.number("count", 1));
    let counts = counts.collect::<Result<Vec<u64>, Refusal>>()?;
    let request = |ids, names| {
        Asked::new(NextManyRequest {
            namespace: namespace.to_owned(),
            ids,
            names,
            counts: counts.clone(),
            request_id: idempotency_key(&headers),
            route_version: ROUTE_UNWANTED,
            ..NextManyRequest::default()
        })
    };
    let (request, reservation) = of_keys(&context, namespace, &asked.keys, due, request).await?;
    let ranges = serve(&context, request, due).await?;
    count_response_errors(&context.metrics, Door::http, &ranges);
    let form = options.numbers;
    let range = |(place, first): (usize, u64)| {
        let count = counts.get(place).copied().unwrap_or(1);
        (first > 0).then(|| Range {
            first: Number(first, form),
            last: Number(first + (count - 1) * ranges.increment, form),
            increment: Number(ranges.increment, form),
        })
    };
    let firsts = ranges.firsts.iter().copied().enumerate();
    let answer = Many {
        ranges: firsts.map(range).collect(),
        exhausted: ranges.exhausted.map(|exhausted| told(exhausted.failure)),
        refused: (ranges.refused.into_iter())
            .map(|refused| RefusedKeys { places: refused.places, why: told(refused.failure) })
            .collect(),
    };
    body::reserved_json(&answer, reservation)
}

/// What was wrong, and what to do.
fn told(failure: Option<Failure>) -> String {
    failure.unwrap_or_default().message
}

/// The last number handed out for a key.
#[utoipa::path(get, path = "/v1/namespaces/{namespace}/keys/{key}", tag = "numbers",
    params(OfKey, Shown, Timeout),
    responses((status = 200, body = Last), Problems))]
pub async fn current(
    State(context): Node, due: Due, path: InPath<(String, String)>, shown: InQuery<Shown>,
) -> Result<Json<Last>, Problem> {
    let (namespace, written) = in_path(path)?;
    let form = in_query(shown, SHOWN)?.numbers;
    let message = CurrentRequest {
        key: to_key(&key(&context, &namespace, written.as_bytes(), due).await?),
        namespace,
        route_version: ROUTE_UNWANTED,
        members_version: None,
    };
    let current = serve(&context, Asked::new(message)?, due).await?;
    Ok(Json(Last { last: current.last.map(|last| Number(last, form)) }))
}

/// The request that `request` makes of the keys in a body, ids or names, and the memory of the answer. That is reserved once
/// the request is checked, or before anything is waited for.
///
/// # Errors
/// If there are too many keys, or the namespace takes others, or other requests hold the memory; and those of `request`.
pub(super) async fn of_keys<Q>(
    context: &Arc<NodeContext>, namespace: &str, given: &[Given], due: Due,
    request: impl FnOnce(Vec<u64>, Vec<Bytes>) -> Result<Asked<Q>, Refusal>,
) -> Result<(Asked<Q>, Reservation), Refusal> {
    let count = given.len();
    if count > KEYS_MAX {
        return Err(refusal!(InvalidRequest, "the body has {count} keys; give at most {KEYS_MAX}"));
    }
    let reserve = || context.request_memory.reserve(count * KEY_BYTES);
    let mut finding = pin!(context.leader.key_kind(namespace, due.deadline));
    let (kind, reserved) = match finding.as_mut().now_or_never() {
        Some(kind) => (kind, None),
        None => {
            let reserved = reserve()?;
            (finding.await, Some(reserved))
        }
    };
    let request = match kind? {
        KeyKind::Id => {
            let ids = given.iter().map(|key| match key {
                Given::Number(id) => Ok(*id),
                Given::Text(text) => written::id(namespace, text.as_bytes()),
            });
            request(ids.collect::<Result<_, Refusal>>()?, Vec::new())
        }
        KeyKind::Name => {
            let names = given.iter().map(|key| match key {
                Given::Text(name) => Ok(Bytes::copy_from_slice(name.as_bytes())),
                Given::Number(number) => Err(refusal!(
                    KeyKindMismatch,
                    "namespace '{namespace}' takes names as keys, which are strings, not {number}"
                )),
            });
            request(Vec::new(), names.collect::<Result<_, Refusal>>()?)
        }
    };
    Ok((request?, reserved.map_or_else(reserve, Ok)?))
}

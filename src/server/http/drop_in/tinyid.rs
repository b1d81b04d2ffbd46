//! Clients of Tinyid: `nextId` and `nextSegmentId` in JSON, and `nextIdSimple` and `nextSegmentIdSimple` as text. A
//! failure has the HTTP status 200 and a code, or an empty text. A parameter that cannot be read is status 400.
//! `segment.rs` makes segments, and `listed.rs` writes many numbers in one answer.
//!
//! Invariant: without the token of a type nobody learns whether the type exists.

mod listed;
mod segment;

use std::{borrow::Cow, sync::Arc};

use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use serde::Serialize;

use self::{
    listed::Listed,
    segment::{Segment, check_increment},
};
use super::{mapped::Mapped, parameters::Parameters};
use crate::{
    node::{Config, NodeContext, hash_of, row_of},
    proto::{Code, Refusal, refusal},
    sequence::{Range, Wanted},
    server::{
        http::{
            bodies::uncacheable,
            headers::{ContextState, Due},
            problem::Problem,
        },
        written::shown,
    },
};

/// The most numbers of one answer. A request for more gets that many, as from Tinyid.
const BATCH_MAX: u64 = 100_000;

/// The codes of answers.
const SUCCESS: u16 = 200;
const TOKEN_ERROR: u16 = 5;
const SYSTEM_ERROR: u16 = 6;

/// An answer in JSON.
#[derive(Debug, Serialize)]
struct TinyidAnswer<'a, T> {
    data: Option<T>,
    code: u16,
    message: &'a str,
}

/// `nextId`: numbers, in JSON.
pub async fn next_id(State(context): ContextState, due: Due, request: Request) -> Response {
    let (before, after) = ("{\"data\":[", "],\"code\":200,\"message\":\"\"}");
    let list = |range| Listed { media_type: "application/json", before, range, after };
    uncacheable(batch(&context, &due, request).await.map(list).map_err(failed))
}

/// `nextIdSimple`: numbers, as text.
pub async fn next_id_simple(State(context): ContextState, due: Due, request: Request) -> Response {
    let media_type = "text/plain; charset=utf-8";
    let list = |range| Listed { media_type, before: "", range, after: "" };
    uncacheable(batch(&context, &due, request).await.map(list).map_err(failed_simply))
}

/// `nextSegmentId`: a segment, in JSON.
pub async fn next_segment_id(State(context): ContextState, due: Due, request: Request) -> Response {
    let reply = |segment| Json(TinyidAnswer { data: Some(segment), code: SUCCESS, message: "" });
    uncacheable(segment(&context, &due, request).await.map(reply).map_err(failed))
}

/// `nextSegmentIdSimple`: a segment, as text.
pub async fn next_segment_id_simple(
    State(context): ContextState, due: Due, request: Request,
) -> Response {
    let write = |segment| {
        let Segment { current_id, loading_id, max_id, delta, remainder } = segment;
        format!("{current_id},{loading_id},{max_id},{delta},{remainder}")
    };
    uncacheable(segment(&context, &due, request).await.map(write).map_err(failed_simply))
}

/// The numbers that a request asks for; `None` if it asks for none.
async fn batch(
    context: &Arc<NodeContext>, due: &Due, request: Request,
) -> Result<Option<Range>, Problem> {
    let parameters = Parameters::read(context, due, request).await?;
    let count = batch_size(&parameters)?.min(context.config.count_max);
    let (of_type, due) = type_of(&parameters, context, due).await?;
    if count == 0 {
        return Ok(None);
    }
    let mapped = Mapped::find(context.config.tinyid_names(), &of_type, None)?;
    Ok(Some(mapped.next(context, count, &due).await?))
}

/// The segment that a request asks for.
async fn segment(
    context: &Arc<NodeContext>, due: &Due, request: Request,
) -> Result<Segment, Problem> {
    let parameters = Parameters::read(context, due, request).await?;
    let (of_type, due) = type_of(&parameters, context, due).await?;
    let mapped = Mapped::find(context.config.tinyid_names(), &of_type, None)?;
    let count = segment_size(&context.config, &of_type);
    let unfit = |why| mapped.warn_operator(refusal!(WrongState, "{why}"));
    if let Some(increment) = mapped.increment(context) {
        check_increment(increment).map_err(unfit)?;
    }
    let range = mapped.next(context, count, &due).await?;
    Ok(Segment::of(range).map_err(|why| {
        mapped.skip(context, count);
        unfit(why)
    })?)
}

/// The size of a segment of a type. The setting always has a row for any type
/// ([`SegmentSizes`](crate::node::settings::SegmentSizes)).
/// If it had none, a segment would have one number.
fn segment_size(config: &Config, of_type: &str) -> u64 {
    row_of(&config.tinyid_segment, config.tinyid_names().parameter, of_type)
        .map_or(1, |(numbers, _)| *numbers)
}

/// How many numbers a request asks for. As with Tinyid, a request without a size gets one number, and a size below 1 gets none.
fn batch_size(parameters: &Parameters) -> Result<u64, Refusal> {
    let given = parameters.one("batchSize")?.unwrap_or_default();
    let given = given.trim();
    if given.is_empty() {
        return Ok(1);
    }
    let size: i32 = given.parse().map_err(|_| {
        refusal!(
            InvalidRequest,
            "batchSize is '{}'; give an integer, or leave it out for 1",
            shown(given.as_bytes())
        )
    })?;
    Ok(u64::try_from(size).unwrap_or(0).min(BATCH_MAX))
}

/// The type that a request asks for, if the request has one of the type's tokens, or a token of the cluster. The asker is
/// the owner of that token then.
async fn type_of<'a>(
    parameters: &'a Parameters, context: &NodeContext, due: &Due,
) -> Result<(Cow<'a, str>, Due), Refusal> {
    let config = &context.config;
    let of_type = parameters.one("bizType")?.unwrap_or_default();
    let token = parameters.one("token")?.unwrap_or_default();
    let known = row_of(&config.tinyid_tokens, config.tinyid_names().parameter, &of_type);
    if known.is_some_and(|(known, _)| is_among(known, &token)) {
        context.admission.admit(&due.by, Wanted::Anything, due.deadline).await?;
        return Ok((of_type, due.clone()));
    }
    if !token.is_empty() {
        context.services.access.check_shows_no_token(&due.by)?;
    }
    // A token that is not known either gets Tinyid's own answer.
    let with_token = due.by.with_token(token.as_bytes());
    match context.admission.admit(&with_token, Wanted::Anything, due.deadline).await {
        Ok(()) => Ok((of_type, Due { by: with_token, ..due.clone() })),
        Err(refusal) if refusal.code() != Code::Unauthenticated => Err(refusal),
        Err(_) => Err(refusal!(
            Unauthenticated,
            "there is no such bizType, or the token is not one of its tokens"
        )),
    }
}

/// Whether a token is one of those in a text. Hashes are compared, so that the time of a comparison tells nothing of the
/// tokens.
fn is_among(known: &str, token: &str) -> bool {
    let token = hash_of(token.as_bytes());
    known.split_whitespace().any(|one| hash_of(one.as_bytes()) == token)
}

/// A failure in JSON.
fn failed(problem: Problem) -> Response {
    let code = match problem.code() {
        Code::Unauthenticated => TOKEN_ERROR,
        _ => SYSTEM_ERROR,
    };
    let reply: TinyidAnswer<()> = TinyidAnswer { data: None, code, message: problem.detail() };
    problem.told_as((status(&problem), Json(reply)))
}

/// A failure as text: the text is empty.
fn failed_simply(problem: Problem) -> Response {
    problem.told_as((status(&problem), ""))
}

fn status(problem: &Problem) -> StatusCode {
    match problem.code() {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_compared_with_each_of_a_type_as_a_whole() {
        assert!(["one", "two"].iter().all(|token| is_among(" one  two ", token)));
        for token in ["", "one two", "on", "onet", "One", " one"] {
            assert!(!is_among("one two", token), "{token:?}");
        }
        assert!(!is_among("", ""));
    }
}

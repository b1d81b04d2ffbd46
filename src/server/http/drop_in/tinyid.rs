//! Clients of Tinyid: `nextId` and `nextSegmentId` in JSON, and `nextIdSimple` and `nextSegmentIdSimple` as text. A
//! failure has the HTTP status 200 and a code, or an empty text. A parameter that cannot be read is status 400.
//!
//! Invariant: without the token of a type nobody learns whether the type exists.

use std::{borrow::Cow, sync::Arc};

use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::{listed::Listed, mapped::Mapped, parameters::Parameters, segment::Segment};
use crate::{
    node::{Config, NodeContext},
    proto::{Code, Refusal, refusal},
    sequence::Range,
    server::{
        http::{
            body::uncacheable,
            problem::Problem,
            request::{Due, Node},
        },
        written::shown,
    },
};

/// The most numbers of one answer. A request for more gets so many, as from Tinyid.
const BATCH_MAX: u64 = 100_000;

/// The setting that says which key each type stands for.
const TYPES: &str = "tinyid_types";

/// The codes of answers.
const SUCCESS: u16 = 200;
const TOKEN_ERROR: u16 = 5;
const SYSTEM_ERROR: u16 = 6;

/// An answer in JSON.
#[derive(Debug, Serialize)]
struct Reply<'a, T> {
    data: Option<T>,
    code: u16,
    message: &'a str,
}

/// `nextId`: numbers, in JSON.
pub async fn next_id(State(context): Node, due: Due, request: Request) -> Response {
    uncacheable(match batch(&context, due, request).await {
        Ok(range) => Listed {
            media_type: "application/json",
            before: "{\"data\":[",
            range,
            after: "],\"code\":200,\"message\":\"\"}",
        }
        .into_response(),
        Err(problem) => failed(&problem),
    })
}

/// `nextIdSimple`: numbers, as text.
pub async fn next_id_simple(State(context): Node, due: Due, request: Request) -> Response {
    uncacheable(match batch(&context, due, request).await {
        Ok(range) => {
            Listed { media_type: "text/plain; charset=utf-8", before: "", range, after: "" }
                .into_response()
        }
        Err(problem) => failed_simply(&problem),
    })
}

/// `nextSegmentId`: a segment, in JSON.
pub async fn next_segment_id(State(context): Node, due: Due, request: Request) -> Response {
    uncacheable(match segment(&context, due, request).await {
        Ok(segment) => {
            Json(Reply { data: Some(segment), code: SUCCESS, message: "" }).into_response()
        }
        Err(problem) => failed(&problem),
    })
}

/// `nextSegmentIdSimple`: a segment, as text.
pub async fn next_segment_id_simple(State(context): Node, due: Due, request: Request) -> Response {
    uncacheable(match segment(&context, due, request).await {
        Ok(segment) => {
            let Segment { current_id, loading_id, max_id, delta, remainder } = segment;
            format!("{current_id},{loading_id},{max_id},{delta},{remainder}").into_response()
        }
        Err(problem) => failed_simply(&problem),
    })
}

/// The numbers that a request asks for; `None` if it asks for none.
async fn batch(
    context: &Arc<NodeContext>, due: Due, request: Request,
) -> Result<Option<Range>, Problem> {
    let parameters = Parameters::read(context, due, request).await?;
    let count = batch_size(&parameters)?.min(context.config.count_max);
    let of_type = type_of(&parameters, &context.config)?;
    if count == 0 {
        return Ok(None);
    }
    let mapped = Mapped::find(TYPES, &context.config.tinyid_types, &of_type)?;
    Ok(Some(mapped.next(context, count, due).await?))
}

/// The segment that a request asks for.
async fn segment(
    context: &Arc<NodeContext>, due: Due, request: Request,
) -> Result<Segment, Problem> {
    let parameters = Parameters::read(context, due, request).await?;
    let of_type = type_of(&parameters, &context.config)?;
    let mapped = Mapped::find(TYPES, &context.config.tinyid_types, &of_type)?;
    let count = context.config.tinyid_segment;
    let range = mapped.next(context, count, due).await?;
    let segment = Segment::of(range);
    Ok(segment.map_err(|why| mapped.warn_operator(refusal!(WrongState, "{why}")))?)
}

/// How many numbers a request asks for. As with Tinyid it is 1 if it says nothing, and none if it asks for less.
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

/// The type that a request asks for, if it has one of the type's tokens.
fn type_of<'a>(parameters: &'a Parameters, config: &Config) -> Result<Cow<'a, str>, Refusal> {
    let of_type = parameters.one("bizType")?.unwrap_or_default();
    let token = parameters.one("token")?.unwrap_or_default();
    let known = config.tinyid_tokens.get(&*of_type);
    let is_known = known.is_some_and(|known| known.split_whitespace().any(|one| one == token));
    match is_known {
        true => Ok(of_type),
        false => Err(refusal!(
            Unauthenticated,
            "there is no such bizType, or the token is not one of its tokens"
        )),
    }
}

/// A failure in JSON.
fn failed(problem: &Problem) -> Response {
    let code = match problem.code() {
        Code::Unauthenticated => TOKEN_ERROR,
        _ => SYSTEM_ERROR,
    };
    let reply: Reply<()> = Reply { data: None, code, message: problem.detail() };
    problem.told_as((status(problem), Json(reply)))
}

/// A failure as text: there is none.
fn failed_simply(problem: &Problem) -> Response {
    problem.told_as((status(problem), ""))
}

fn status(problem: &Problem) -> StatusCode {
    match problem.code() {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

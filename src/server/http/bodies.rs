//! Bodies of requests and of answers. The body of a request is read within limits of its size, of its time, and of the memory
//! of all requests. Long answers take of that memory, too.
//!
//! Invariant: before many bytes of a request's body are kept, memory is reserved for them.

use std::fmt::Display;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use hyper::body::Body as _;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout_at;

use super::{headers::Due, problem::Problem};
use crate::{
    node::{NodeContext, Reservation},
    proto::{Refusal, refusal, refuse},
    sequence::Wanted,
    server::{
        connections::{
            answer_memory::until_sent, unfinished::CLIENT_MESSAGE_BYTES_MAX,
            until_known::STRANGERS_BYTES_MAX,
        },
        written::shown,
    },
};

/// The answer, with a mark that no cache may keep it: the next answer is another one.
pub fn uncacheable(answer: impl IntoResponse) -> Response {
    let mut answer = answer.into_response();
    forbid_caching(answer.headers_mut());
    answer
}

/// Marks an answer with these headers: no cache may keep it.
pub fn forbid_caching(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, const { HeaderValue::from_static("no-store") });
}

/// An answer as it is sent.
pub type HttpAnswer = axum::http::Response<tonic::body::Body>;

/// An answer in JSON. The memory that is reserved for it is freed once its bytes are sent, or dropped.
///
/// # Errors
/// INTERNAL if it cannot be written as JSON.
pub fn reserved_json(
    answer: &impl Serialize, reservation: impl Into<Option<Reservation>>,
) -> Result<HttpAnswer, Problem> {
    let written = serde_json::to_string(answer);
    let written = written.map_err(|error| refusal!(Internal, "{error}"))?;
    let mut reservation = reservation.into();
    if let Some(reservation) = &mut reservation {
        reservation.resize(written.len());
    }
    let mut response = HttpAnswer::new(tonic::body::Body::new(written));
    // Checked by the compiler, and not for each answer.
    let json = const { HeaderValue::from_static("application/json") };
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    until_sent(response.extensions_mut(), reservation);
    Ok(response)
}

/// Reads a body as JSON of type `T`. Also returns the memory that is reserved for its bytes, because the value takes as much.
///
/// # Errors
/// INVALID_ARGUMENT if it is larger than [`CLIENT_MESSAGE_BYTES_MAX`], or is not JSON of this type; RESOURCE_EXHAUSTED if
/// other requests hold the memory; DEADLINE_EXCEEDED if it does not arrive in time; UNAVAILABLE if the connection breaks.
pub async fn json<T: DeserializeOwned>(
    context: &NodeContext, body: Body, due: &Due,
) -> Result<(T, Option<Reservation>), Refusal> {
    let (bytes, reserved) = bytes(context, body, due).await?;
    let mut json = serde_json::Deserializer::from_slice(&bytes);
    let read = serde_path_to_error::deserialize(&mut json);
    let read = read.map_err(|error| unreadable("the body", error))?;
    json.end().map_err(|error| unreadable("the body", error))?;
    Ok((read, reserved))
}

/// Why a part of a request cannot be read.
pub fn unreadable(part: &str, why: impl Display) -> Refusal {
    refusal!(InvalidRequest, "{part} is not as /openapi.json describes it: {why}")
}

/// Checks that a body is not compressed.
///
/// # Errors
/// INVALID_ARGUMENT if the headers say that it is.
pub fn check_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(encoding) = headers.get(header::CONTENT_ENCODING) else {
        return Ok(());
    };
    Err(refusal!(
        InvalidRequest,
        "the body is compressed ({}: {}), and no node reads such; send it as it is",
        header::CONTENT_ENCODING,
        shown(encoding.as_bytes())
    ))
}

/// Reads the bytes of a body. Also returns the memory that is reserved for them.
///
/// # Errors
/// Those of [`json()`], except that the bytes need not be JSON.
pub async fn bytes(
    context: &NodeContext, body: Body, due: &Due,
) -> Result<(Bytes, Option<Reservation>), Refusal> {
    bytes_up_to(CLIENT_MESSAGE_BYTES_MAX, context, body, due).await
}

/// A body with at most so many bytes surely arrives from a stranger, whose connection brings a bounded number of bytes: the
/// head of the request takes some of them.
const STRANGERS_BODY_MAX: u64 = STRANGERS_BYTES_MAX as u64 / 2;

/// Reads the bytes of a body as [`bytes`] does, but at most `bytes_max` of them.
///
/// # Errors
/// INVALID_ARGUMENT if there are more than `bytes_max`; those of `Admission::admit` if there may be more than a stranger's
/// connection brings; else those of [`bytes`].
pub async fn bytes_up_to(
    bytes_max: usize, context: &NodeContext, body: Body, due: &Due,
) -> Result<(Bytes, Option<Reservation>), Refusal> {
    if body.is_end_stream() {
        return Ok((Bytes::new(), None));
    }
    // A longer body of a stranger would never arrive, and the caller would not be told why.
    if body.size_hint().upper().is_none_or(|most| most > STRANGERS_BODY_MAX) {
        context.admission.admit(&due.by, Wanted::Anything, due.deadline).await?;
    }
    let reading = timeout_at(due.deadline, read(context, body, bytes_max)).await;
    reading.map_err(|_| refusal!(DeadlineExceeded, "the body did not arrive in time").not_done())?
}

async fn read(
    context: &NodeContext, body: Body, bytes_max: usize,
) -> Result<(Bytes, Option<Reservation>), Refusal> {
    let mut parts = body.into_data_stream();
    let mut bytes = BytesMut::new();
    let mut reserved = None;
    while let Some(part) = parts.next().await {
        let part =
            part.map_err(|error| refusal!(InvalidRequest, "the body ends early: {error}"))?;
        let length = bytes.len() + part.len();
        if length > bytes_max {
            refuse!(
                InvalidRequest,
                "the body has more than {bytes_max} bytes; send less at a time"
            );
        }
        // The old memory is released first, because the new one contains it.
        drop(reserved.take());
        reserved = context.request_memory.reserve_if_many(length)?;
        bytes.put(part);
    }
    Ok((bytes.freeze(), reserved))
}

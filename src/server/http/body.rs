//! Bodies. That of a request is read within limits of its size, of the time, and of the memory of all requests. That memory
//! also holds long answers.

use std::fmt::Display;

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout_at;

use super::{problem::Problem, request::Due};
use crate::{
    node::{NodeContext, Reservation},
    proto::{Refusal, refusal},
    server::{held::until_sent, unfinished::CLIENT_MESSAGE_BYTES_MAX},
};

/// The answer, marked for caches as one that they may not keep and give again: the next one is another.
pub fn uncacheable(answer: impl IntoResponse) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], answer).into_response()
}

/// An answer in JSON. The memory that is reserved for it is given back once its bytes are sent, or dropped.
///
/// # Errors
/// INTERNAL if it cannot be written as JSON.
pub fn reserved_json(
    answer: &impl Serialize, reservation: impl Into<Option<Reservation>>,
) -> Result<Response, Problem> {
    let written = serde_json::to_vec(answer);
    let written = written.map_err(|error| refusal!(Internal, "{error}"))?;
    let mut reservation = reservation.into();
    if let Some(reservation) = &mut reservation {
        reservation.resize(written.len());
    }
    let mut response = ([(header::CONTENT_TYPE, "application/json")], written).into_response();
    until_sent(response.extensions_mut(), reservation);
    Ok(response)
}

/// Reads a body as JSON of type `T`. The memory that is reserved for its bytes comes with it: what was read holds as much.
///
/// # Errors
/// INVALID_ARGUMENT if it is larger than [`CLIENT_MESSAGE_BYTES_MAX`], or is not JSON of this type; RESOURCE_EXHAUSTED if
/// other requests hold the memory; DEADLINE_EXCEEDED if it does not arrive in time; UNAVAILABLE if the connection breaks.
pub async fn json<T: DeserializeOwned>(
    context: &NodeContext, body: Body, due: Due,
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

/// Reads the bytes of a body. The memory that is reserved for them comes with them.
///
/// # Errors
/// As [`json`], but for what the bytes are.
pub async fn bytes(
    context: &NodeContext, body: Body, due: Due,
) -> Result<(Bytes, Option<Reservation>), Refusal> {
    let reading = timeout_at(due.deadline, read(context, body)).await;
    reading.map_err(|_| refusal!(DeadlineExceeded, "the body did not arrive in time"))?
}

async fn read(context: &NodeContext, body: Body) -> Result<(Bytes, Option<Reservation>), Refusal> {
    let mut parts = body.into_data_stream();
    let mut bytes = BytesMut::new();
    let mut reserved = None;
    while let Some(part) = parts.next().await {
        let part =
            part.map_err(|error| refusal!(InvalidRequest, "the body ends early: {error}"))?;
        let length = bytes.len() + part.len();
        if length > CLIENT_MESSAGE_BYTES_MAX {
            return Err(refusal!(
                InvalidRequest,
                "the body has more than {CLIENT_MESSAGE_BYTES_MAX} bytes; send several requests"
            ));
        }
        // Released first: the new reservation contains the bytes of the old one.
        drop(reserved.take());
        reserved = context.request_memory.reserve_if_many(length)?;
        bytes.put(part);
    }
    Ok((bytes.freeze(), reserved))
}

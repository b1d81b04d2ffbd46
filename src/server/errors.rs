//! Counts the errors that callers get.
//!
//! Invariant: each is counted once, where it leaves this node for a caller; not at the node that a
//! request was forwarded to.

use std::sync::Arc;

use tonic::{
    Code, Status,
    codegen::http::{HeaderMap, Response},
};
use tower::util::MapResponseLayer;

use crate::{
    metrics::Metrics,
    node::{Failure, RETRY_AFTER_MS},
    proto::v1::NextStreamResponse,
};

/// After how many milliseconds gRPC's clients retry, where they are told to retry at all (gRFC A6).
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// What a client is told.
pub fn to_client(failure: Failure) -> Status {
    match failure {
        Failure::Status(mut status) => {
            if status.code() == Code::ResourceExhausted {
                status
                    .metadata_mut()
                    .insert(PUSHBACK, RETRY_AFTER_MS.into());
            }
            status
        }
        // Only a peer's request ends so.
        Failure::NotLeader(_) => Status::internal("a client's request was not forwarded"),
    }
}

/// A layer that counts calls which end in an error, whoever refused them.
pub fn counting<B>(
    metrics: Arc<Metrics>,
) -> MapResponseLayer<impl Fn(Response<B>) -> Response<B> + Clone> {
    MapResponseLayer::new(move |response: Response<B>| {
        count_call(&metrics, response.headers());
        response
    })
}

/// Counts a stream that ended with an error after its headers were sent.
pub fn count_stream_error(metrics: &Metrics, status: &Status) {
    count(metrics, status.code(), 1);
}

/// A call that failed has its code in the headers: nothing follows them.
fn count_call(metrics: &Metrics, headers: &HeaderMap) {
    if let Some(code) = headers.get("grpc-status") {
        count(metrics, Code::from_bytes(code.as_bytes()), 1);
    }
}

/// Counts the errors in a message of a stream.
pub fn count_response_errors(metrics: &Metrics, answer: &NextStreamResponse) {
    if let Some(failure) = &answer.failure {
        count(metrics, Code::from_i32(failure.code), 1);
    }
    if let Some(exhausted) = &answer.exhausted {
        let keys = exhausted.places.len() as u64;
        count(metrics, Code::OutOfRange, keys);
    }
}

fn count(metrics: &Metrics, code: Code, n: u64) {
    if code != Code::Ok {
        metrics.errors.add(code, n);
    }
}

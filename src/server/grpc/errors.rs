//! The errors that clients get: their gRPC status, and their count.
//!
//! Invariant: each error is counted once, by the node that sends it to the client. A node that a request was
//! forwarded to does not count it.

use std::sync::Arc;

use tonic::{Code, Status};
use tower::util::MapResponseLayer;

use crate::{
    metrics::{Interface, Metrics},
    node::Unanswered,
    proto::{Refusal, v1::NextManyResponse},
};

impl From<Unanswered> for Status {
    fn from(unanswered: Unanswered) -> Self {
        Refusal::from(unanswered).into()
    }
}

/// A layer that counts the calls that fail before a response begins, whether a service or a layer below
/// this one refused them.
pub fn counting<B>(
    metrics: Arc<Metrics>,
) -> MapResponseLayer<impl Fn(hyper::Response<B>) -> hyper::Response<B> + Clone> {
    MapResponseLayer::new(move |response: hyper::Response<B>| {
        // One that is an error consists of headers alone, and the code is in them.
        if let Some(code) = response.headers().get("grpc-status") {
            count(&metrics, Interface::grpc, Code::from_bytes(code.as_bytes()), 1);
        }
        response
    })
}

/// Counts the error that ends a stream after its headers were sent: [`counting`] does not see it.
pub fn count_stream_error(metrics: &Metrics, status: &Status) {
    count(metrics, Interface::grpc, status.code(), 1);
}

/// Counts the errors inside one response of a stream: that of the whole request, and one for each key that is exhausted
/// or refused.
pub fn count_response_errors(metrics: &Metrics, interface: Interface, answer: &NextManyResponse) {
    if let Some(failure) = &answer.failure {
        count(metrics, interface, Code::from_i32(failure.code), 1);
    }
    if let Some(exhausted) = &answer.exhausted {
        let keys = exhausted.places.len() as u64;
        count(metrics, interface, Code::OutOfRange, keys);
    }
    for refused in &answer.refused {
        let code = refused.failure.as_ref().map_or(0, |failure| failure.code);
        count(metrics, interface, Code::from_i32(code), refused.places.len() as u64);
    }
}

fn count(metrics: &Metrics, interface: Interface, code: Code, n: u64) {
    if code != Code::Ok {
        metrics.errors.of(interface).add(code, n);
    }
}

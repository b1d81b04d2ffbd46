//! The door for HTTP: numbers, namespaces and the status, in JSON.
//!
//! From a socket to a number: `numbers.rs` and `namespaces.rs` turn a request into the same one as gRPC's, `body.rs` reads
//! a body within its limits, `number.rs` writes numbers, and `problem.rs` what went wrong.
//!
//! Invariant: a number is written as a string unless the caller asks for another form. In JavaScript, and wherever else
//! numbers are floating, those above 2^53 would be rounded.

mod body;
mod namespaces;
mod number;
mod numbers;
mod problem;
mod request;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    routing::get,
};
use tonic::Status;

use problem::Problem;
use request::Node;

use crate::node::NodeContext;

/// The routes of the port.
pub fn routes(context: Arc<NodeContext>) -> Router {
    Router::new()
        .route(
            "/v1/namespaces",
            get(namespaces::list).post(namespaces::create),
        )
        .route(
            "/v1/namespaces/{namespace}",
            get(namespaces::get)
                .patch(namespaces::update)
                .post(numbers::next_many),
        )
        .route(
            "/v1/namespaces/{namespace}/keys/{key}",
            get(numbers::current).post(numbers::next),
        )
        .route("/v1/status", get(namespaces::status))
        .fallback(nothing_here)
        .method_not_allowed_fallback(other_method)
        .with_state(context)
}

async fn nothing_here(State(context): Node, request: Request) -> Problem {
    let path = request.uri().path();
    Problem::new(
        &context,
        Status::not_found(format!(
            "{path} does not exist; numbers are taken with POST /v1/namespaces/book/keys/42:next"
        )),
    )
}

async fn other_method(State(context): Node, request: Request) -> Problem {
    let (method, path) = (request.method(), request.uri().path());
    Problem::new(
        &context,
        Status::unimplemented(format!("{path} does not take {method}")),
    )
}

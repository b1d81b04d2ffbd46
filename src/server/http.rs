//! The door for HTTP: numbers, namespaces and the status, in JSON.
//!
//! From a socket to a number: `numbers.rs` and `namespaces.rs` turn a request into the same one as gRPC's, `body.rs` reads
//! a body within its limits, `number.rs` writes numbers, and `problem.rs` what went wrong.
//!
//! Invariant: a number is written as a string unless the caller asks for another form. In JavaScript, and wherever else
//! numbers are floating, those above 2^53 would be rounded.

mod administer;
mod body;
mod members;
mod namespaces;
mod number;
mod numbers;
mod openapi;
mod page;
mod problem;
mod request;
mod status;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    routing::{get, post},
};
use tonic::Status;

use problem::Problem;
use request::Node;

use crate::node::NodeContext;

pub use page::Live;

/// The routes of the port. `live` is what the status page shows.
pub fn routes(context: Arc<NodeContext>, live: Live) -> Router {
    let watch = |State(context): Node| async move { live.watch(&context) };
    Router::new()
        .route("/", get(page::page))
        .route("/events", get(watch))
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
        .route("/v1/status", get(status::status))
        .route("/v1/members", post(members::add))
        .route(
            "/v1/members/{id}",
            post(members::promote)
                .patch(members::update)
                .delete(members::remove),
        )
        .route("/v1/leader:transfer", post(members::transfer))
        .route("/openapi.json", get(openapi::document))
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

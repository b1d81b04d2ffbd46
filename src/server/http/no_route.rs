//! What is answered where nothing is, and to a method that a path does not take.

use axum::{
    extract::{Request, State},
    http::Uri,
};
use tonic::Status;

use super::{problem::Problem, request::Node};
use crate::node::NodeContext;

/// The problem that there is nothing at a path.
pub fn nothing_at(context: &NodeContext, uri: &Uri) -> Problem {
    let path = uri.path();
    Problem::new(
        context,
        Status::not_found(format!(
            "{path} does not exist; numbers are taken with POST /v1/namespaces/book/keys/42:next"
        )),
    )
}

/// Answers a request for a path where nothing is.
pub async fn nothing_here(State(context): Node, uri: Uri) -> Problem {
    nothing_at(&context, &uri)
}

/// Answers a request with a method that the path does not take.
pub async fn other_method(State(context): Node, request: Request) -> Problem {
    let (method, path) = (request.method(), request.uri().path());
    Problem::new(&context, Status::unimplemented(format!("{path} does not take {method}")))
}

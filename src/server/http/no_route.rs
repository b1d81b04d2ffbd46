//! What is answered where nothing is, and to a method that a path does not take.

use axum::{extract::Request, http::Uri};
use tonic::Status;

use super::problem::Problem;
use crate::proto::{Refusal, refusal};

/// Answers a request for a path where nothing is.
pub async fn nothing_here(uri: Uri) -> Problem {
    let path = uri.path();
    let why = format!(
        "{path} does not exist; numbers are taken with POST /v1/namespaces/book/keys/42:next"
    );
    Refusal::from(Status::not_found(why)).into()
}

/// Answers a request with a method that the path does not take.
pub async fn other_method(request: Request) -> Problem {
    let (method, path) = (request.method(), request.uri().path());
    refusal!(Unsupported, "{path} does not take {method}").into()
}

//! What every request has: a deadline and a path.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts, Path, State, rejection::PathRejection},
    http::request::Parts,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::problem::Problem;
use crate::{
    node::NodeContext,
    proto::{Refusal, refusal},
    server::{
        deadline::budget,
        written::{integer, shown},
    },
};

/// How long the caller waits for the answer, in milliseconds.
const TIMEOUT_HEADER: &str = "ratchet-timeout-ms";

/// What every request may say, for the description of the API.
pub fn describe_timeout() -> Value {
    json!({
        "name": TIMEOUT_HEADER,
        "in": "header",
        "description": "How long the caller waits for the answer, in milliseconds.",
        "schema": {"type": "integer", "minimum": 1},
    })
}

/// What every handler is given.
pub type Node = State<Arc<NodeContext>>;

/// What is in the path, or why it cannot be read.
pub type InPath<T> = Result<Path<T>, PathRejection>;

/// When a request is to be answered.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    /// When it is to be answered.
    pub deadline: Instant,
}

impl FromRequestParts<Arc<NodeContext>> for Due {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts, context: &Arc<NodeContext>,
    ) -> Result<Self, Problem> {
        let arrived = Instant::now();
        let patience = parts.headers.get(TIMEOUT_HEADER).map(|value| {
            let millis = integer(value.as_bytes());
            millis.filter(|millis| *millis > 0).ok_or_else(|| {
                let value = shown(value.as_bytes());
                refusal!(
                    InvalidRequest,
                    "{TIMEOUT_HEADER} is '{value}'; give milliseconds, at least 1"
                )
            })
        });
        let patience = patience.transpose()?.map(Duration::from_millis);
        Ok(Due { deadline: arrived + budget(patience, &context.config) })
    }
}

/// What is in the path.
///
/// # Errors
/// INVALID_ARGUMENT if it is no text.
pub fn in_path<T>(path: InPath<T>) -> Result<T, Refusal> {
    let invalid = |error: PathRejection| refusal!(InvalidRequest, "{}", error.body_text());
    path.map(|Path(path)| path).map_err(invalid)
}

//! What every request has: a deadline, a path, and what follows the question mark.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{
        FromRequestParts, Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    http::{HeaderValue, request::Parts},
};
use tokio::time::Instant;
use utoipa::{
    IntoParams,
    openapi::{Object, ObjectBuilder, schema::Type},
};

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
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // The description alone reads it.
pub struct Timeout {
    /// How long the caller waits for the answer, in milliseconds.
    #[param(rename = "ratchet-timeout-ms", schema_with = from_one)]
    timeout_ms: Option<u64>,
}

/// The namespace that a path names, for the description of the API.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // The description alone reads it.
pub struct OfNamespace {
    /// The namespace's name.
    namespace: String,
}

/// The key that a path names, for the description of the API.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // The description alone reads it.
pub struct OfKey {
    /// The namespace's name.
    namespace: String,
    /// The key: an integer from 0 to 2^64 - 1, or a name.
    key: String,
}

/// The schema of an integer from 1 on.
fn from_one() -> Object {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).build()
}

/// What every handler is given.
pub type Node = State<Arc<NodeContext>>;

/// What is in the path, or why it cannot be read.
pub type InPath<T> = Result<Path<T>, PathRejection>;
/// What follows the question mark, or why it cannot be read.
pub type InQuery<T> = Result<Query<T>, QueryRejection>;

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

/// What comes before `action` at the end of a path that takes POST for this alone. Without it the path takes the methods in
/// `others`.
///
/// # Errors
/// UNIMPLEMENTED if the path does not end with `action`.
pub fn action<'a>(
    written: &'a str, action: &str, to_do: &str, others: &'static str,
) -> Result<&'a str, Problem> {
    written.strip_suffix(action).ok_or_else(|| {
        let refusal = refusal!(
            Unsupported,
            "the path ends with '{}'; {to_do} it must end with '{action}'",
            shown(written.as_bytes())
        );
        let mut problem = Problem::from(refusal);
        problem.allow = Some(HeaderValue::from_static(others));
        problem
    })
}

/// What follows the question mark.
///
/// # Errors
/// INVALID_ARGUMENT if it is something else than `allowed`.
pub fn in_query<T>(query: InQuery<T>, allowed: &str) -> Result<T, Refusal> {
    let invalid = |error: QueryRejection| {
        refusal!(InvalidRequest, "{}; there is {allowed}", error.body_text())
    };
    query.map(|Query(query)| query).map_err(invalid)
}

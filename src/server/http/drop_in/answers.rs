//! What the answers to clients of other generators share.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};

/// The answer, marked as one that no proxy may keep: a number that is given again is a duplicate.
pub fn uncacheable(answer: impl IntoResponse) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], answer).into_response()
}

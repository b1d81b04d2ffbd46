//! Answers that nobody may keep and give again: the next one is another.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};

/// The answer, marked for caches as one that they may not keep.
pub fn uncacheable(answer: impl IntoResponse) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], answer).into_response()
}

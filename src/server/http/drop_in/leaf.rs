//! Clients of Leaf: `GET /api/segment/get/{tag}`, answered with the number as plain text. Whatever fails is status 500
//! with a text that is no number.

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};

use super::mapped::Mapped;
use crate::server::http::{
    request::{Due, InPath, Node, in_path},
    serve::answer,
    uncacheable::uncacheable,
};

/// The next number of a tag.
pub async fn next(State(context): Node, due: Due, path: InPath<String>) -> Response {
    let taken = async {
        let tag = in_path(path)?;
        let mapped = Mapped::find("leaf_tags", &context.config.leaf_tags, &tag)?;
        mapped.next(&context, 1, due).await
    };
    uncacheable(match answer(&context, due, taken).await {
        Ok(range) => range.first.to_string().into_response(),
        Err(problem) => {
            let text = problem.detail().to_owned();
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    })
}

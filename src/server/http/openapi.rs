//! The description of the API, in OpenAPI 3.1: made from the handlers and their types.

use std::sync::LazyLock;

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use utoipa::OpenApi;

use super::{members, namespaces, numbers, status};

/// The API.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Ratchet",
        description = "Strictly increasing numbers, one sequence per key. Any node may be asked. Numbers are strings \
                       unless numbers=number is asked for. A failure is a problem as RFC 9457 has it.",
    ),
    paths(
        numbers::next,
        numbers::next_many,
        numbers::current,
        namespaces::list,
        namespaces::get,
        namespaces::create,
        namespaces::update,
        status::status,
        members::add,
        members::promote,
        members::update,
        members::remove,
        members::transfer,
    ),
    tags(
        (name = "numbers", description = "The next numbers of keys, and the last ones handed out"),
        (name = "namespaces", description = "Families of sequences with one configuration"),
        (name = "cluster", description = "The members of the cluster, and which one leads"),
    )
)]
pub struct Api;

/// The description as JSON.
static JSON: LazyLock<String> = LazyLock::new(|| Api::openapi().to_json().unwrap_or_default());

/// `GET /openapi.json`.
pub async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], JSON.as_str()).into_response()
}

//! The description of the API, in OpenAPI 3.1: made from the handlers and their types.

use std::sync::LazyLock;

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use serde_json::Value;
use utoipa::OpenApi;

use super::{
    addressed::Described, delete_namespace, export, floors, gaps, ids, keys, members, namespaces,
    number::Form, numbers, status,
};

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
        ids::next,
        ids::formats,
        ids::explain,
        ids::decode,
        floors::raise,
        floors::raise_many,
        floors::current_many,
        keys::list,
        keys::explain,
        namespaces::list,
        namespaces::get,
        namespaces::create,
        namespaces::update,
        delete_namespace::delete,
        gaps::gaps,
        export::export,
        status::status,
        members::found,
        members::add,
        members::promote,
        members::update,
        members::remove,
        members::transfer,
    ),
    components(schemas(Form)),
    modifiers(&Described),
    tags(
        (name = "numbers", description = "The next numbers of keys, and the last ones handed out"),
        (name = "ids", description = "Ids with a shape, made of fields such as a time, a worker and a counter"),
        (name = "namespaces", description = "Families of sequences with one configuration"),
        (name = "cluster", description = "The founding of the cluster, its members, and which one leads"),
    )
)]
pub struct Api;

/// The description. That it can be written as JSON follows from the types alone; a test writes it.
static API: LazyLock<Value> =
    LazyLock::new(|| serde_json::to_value(Api::openapi()).expect("the description is JSON"));

/// The description of the API.
pub fn api() -> &'static Value {
    &API
}

/// The description as it is sent.
static JSON: LazyLock<String> = LazyLock::new(|| api().to_string());

/// `GET /openapi.json`.
pub async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], JSON.as_str()).into_response()
}

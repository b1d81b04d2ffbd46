//! The description of the API, in OpenAPI 3.1: made from `proto`, and for what is not described there from the handlers and
//! their types.

mod from_proto;

use std::sync::LazyLock;

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use utoipa::OpenApi;

use super::{addressed, export, floors, ids, number::Form, numbers};

/// The API.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Ratchet",
        description = "Strictly increasing numbers, one sequence per key. Any node may be asked. Numbers of \
                       64 bits are strings unless numbers=number is asked for, where that is possible. A failure is a \
                       problem as RFC 9457 has it.",
    ),
    paths(
        numbers::next,
        numbers::next_many,
        numbers::current,
        ids::next,
        floors::raise,
        floors::raise_many,
        floors::current_many,
        export::export,
    ),
    components(schemas(Form)),
    tags(
        (name = "numbers", description = "The next numbers of keys, and the last ones handed out"),
        (name = "ids", description = "Ids with a shape, made of fields such as a time, a worker and a counter"),
        (name = "formats", description = "Formats of ids"),
        (name = "namespaces", description = "Families of sequences with one configuration"),
        (name = "cluster", description = "The founding of the cluster"),
        (name = "status", description = "What the leader knows of the cluster"),
        (name = "nodes", description = "The members of the cluster"),
        (name = "leader", description = "Which member leads"),
    )
)]
pub struct Api;

/// The description as it is sent. That it can be written as JSON follows from the types alone; a test writes it.
static JSON: LazyLock<String> = LazyLock::new(|| {
    let mut api = serde_json::to_value(Api::openapi()).expect("the description is JSON");
    from_proto::add_to(&mut api);
    addressed::describe(&mut api);
    api.to_string()
});

/// `GET /openapi.json`.
pub async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], JSON.as_str()).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// All that a value holds, itself first.
    fn all_in(value: &Value) -> Vec<&Value> {
        let inner: Vec<&Value> = match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(members) => members.values().collect(),
            _ => Vec::new(),
        };
        [value].into_iter().chain(inner.into_iter().flat_map(all_in)).collect()
    }

    #[test]
    fn every_operation_has_a_tag_that_is_described_and_no_reference_leads_nowhere() {
        let api: Value = serde_json::from_str(&JSON).unwrap();
        let paths = api["paths"].as_object().unwrap().values();
        let operations: Vec<&Value> =
            paths.flat_map(|path| path.as_object().unwrap().values()).collect();
        assert_eq!(operations.len(), 27);
        for operation in operations {
            let mut tags = api["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]);
            assert!(tags.any(|tag| *tag == operation["tags"][0]), "{operation}");
            let parameters = operation["parameters"].as_array().unwrap();
            let named = |name: &str| parameters.iter().any(|parameter| parameter["name"] == *name);
            assert!(named("ratchet-cluster-id") && named("ratchet-timeout-ms"), "{operation}");
        }
        let all = all_in(&api);
        assert!(
            all.iter().all(|value| value.get("description") != Some(&Value::Null)),
            "a comment"
        );
        let references = all.into_iter().filter_map(|value| value.get("$ref")?.as_str());
        let references: Vec<&str> = references.collect();
        assert!(!references.is_empty());
        for reference in references {
            let place = reference.strip_prefix('#').unwrap();
            assert!(api.pointer(place).is_some(), "{reference}");
        }
    }
}

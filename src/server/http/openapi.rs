//! The description of the API in OpenAPI 3.1. It is made from `proto`, except for the export, whose answer is no JSON.
//! `openapi/operations.rs` makes the operations and messages.

mod operations;

use std::sync::LazyLock;

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{export, problem};

/// The description without its operations.
fn head() -> Value {
    let tag = |name: &str, about: &str| json!({"name": name, "description": about});
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ratchet",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Strictly increasing numbers, one sequence per key. Any node may be asked. The JSON is proto's own: \
                            numbers of 64 bits are strings, and may be given as numbers. A failure is a problem as RFC 9457 has it.",
        },
        "tags": [
            tag("numbers", "The next numbers of keys, the last ones handed out, and floors"),
            tag("ids", "Ids with a shape, their formats and worker ids"),
            tag("namespaces", "Families of sequences with one configuration"),
            tag("cluster", "The founding of the cluster"),
            tag("status", "What the leader knows of the cluster"),
            tag("nodes", "The members of the cluster"),
            tag("leader", "Which member leads"),
            tag("node", "The node that is asked"),
            tag("tokens", "Tokens, and what is granted to them"),
            tag("grants", "What is granted to those who show no token"),
            tag("principals", "Tokens and certificates, with their grants and quotas"),
            tag("quotas", "How much a principal may use"),
        ],
        "components": {"schemas": {"Problem": problem::describe()}},
    })
}

/// The description as it is sent.
static JSON: LazyLock<String> = LazyLock::new(|| {
    let mut api = head();
    operations::add_to(&mut api);
    api["paths"]["/v1/namespaces/{namespace}/export"] = json!({"get": export::describe()});
    api.to_string()
});

/// `GET /openapi.json`.
pub fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], JSON.as_str()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::http::endpoints::ENDPOINTS;

    /// A value, and all values in it.
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
        assert_eq!(operations.len(), ENDPOINTS.len() + 1, "those of proto, and the export");
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

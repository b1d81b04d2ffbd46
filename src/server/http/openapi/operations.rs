//! The operations that `proto` describes for HTTP, and their messages, in OpenAPI. The comments in `proto` become the
//! descriptions.

use std::collections::BTreeMap;

use prost_types::{
    DescriptorProto, FieldDescriptorProto, MessageOptions,
    field_descriptor_proto::{Label, Type},
};
use serde_json::{Value, json};

use crate::{
    proto::{PUBLIC_API, name_of},
    server::http::{
        endpoints::{ENDPOINTS, Endpoint, status},
        headers::{describe_cluster, describe_timeout},
        message::IDEMPOTENCY_KEY,
        problem,
    },
};

/// The fields whose values stand in headers instead.
const IN_HEADERS: [&str; 2] = ["timeout_ms", "traceparent"];

/// Adds the operations and the messages to a description.
pub(super) fn add_to(api: &mut Value) {
    let mut schemas = Schemas::default();
    for endpoint in ENDPOINTS {
        let verb = endpoint.verb.to_lowercase();
        api["paths"][endpoint.path][verb] = schemas.operation(endpoint);
    }
    for (name, schema) in schemas.0 {
        api["components"]["schemas"][name] = schema;
    }
}

/// The messages that were described.
#[derive(Default)]
struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    fn operation(&mut self, endpoint: &Endpoint) -> Value {
        let Endpoint { service, rpc, request, answer, path, has_body, has_name, .. } = *endpoint;
        let mut parameters = vec![describe_timeout()];
        parameters.extend(has_name.then(describe_name));
        for field in &PUBLIC_API.messages[request].field {
            let is_in_path = is_in_path(path, field);
            if is_in_path || !has_body {
                parameters.push(json!({
                    "name": field.name(),
                    "in": if is_in_path { "path" } else { "query" },
                    "required": is_in_path,
                    "schema": self.parameter(request, field),
                }));
            }
        }
        parameters.push(describe_cluster());
        let answer = json!({
            "description": PUBLIC_API.about(answer),
            "content": self.content(answer, None),
            "headers": problem::describe_headers(),
        });
        let body = has_body.then(|| self.content(request, Some(path)));
        let tag = match service {
            "Sequencer" => Some("numbers"),
            "Ids" => Some("ids"),
            _ => path.split(['/', ':']).nth(2),
        };
        let mut operation = json!({
            // Methods of two services may have one name.
            "operationId": request.strip_suffix("Request"),
            "tags": [tag],
            "description": PUBLIC_API.about_part(service, rpc),
            "parameters": parameters,
            "responses": {status(rpc).as_str(): answer, "default": problem::describe_answer()},
        });
        if let Some(content) = body {
            operation["requestBody"] = json!({"required": true, "content": content});
        }
        operation
    }

    /// A message in JSON, and its description. The message is an answer, or the body of a request to the path `asks`.
    fn content(&mut self, message: &str, asks: Option<&str>) -> Value {
        json!({"application/json": {"schema": self.message(message, asks)}})
    }

    fn message(&mut self, name: &str, asks: Option<&str>) -> Value {
        let schema = match name {
            "Key" => key(),
            _ => self.schema(name, asks),
        };
        self.0.insert(name.to_owned(), schema);
        json!({"$ref": format!("#/components/schemas/{name}")})
    }

    fn schema(&mut self, name: &str, asks: Option<&str>) -> Value {
        let (mut properties, mut required) = (json!({}), Vec::new());
        for field in &PUBLIC_API.messages[name].field {
            let is_in_body = |path| !is_in_path(path, field) && !IN_HEADERS.contains(&field.name());
            if asks.is_none_or(is_in_body) {
                properties[field.name()] = self.value(name, field, asks.is_some());
                if asks.is_none() && !may_be_absent(field) {
                    required.push(field.name().to_owned());
                }
            }
        }
        json!({
            "type": "object",
            "description": PUBLIC_API.about(name),
            "properties": properties,
            "required": required,
            "additionalProperties": asks.is_none(),
        })
    }

    /// The values that a caller may give for a field in a path or a query.
    fn parameter(&mut self, message: &str, field: &FieldDescriptorProto) -> Value {
        match field.r#type() {
            // A key, or bytes.
            Type::Message | Type::Bytes => {
                let about = PUBLIC_API.about_part(message, field.name());
                json!({"type": "string", "description": about})
            }
            _ => self.value(message, field, false),
        }
    }

    /// The value of a field of a message: as the node writes it, or, with `is_given`, all values that a caller may give.
    fn value(&mut self, message: &str, field: &FieldDescriptorProto, is_given: bool) -> Value {
        let is_entry =
            |of: &&DescriptorProto| of.options.as_ref().is_some_and(MessageOptions::map_entry);
        let entry = PUBLIC_API.messages.get(name_of(field.type_name())).filter(is_entry);
        let mut value = match entry {
            Some(entry) => {
                let values = self.one_value(&entry.field[1], is_given);
                json!({"type": "object", "additionalProperties": values})
            }
            None if field.label() == Label::Repeated => {
                json!({"type": "array", "items": self.one_value(field, is_given)})
            }
            None => self.one_value(field, is_given),
        };
        value["description"] = json!(PUBLIC_API.about_part(message, field.name()));
        value
    }

    /// The value of a field, or one of its values if it has several.
    fn one_value(&mut self, field: &FieldDescriptorProto, is_given: bool) -> Value {
        use Type::*;
        let (kind, of) = (field.r#type(), name_of(field.type_name()));
        match kind {
            Message => return self.message(of, None),
            Bytes => return text(),
            _ => {}
        }
        let (written, also_read) = match kind {
            Bool => ("boolean", None),
            Uint32 | Int32 => ("integer", Some("string")),
            Uint64 | Fixed64 | Sint64 | Enum => ("string", Some("integer")),
            _ => ("string", None),
        };
        let mut types = vec![written];
        if is_given {
            types.extend(also_read);
            types.extend(field.proto3_optional().then_some("null"));
        }
        let mut value = json!({"type": types});
        if [Uint32, Uint64, Fixed64].contains(&kind) {
            value["minimum"] = json!(0);
        }
        if [Uint64, Fixed64].contains(&kind) {
            value["pattern"] = json!("^[0-9]{1,20}$");
        }
        if kind == Enum {
            let values = &PUBLIC_API.enums[of].value;
            let numbers = values.iter().filter(|_| is_given).map(|value| json!(value.number()));
            value["enum"] = values.iter().map(|value| json!(value.name())).chain(numbers).collect();
        }
        value
    }
}

/// The header that names a request.
fn describe_name() -> Value {
    json!({
        "name": IDEMPOTENCY_KEY.as_str(),
        "in": "header",
        "description": "The caller's name for this request, its request_id: 1 to 64 bytes, for example a UUID. \
                        Gapless namespaces alone know it. Quotes around it are not part of it.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[!-~]+$"},
    })
}

/// A key, which has JSON of its own: a string may also be an id, in digits.
fn key() -> Value {
    let mut key = text();
    key["description"] = json!("An id in digits, or a name. A name that is no text is in base64.");
    key
}

/// Bytes, which have JSON of their own.
fn text() -> Value {
    let bytes = json!({"type": "string", "contentEncoding": "base64"});
    json!({
        "oneOf": [
            {"type": "string"},
            {"type": "object", "properties": {"base64": bytes}, "required": ["base64"]},
        ],
    })
}

/// True for a field that JSON leaves out if it has no value: a message, or a field that is `optional`.
fn may_be_absent(field: &FieldDescriptorProto) -> bool {
    let is_message = field.r#type() == Type::Message && field.label() != Label::Repeated;
    is_message || field.proto3_optional()
}

fn is_in_path(path: &str, field: &FieldDescriptorProto) -> bool {
    path.contains(&format!("{{{}}}", field.name()))
}

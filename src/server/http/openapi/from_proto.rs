//! What `proto` describes for HTTP, in OpenAPI: operations, and the messages that they carry. The comments are the
//! descriptions.

use std::collections::BTreeMap;

use prost::Message;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::Type,
};
use serde_json::{Value, json};
use utoipa::{IntoParams, IntoResponses, openapi::path::ParameterIn};

use crate::{
    proto::PUBLIC_DESCRIPTORS,
    server::http::{
        operations::{OPERATIONS, Operation, status},
        problem::Problems,
        request::Timeout,
    },
};

/// Adds it to a description.
pub fn add_to(api: &mut Value) {
    let mut proto = Proto::read();
    for operation in OPERATIONS {
        api["paths"][operation.path][operation.verb] = proto.operation(operation);
    }
    for (name, schema) in proto.schemas {
        api["components"]["schemas"][name] = schema;
    }
}

/// The public API as its descriptors have it.
struct Proto {
    messages: BTreeMap<String, DescriptorProto>,
    enums: BTreeMap<String, EnumDescriptorProto>,
    /// Of methods, messages and fields (`Message.field`).
    comments: BTreeMap<String, String>,
    /// The messages that were described.
    schemas: BTreeMap<String, Value>,
}

impl Proto {
    fn read() -> Self {
        let files = FileDescriptorSet::decode(PUBLIC_DESCRIPTORS).expect("the build wrote them");
        let (mut messages, mut enums) = (BTreeMap::new(), BTreeMap::new());
        let mut comments = BTreeMap::new();
        for file in files.file {
            for location in file.source_code_info.iter().flat_map(|info| &info.location) {
                let message = |at: i32| &file.message_type[at as usize];
                let of = match location.path[..] {
                    [4, at] => message(at).name().to_owned(),
                    [4, at, 2, field] => {
                        format!(
                            "{}.{}",
                            message(at).name(),
                            message(at).field[field as usize].name()
                        )
                    }
                    [6, at, 2, method] => {
                        file.service[at as usize].method[method as usize].name().to_owned()
                    }
                    _ => continue,
                };
                let lines = location.leading_comments().lines().map(str::trim);
                comments.insert(of, lines.collect::<Vec<_>>().join(" "));
            }
            messages.extend(file.message_type.into_iter().map(|one| (one.name().to_owned(), one)));
            enums.extend(file.enum_type.into_iter().map(|one| (one.name().to_owned(), one)));
        }
        Proto { messages, enums, comments, schemas: BTreeMap::new() }
    }

    fn operation(&mut self, operation: &Operation) -> Value {
        let Operation { rpc, request, answer, path, has_body, .. } = *operation;
        let mut parameters = vec![json!(Timeout::into_params(|| Some(ParameterIn::Header))[0])];
        for field in self.messages[request].field.clone() {
            let is_in_path = is_in_path(path, &field);
            if is_in_path || !has_body {
                parameters.push(json!({
                    "name": field.name(),
                    "in": if is_in_path { "path" } else { "query" },
                    "required": is_in_path,
                    "schema": self.value(request, &field, false),
                }));
            }
        }
        let mut responses = json!(Problems::responses());
        let content = self.content(answer, None);
        responses[status(rpc).as_str()] =
            json!({"description": self.comments.get(answer), "content": content});
        let body = has_body.then(|| self.content(request, Some(path)));
        json!({
            "operationId": rpc,
            "tags": [path.split('/').nth(2)],
            "description": self.comments.get(rpc),
            "parameters": parameters,
            "requestBody": body.map(|content| json!({"required": true, "content": content})),
            "responses": responses,
        })
    }

    /// A message in JSON, which is described: one that answers, or the body of a request to a path.
    fn content(&mut self, message: &str, asks: Option<&str>) -> Value {
        json!({"application/json": {"schema": self.message(message, asks)}})
    }

    fn message(&mut self, name: &str, asks: Option<&str>) -> Value {
        let (mut properties, mut required) = (json!({}), Vec::new());
        for field in self.messages[name].field.clone() {
            if asks.is_none_or(|path| !is_in_path(path, &field)) {
                properties[field.name()] = self.value(name, &field, asks.is_some());
                if asks.is_none() && !field.proto3_optional() {
                    required.push(field.name().to_owned());
                }
            }
        }
        let schema = json!({
            "type": "object",
            "description": self.comments.get(name),
            "properties": properties,
            "required": required,
            "additionalProperties": asks.is_none(),
        });
        self.schemas.insert(name.to_owned(), schema);
        json!({"$ref": format!("#/components/schemas/{name}")})
    }

    /// The value of a field of a message: as it is written, or all that may be given for it.
    fn value(&mut self, message: &str, field: &FieldDescriptorProto, is_given: bool) -> Value {
        let about = self.comments.get(&format!("{message}.{}", field.name())).cloned();
        let (kind, of) = (field.r#type(), field.type_name().rsplit('.').next().unwrap_or_default());
        if kind == Type::Message {
            return json!({"type": "array", "description": about, "items": self.message(of, None)});
        }
        let mut types = vec![if kind == Type::Bool { "boolean" } else { "string" }];
        if is_given && [Type::Uint64, Type::Enum].contains(&kind) {
            types.push("integer");
        }
        if is_given && field.proto3_optional() {
            types.push("null");
        }
        let mut value = json!({"type": types, "description": about});
        if kind == Type::Uint64 {
            value["pattern"] = json!("^[0-9]{1,20}$");
            value["minimum"] = json!(0);
        }
        if kind == Type::Enum {
            let values = &self.enums[of].value;
            let numbers = values.iter().filter(|_| is_given).map(|value| json!(value.number()));
            value["enum"] = values.iter().map(|value| json!(value.name())).chain(numbers).collect();
        }
        value
    }
}

fn is_in_path(path: &str, field: &FieldDescriptorProto) -> bool {
    path.contains(&format!("{{{}}}", field.name()))
}

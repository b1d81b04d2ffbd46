//! An export of a namespace as CSV, which `ratchet import` reads. A row has a key, or a section, and a number that is not below
//! any number that was handed out of it.
//!
//! Invariant: an answer that ends as HTTP prescribes is whole. An answer that breaks off ends with its connection. In HTTP/1.0
//! every answer ends with its connection, so there is no export over HTTP/1.0.

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{Version, header},
    response::{IntoResponse, Response},
};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use super::{
    headers::{ContextState, Due, describe_cluster, describe_timeout},
    path::{PagePath, in_path},
    problem::{self, Problem},
};
use crate::{
    metrics::Interface,
    node::{Export, Exported},
    proto::{Refusal, refusal, refuse},
    server::connections::answer_body::EndsEarly,
};

/// The row that comes first.
const HEADER: &[u8] = b"key,number\n";
/// The row that comes first where ids share sections.
const HEADER_OF_SECTIONS: &[u8] = b"ids,number\n";

/// The text about an export in the description of the API.
const ABOUT: &str = "Exports a namespace as rows of key and number, as of one moment. The leader alone answers. Where ids share \
    sections, a row has the first and the last id of a section, with a hyphen between them, in place of the key. At that moment \
    no number above its row had been handed out of a key. An answer that is not read for 30 seconds, or takes longer than 15 \
    minutes, breaks off. Names that hold commas, quotes or line ends are quoted.";

/// The operation of an export in the description of the API.
pub fn describe() -> Value {
    let text = json!({"type": "string"});
    json!({
        "operationId": "Export",
        "tags": ["namespaces"],
        "description": ABOUT,
        "parameters": [
            describe_timeout(),
            {"name": "namespace", "in": "path", "required": true, "schema": text},
            describe_cluster(),
        ],
        "responses": {
            "200": {
                "description": "The rows.",
                "content": {"text/csv": {"schema": text}},
                "headers": problem::describe_headers(),
            },
            "default": problem::describe_answer(),
        },
    })
}

/// Exports a namespace as CSV.
pub async fn export(
    State(context): ContextState, due: Due, path: PagePath<String>, version: Version,
) -> Result<Response, Problem> {
    let namespace = in_path(path)?;
    if version < Version::HTTP_11 {
        let why = "nobody can tell a part of an export from the whole";
        refuse!(
            InvalidRequest,
            "over HTTP/1.0 {why}; ask with HTTP/1.1 (nginx: proxy_http_version 1.1)"
        );
    }
    let export = context.exports.begin(&namespace, &due.by, due.deadline).await?;
    let (head, end) = ([(header::CONTENT_TYPE, "text/csv")], export.end());
    let rows = rows(export).inspect_err(move |refusal| {
        // The head of the answer was sent before. So nobody else counts this error.
        context.metrics.errors.of(Interface::http).add(refusal.code(), 1);
    });
    let mut answer = (head, Body::from_stream(rows)).into_response();
    answer.extensions_mut().insert(EndsEarly(end));
    Ok(answer)
}

/// The rows of an export, part by part.
fn rows(export: Export) -> impl Stream<Item = Result<Bytes, Refusal>> + Send {
    let header = match export.has_sections() {
        false => HEADER,
        true => HEADER_OF_SECTIONS,
    };
    let header = stream::iter([Ok(Bytes::from_static(header))]);
    let parts = stream::unfold(Some(export), async |export| {
        let mut export = export?;
        let part = export.next().await.transpose()?;
        let rows = part.and_then(csv);
        let rest = rows.is_ok().then_some(export);
        Some((rows, rest))
    });
    header.chain(parts)
}

/// Writes rows as CSV.
fn csv(part: Vec<(Exported, u64)>) -> Result<Bytes, Refusal> {
    let failed = |why: String| refusal!(Internal, "a row cannot be written: {why}");
    let mut rows = csv::Writer::from_writer(Vec::new());
    let (mut id, mut digits) = (itoa::Buffer::new(), itoa::Buffer::new());
    for (exported, number) in part {
        let number = digits.format(number).as_bytes();
        let written = match &exported {
            Exported::Id(key) => rows.write_record([id.format(*key).as_bytes(), number]),
            Exported::Name(name) => rows.write_record([&name[..], number]),
            Exported::Section { first, last } => {
                rows.write_record([format!("{first}-{last}").as_bytes(), number])
            }
        };
        written.map_err(|error| failed(error.to_string()))?;
    }
    let rows = rows.into_inner();
    Ok(rows.map_err(|error| failed(error.to_string()))?.into())
}

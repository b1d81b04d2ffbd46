//! The operations that `proto` describes for HTTP (`google.api.http`): their routes, and how what is asked becomes a message.
//!
//! The build writes a row for each of them (`build.rs`). The JSON is proto's own, made from the messages in the client's
//! package.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::RawQuery,
    http::StatusCode,
    response::Response,
    routing::{delete, get, patch, post},
};
use prost::Message;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    body,
    problem::Problem,
    request::{Due, InPath, Node, in_path},
};
use crate::{
    node::{NodeContext, Reservation},
    proto::{Refusal, peer::administer_request::Request as Administer, refusal, v1},
    server::{administer::administer, written::shown},
};

/// The fields that the path names, with their values.
type Named = InPath<Vec<(String, String)>>;

/// An operation, as the option of its method has it.
pub struct Operation {
    /// The method of HTTP.
    pub verb: &'static str,
    /// The path, with the names of fields in braces.
    pub path: &'static str,
    /// Whether the other fields stand in the body; if not, they follow the question mark.
    pub has_body: bool,
    /// The name of the method.
    pub rpc: &'static str,
    /// The name of the message that asks.
    pub request: &'static str,
    /// The name of the message that answers.
    pub answer: &'static str,
}

/// The HTTP status of the answer to a method.
pub fn status(rpc: &str) -> StatusCode {
    match rpc.starts_with("Create") {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    }
}

macro_rules! operations {
    ($($verb:ident $path:literal $has_body:literal $rpc:ident $request:ident $answer:ident;)*) => {
        /// All of them.
        pub const OPERATIONS: &[Operation] = &[$(Operation {
            verb: stringify!($verb),
            path: $path,
            has_body: $has_body,
            rpc: stringify!($rpc),
            request: stringify!($request),
            answer: stringify!($answer),
        }),*];

        /// Their routes.
        pub fn routes() -> Router<Arc<NodeContext>> {
            Router::new()$(.route($path, $verb(
                |context: Node, due: Due, path: Named, query: RawQuery, body: Body| async move {
                    let body = $has_body.then_some(body);
                    let asked: v1::$request = asked(&context, due, path, query, body).await?;
                    let asked = Administer::$rpc(asked);
                    let answer = administer::<v1::$answer>(&context, asked, due.deadline).await?;
                    answered(stringify!($rpc), answer)
                },
            )))*
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/operations.rs"));

/// The message that a path and a query, or a path and a body, make up.
async fn asked<Q: Message + Default + DeserializeOwned>(
    context: &NodeContext, due: Due, path: Named, RawQuery(query): RawQuery, body: Option<Body>,
) -> Result<Q, Refusal> {
    let query = query.unwrap_or_default();
    if body.is_some() && !query.is_empty() {
        return Err(refusal!(
            InvalidRequest,
            "'{}' follows the question mark; here the body says what is asked for",
            shown(query.as_bytes())
        ));
    }
    let named: Q = named(path, query)?;
    let Some(body) = body else {
        return Ok(named);
    };
    let mut request: Q = body::json(context, body, due).await?;
    let apart = named.encoded_len() + request.encoded_len();
    // In proto, one message behind another is both of them in one.
    let merged = request.merge(named.encode_to_vec().as_slice());
    merged.map_err(|error| refusal!(Internal, "{error}"))?;
    if request.encoded_len() < apart {
        let why = "the path says what the body says again; leave it out of the body";
        return Err(refusal!(InvalidRequest, "{why}"));
    }
    Ok(request)
}

/// What a path and a query name.
fn named<Q: DeserializeOwned>(path: Named, query: String) -> Result<Q, Refusal> {
    let mut fields = form_urlencoded::Serializer::new(query);
    fields.extend_pairs(in_path(path)?);
    let fields = fields.finish();
    let fields = serde_urlencoded::Deserializer::new(form_urlencoded::parse(fields.as_bytes()));
    serde_path_to_error::deserialize(fields)
        .map_err(|error| body::unreadable("the path, or what follows the question mark,", error))
}

/// The answer to a method.
fn answered(
    rpc: &str, (answer, reserved): (impl Serialize, Option<Reservation>),
) -> Result<Response, Problem> {
    let mut response = body::reserved_json(&answer, reserved)?;
    *response.status_mut() = status(rpc);
    Ok(response)
}

//! The operations that `proto` describes for HTTP (`google.api.http`): their routes, and how what is asked becomes a message.
//!
//! The build writes a row for each of them (`build.rs`). The JSON is proto's own, made from the messages in the client's
//! package.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Router,
    body::{Body, HttpBody},
    extract::{RawQuery, State},
    http::{HeaderValue, StatusCode},
    response::Response,
    routing::{MethodFilter, on},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::future::BoxFuture;
use prost::Message;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    body,
    problem::Problem,
    request::{Due, Node, in_path},
    serve::key,
};
use crate::{
    node::{NodeContext, Reservation, to_key},
    proto::{
        Refusal, refusal,
        v1::{self, key::Kind},
    },
    server::written::shown,
};

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
    /// The verb, for the router.
    filter: MethodFilter,
    /// Carries it out.
    serve: fn(Asked) -> BoxFuture<'static, Result<Response, Problem>>,
}

/// A request as it arrives.
pub struct Asked {
    context: Arc<NodeContext>,
    due: Due,
    /// The fields that the path names, with their values.
    path: Vec<(String, String)>,
    query: String,
    body: Body,
}

/// The HTTP status of the answer to a method.
pub fn status(rpc: &str) -> StatusCode {
    match rpc.starts_with("Create") {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    }
}

impl Operation {
    /// The path up to its last field, and what follows that: the action, as in `/v1/nodes/{id}:promote`. The router cannot tell
    /// actions apart.
    fn route(&self) -> (&'static str, &'static str) {
        let field_ends = self.path.find("}:");
        self.path.split_at(field_ends.map_or(self.path.len(), |place| place + 1))
    }

    /// Those that the router cannot tell from this one, itself among them.
    fn alike(&self) -> impl Iterator<Item = &'static Operation> {
        let is_alike = |one: &&Operation| (one.route().0, one.verb) == (self.route().0, self.verb);
        OPERATIONS.iter().filter(is_alike)
    }
}

macro_rules! operations {
    ($($verb:ident $path:literal $has_body:literal $rpc:ident
        $request:ident [$($key:ident)*] [$($bytes:ident)*] $answer:ident;)*) => {
        /// All of them.
        pub const OPERATIONS: &[Operation] = &[$(Operation {
            verb: stringify!($verb),
            path: $path,
            has_body: $has_body,
            rpc: stringify!($rpc),
            request: stringify!($request),
            answer: stringify!($answer),
            filter: MethodFilter::$verb,
            serve: |asked| Box::pin(async move {
                let (context, due) = (asked.context.clone(), asked.due);
                let bytes = &[$(stringify!($bytes)),*];
                let asked: v1::$request = asked.message($has_body, bytes).await?;
                $(let asked = v1::$request {
                    $key: of_kind(&context, &asked.namespace, asked.$key, due).await?,
                    ..asked
                };)*
                let answer: (v1::$answer, _) = context.leader.ask(&asked, due.deadline).await?;
                answered(stringify!($rpc), answer)
            }),
        }),*];
    };
}

include!(concat!(env!("OUT_DIR"), "/http.rs"));

/// The routes of all of them.
pub fn routes() -> Router<Arc<NodeContext>> {
    let is_first = |one: &&Operation| one.alike().next().is_some_and(|first| first.rpc == one.rpc);
    OPERATIONS.iter().filter(is_first).fold(Router::new(), |routes, first| {
        let serve = move |State(context): Node, due: Due, path, query: RawQuery, body| async move {
            let mut path: Vec<_> = in_path(path)?;
            let operation = named_by(first, &mut path)?;
            let query = query.0.unwrap_or_default();
            (operation.serve)(Asked { context, due, path, query, body }).await
        };
        routes.route(first.route().0, on(first.filter, serve))
    })
}

/// Which one of those that are alike a path names. The name is taken off the path's last field.
///
/// # Errors
/// UNIMPLEMENTED if it names none.
fn named_by(
    first: &Operation, path: &mut [(String, String)],
) -> Result<&'static Operation, Problem> {
    let mut empty = String::new();
    let last = path.last_mut().map_or(&mut empty, |(_, value)| value);
    let named = first.alike().filter(|one| last.ends_with(one.route().1));
    let named = named.max_by_key(|one| one.route().1.len());
    let named = named.ok_or_else(|| no_action(first, last))?;
    last.truncate(last.len() - named.route().1.len());
    Ok(named)
}

/// What is wrong with a path whose last field is `last`: it ends with no action.
fn no_action(first: &Operation, last: &str) -> Problem {
    let actions: Vec<_> = first.alike().map(|one| format!("'{}'", one.route().1)).collect();
    let others = OPERATIONS.iter().filter(|one| one.route().0 == first.route().0);
    let others: BTreeSet<&str> =
        others.map(|one| one.verb).filter(|verb| *verb != first.verb).collect();
    let others = others.into_iter().collect::<Vec<_>>().join(", ");
    let mut problem = Problem::from(refusal!(
        Unsupported,
        "the path ends with '{}'; here it must end with {}",
        shown(last.as_bytes()),
        actions.join(" or ")
    ));
    problem.allow = HeaderValue::try_from(others).ok();
    problem
}

impl Asked {
    /// The message that the path and the query, or the path and the body, make up. The fields `bytes` are text in a query.
    async fn message<Q: Message + Default + Serialize + DeserializeOwned>(
        self, has_body: bool, bytes: &[&str],
    ) -> Result<Q, Refusal> {
        let Asked { context, due, path, query, body } = self;
        if !has_body && !body.is_end_stream() {
            let why = "the request has a body; leave it out: what is asked for stands in the path, or after the question mark";
            return Err(refusal!(InvalidRequest, "{why}"));
        }
        if has_body && !query.is_empty() {
            return Err(refusal!(
                InvalidRequest,
                "'{}' follows the question mark; here the body says what is asked for",
                shown(query.as_bytes())
            ));
        }
        let named: Q = named(&path, &query, bytes)?;
        if !has_body {
            return Ok(named);
        }
        let mut request: Q = body::json(&context, body, due).await?;
        let (of_body, empty) = (fields_of(&request)?, fields_of(&Q::default())?);
        let twice = path.iter().find(|(field, _)| of_body.get(field) != empty.get(field));
        if let Some((field, _)) = twice {
            return Err(refusal!(
                InvalidRequest,
                "the path says what the body says again; leave {field} out of the body"
            ));
        }
        // In proto, one message behind another is both of them in one.
        let merged = request.merge(named.encode_to_vec().as_slice());
        merged.map_err(|error| refusal!(Internal, "{error}"))?;
        Ok(request)
    }
}

/// The fields of a message.
fn fields_of(message: &impl Serialize) -> Result<serde_json::Value, Refusal> {
    serde_json::to_value(message).map_err(|error| refusal!(Internal, "{error}"))
}

/// What a path and a query name.
fn named<Q: DeserializeOwned>(
    path: &[(String, String)], query: &str, bytes: &[&str],
) -> Result<Q, Refusal> {
    let query = form_urlencoded::parse(query.as_bytes()).map(|(field, value)| {
        // They are read as in JSON, in base64.
        let is_text = bytes.contains(&&*field);
        let value = if is_text { BASE64_STANDARD.encode(&*value).into() } else { value };
        (field, value)
    });
    let mut fields = form_urlencoded::Serializer::new(String::new());
    let fields = fields.extend_pairs(query).extend_pairs(path).finish();
    let fields = serde_urlencoded::Deserializer::new(form_urlencoded::parse(fields.as_bytes()));
    serde_path_to_error::deserialize(fields)
        .map_err(|error| body::unreadable("the path, or what follows the question mark,", error))
}

/// A key of the kind that the namespace has: what is written may be an id or a name.
///
/// # Errors
/// If there is no such namespace, or it takes other keys.
async fn of_kind(
    context: &Arc<NodeContext>, namespace: &str, written: Option<v1::Key>, due: Due,
) -> Result<Option<v1::Key>, Refusal> {
    let written = match written.and_then(|key| key.kind) {
        Some(Kind::Id(id)) => id.to_string().into(),
        Some(Kind::Name(name)) => name,
        None => return Ok(None),
    };
    let key = key(context, namespace, &written, due).await?;
    Ok(to_key(&key))
}

/// The answer to a method.
fn answered(
    rpc: &str, (answer, reserved): (impl Serialize, Option<Reservation>),
) -> Result<Response, Problem> {
    let mut response = body::reserved_json(&answer, reserved)?;
    *response.status_mut() = status(rpc);
    Ok(response)
}

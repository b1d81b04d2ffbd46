//! What a request is: its deadline, path, query and body, the cluster that it is meant for, and the message that it
//! becomes.

use std::{fmt::Display, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{FromRequestParts, Path, Request, State, rejection::PathRejection},
    http::{HeaderMap, HeaderValue, Uri, header, request::Parts},
    response::{IntoResponse, Response},
};
use futures::StreamExt;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::problem::Problem;
use crate::{
    node::{NodeContext, Reservation, to_key},
    proto::{
        Refusal, refusal, refuse,
        v1::{self, key::Kind},
    },
    server::{
        connections::{calls::until_sent, unfinished::CLIENT_MESSAGE_BYTES_MAX},
        metadata::{CLUSTER_ID, budget, check},
        written::{integer, key_in, shown},
    },
};
use bytes::{BufMut, Bytes, BytesMut};

/// How long the caller waits for the answer, in milliseconds.
const TIMEOUT_HEADER: &str = "ratchet-timeout-ms";

/// What every request may say, for the description of the API.
pub fn describe_timeout() -> Value {
    json!({
        "name": TIMEOUT_HEADER,
        "in": "header",
        "description": "How long the caller waits for the answer, in milliseconds.",
        "schema": {"type": "integer", "minimum": 1},
    })
}

/// What every request may say of the cluster, for the description of the API.
pub fn describe_cluster() -> Value {
    json!({
        "name": CLUSTER_ID,
        "in": "header",
        "description": "The cluster that the request is meant for. Every other one refuses it.",
        "schema": {"type": "string", "format": "uuid"},
    })
}

/// What every handler is given.
pub type Node = State<Arc<NodeContext>>;

/// What is in the path, or why it cannot be read.
pub type InPath<T> = Result<Path<T>, PathRejection>;

/// When a request is to be answered.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    /// When it is to be answered.
    pub deadline: Instant,
}

impl FromRequestParts<Arc<NodeContext>> for Due {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts, context: &Arc<NodeContext>,
    ) -> Result<Self, Problem> {
        let arrived = Instant::now();
        let mut patience = None;
        for value in parts.headers.get_all(TIMEOUT_HEADER) {
            let millis = integer(value.as_bytes()).filter(|millis| *millis > 0);
            if millis.is_none() || patience.is_some() {
                let value = shown(value.as_bytes());
                let why = "give milliseconds, at least 1, once";
                refuse!(InvalidRequest, "{TIMEOUT_HEADER} is '{value}'; {why}");
            }
            patience = millis.map(Duration::from_millis);
        }
        Ok(Due { deadline: arrived + budget(patience, &context.config) })
    }
}

/// What is in the path.
///
/// # Errors
/// INVALID_ARGUMENT if it is no text.
pub fn in_path<T>(path: InPath<T>) -> Result<T, Refusal> {
    let invalid = |error: PathRejection| refusal!(InvalidRequest, "{}", error.body_text());
    path.map(|Path(path)| path).map_err(invalid)
}

// Bodies. That of a request is read within limits of its size, of the time, and of the memory of all requests. That
// memory also holds long answers.

/// The answer, marked for caches as one that they may not keep and give again: the next one is another.
pub fn uncacheable(answer: impl IntoResponse) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], answer).into_response()
}

/// An answer in JSON. The memory that is reserved for it is given back once its bytes are sent, or dropped.
///
/// # Errors
/// INTERNAL if it cannot be written as JSON.
pub fn reserved_json(
    answer: &impl Serialize, reservation: impl Into<Option<Reservation>>,
) -> Result<Response, Problem> {
    let written = serde_json::to_vec(answer);
    let written = written.map_err(|error| refusal!(Internal, "{error}"))?;
    let mut reservation = reservation.into();
    if let Some(reservation) = &mut reservation {
        reservation.resize(written.len());
    }
    let mut response = ([(header::CONTENT_TYPE, "application/json")], written).into_response();
    until_sent(response.extensions_mut(), reservation);
    Ok(response)
}

/// Reads a body as JSON of type `T`. The memory that is reserved for its bytes comes with it: what was read holds as much.
///
/// # Errors
/// INVALID_ARGUMENT if it is larger than [`CLIENT_MESSAGE_BYTES_MAX`], or is not JSON of this type; RESOURCE_EXHAUSTED if
/// other requests hold the memory; DEADLINE_EXCEEDED if it does not arrive in time; UNAVAILABLE if the connection breaks.
pub async fn json<T: DeserializeOwned>(
    context: &NodeContext, body: Body, due: Due,
) -> Result<(T, Option<Reservation>), Refusal> {
    let (bytes, reserved) = bytes(context, body, due).await?;
    let mut json = serde_json::Deserializer::from_slice(&bytes);
    let read = serde_path_to_error::deserialize(&mut json);
    let read = read.map_err(|error| unreadable("the body", error))?;
    json.end().map_err(|error| unreadable("the body", error))?;
    Ok((read, reserved))
}

/// Why a part of a request cannot be read.
pub fn unreadable(part: &str, why: impl Display) -> Refusal {
    refusal!(InvalidRequest, "{part} is not as /openapi.json describes it: {why}")
}

/// Reads the bytes of a body. The memory that is reserved for them comes with them.
///
/// # Errors
/// As [`json()`], but for what the bytes are.
pub async fn bytes(
    context: &NodeContext, body: Body, due: Due,
) -> Result<(Bytes, Option<Reservation>), Refusal> {
    let reading = timeout_at(due.deadline, read(context, body)).await;
    reading.map_err(|_| refusal!(DeadlineExceeded, "the body did not arrive in time").not_done())?
}

async fn read(context: &NodeContext, body: Body) -> Result<(Bytes, Option<Reservation>), Refusal> {
    let mut parts = body.into_data_stream();
    let mut bytes = BytesMut::new();
    let mut reserved = None;
    while let Some(part) = parts.next().await {
        let part =
            part.map_err(|error| refusal!(InvalidRequest, "the body ends early: {error}"))?;
        let length = bytes.len() + part.len();
        if length > CLIENT_MESSAGE_BYTES_MAX {
            refuse!(
                InvalidRequest,
                "the body has more than {CLIENT_MESSAGE_BYTES_MAX} bytes; send several requests"
            );
        }
        // Released first: the new reservation contains the bytes of the old one.
        drop(reserved.take());
        reserved = context.request_memory.reserve_if_many(length)?;
        bytes.put(part);
    }
    Ok((bytes.freeze(), reserved))
}

// How what is asked becomes a message: of the path and the query, or of the path and the body, and of the header that
// names the request.

/// What the caller calls a request, so that it can ask again.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A request as it arrives.
pub struct Received {
    /// The node that is asked.
    pub context: Arc<NodeContext>,
    /// When it is to be answered.
    pub due: Due,
    /// The fields that the path names, with their values.
    path: Vec<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
}

/// The name of a field that the path says, and something else says again.
pub type SaidTwice = &'static str;

impl Received {
    /// What asks for the fields in `path`.
    pub fn new(
        context: Arc<NodeContext>, due: Due, path: Vec<(String, String)>, request: Request,
    ) -> Self {
        let (head, body) = request.into_parts();
        Received { context, due, path, uri: head.uri, headers: head.headers, body }
    }

    /// What the caller calls it, without the quotes that may stand around that.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is said twice, or the quotes do not end.
    pub fn request_id(&self) -> Result<Option<Bytes>, Refusal> {
        let mut said = self.headers.get_all(IDEMPOTENCY_KEY).iter().map(HeaderValue::as_bytes);
        let Some(written) = said.next() else {
            return Ok(None);
        };
        let quoted = written.strip_prefix(b"\"");
        let id = quoted.map_or(Some(written), |rest| rest.strip_suffix(b"\""));
        match (id, said.next()) {
            (Some(id), None) => Ok(Some(Bytes::copy_from_slice(id))),
            _ => Err(refusal!(
                InvalidRequest,
                "give one {IDEMPOTENCY_KEY}, with quotes around it or without; the first one is {}",
                shown(written)
            )),
        }
    }

    /// The message that the path and the query, or the path and the body, make up, and the memory that is reserved for the
    /// body. `merge` adds what the path says to what the body says.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it cannot be read, or something is said twice; and those of [`json()`].
    pub async fn message<Q: DeserializeOwned>(
        self, has_body: bool, merge: impl Fn(&mut Q, Q) -> Result<(), SaidTwice>,
    ) -> Result<(Q, Option<Reservation>), Refusal> {
        let Received { context, due, path, uri, body, .. } = self;
        let query = uri.query().unwrap_or_default();
        let named: Q = named(&path, if has_body { "" } else { query })?;
        if !has_body {
            let (body, reserved) = bytes(&context, body, due).await?;
            if !body.is_empty() {
                let why = "the request has a body; leave it out: what is asked for stands in the path, or after the question mark";
                refuse!(InvalidRequest, "{why}");
            }
            return Ok((named, reserved));
        }
        if !query.is_empty() {
            refuse!(
                InvalidRequest,
                "here the body says what is asked for, and something follows the question mark: '{}'",
                shown(query.as_bytes())
            );
        }
        let (mut request, reserved): (Q, _) = json(&context, body, due).await?;
        merge(&mut request, named).map_err(|field| {
            refusal!(
                InvalidRequest,
                "the path says what the body says again; leave {field} out of the body"
            )
        })?;
        Ok((request, reserved))
    }
}

/// What a path and a query name.
fn named<Q: DeserializeOwned>(path: &[(String, String)], query: &str) -> Result<Q, Refusal> {
    // Different bytes that are no text would all be read as this character.
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    if let Some((field, _)) = pairs.find(|(_, value)| value.contains('\u{FFFD}')) {
        refuse!(
            InvalidRequest,
            "what follows the question mark is not all UTF-8, or has U+FFFD; that is in '{}'",
            shown(field.as_bytes())
        );
    }
    let fields = form_urlencoded::Serializer::new(query.to_owned()).extend_pairs(path).finish();
    let fields = serde_urlencoded::Deserializer::new(form_urlencoded::parse(fields.as_bytes()));
    serde_path_to_error::deserialize(fields)
        .map_err(|error| unreadable("the path, or what follows the question mark,", error))
}

/// Takes what the header calls a request for its request id.
///
/// # Errors
/// INVALID_ARGUMENT if the message has an id of its own.
pub fn take_request_id(request_id: &mut Option<Bytes>, name: Option<Bytes>) -> Result<(), Refusal> {
    if name.is_some() && request_id.is_some() {
        let why = "Idempotency-Key says what request_id says again; leave one of them out";
        refuse!(InvalidRequest, "{why}");
    }
    *request_id = request_id.take().or(name);
    Ok(())
}

/// A key of the kind that the namespace has: what is written may be an id or a name.
///
/// # Errors
/// If there is no such namespace, or it takes other keys.
pub async fn of_kind(
    context: &Arc<NodeContext>, namespace: &str, written: Option<v1::Key>, due: Due,
) -> Result<Option<v1::Key>, Refusal> {
    let written = match written.and_then(|key| key.kind) {
        Some(Kind::Id(id)) => id.to_string().into(),
        Some(Kind::Name(name)) => name,
        None => return Ok(None),
    };
    key_in(context, namespace, &written, due.deadline).await.map(|key| to_key(&key))
}

// Requests may say which cluster they are meant for, and every answer says which one gave it.

/// Lets a request through that is meant for this cluster, or does not say for which.
///
/// # Errors
/// The problem that [`check`] finds.
pub async fn refuse(
    State(context): State<Arc<NodeContext>>, request: Request,
) -> Result<Request, Problem> {
    check(&context, request.headers())?;
    Ok(request)
}

/// Adds the cluster's id to an answer, if this node knows it.
pub fn name(context: &NodeContext, mut answer: Response) -> Response {
    if let Ok(id) = HeaderValue::try_from(context.services.members.printed_cluster_id())
        && !id.is_empty()
    {
        answer.headers_mut().insert(CLUSTER_ID, id);
    }
    answer
}

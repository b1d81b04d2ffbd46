//! What a request is: its deadline, path, query and body, and the message that it becomes.

use std::{borrow::Cow, fmt::Display, sync::Arc, time::Duration, vec};

use axum::{
    body::Body,
    extract::{FromRequestParts, Path, State, rejection::PathRejection},
    http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts},
    response::{IntoResponse, Response},
};
use futures::StreamExt;
use hyper::body::Body as _;
use percent_encoding::percent_decode_str;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::problem::Problem;
use crate::{
    node::{NodeContext, Principal, Reservation, TraceContext, budget, to_key},
    proto::{
        Refusal, refusal, refuse,
        v1::{self, InPath, key::Kind},
    },
    sequence::{KeyKind, OwnedKey, Wanted},
    server::{
        connections::{
            calls::until_sent, owner::Owner, unfinished::CLIENT_MESSAGE_BYTES_MAX,
            until_known::STRANGERS_BYTES_MAX,
        },
        metadata::CLUSTER_ID,
        trace_headers::trace_in,
        written::{integer, key, shown},
    },
};
use bytes::{BufMut, Bytes, BytesMut};

/// How long the caller waits for the answer, in milliseconds.
const TIMEOUT_HEADER: HeaderName = HeaderName::from_static("ratchet-timeout-ms");

/// What every request may say, for the description of the API.
pub fn describe_timeout() -> Value {
    json!({
        "name": TIMEOUT_HEADER.as_str(),
        "in": "header",
        "description": "How long the caller waits for the answer, in milliseconds.",
        "schema": {"type": "integer", "minimum": 1},
    })
}

/// What every request may say of the cluster, for the description of the API.
pub fn describe_cluster() -> Value {
    json!({
        "name": CLUSTER_ID.as_str(),
        "in": "header",
        "description": "The cluster that the request is meant for. Every other one refuses it.",
        "schema": {"type": "string", "format": "uuid"},
    })
}

/// What every handler is given.
pub type Node = State<Arc<NodeContext>>;

/// What is in the path of a page, or why it cannot be read.
pub type PagePath<T> = Result<Path<T>, PathRejection>;

/// When a request is to be answered, and to whom.
#[derive(Debug, Clone)]
pub struct Due {
    /// When it has arrived.
    pub arrived: Instant,
    /// When it is to be answered.
    pub deadline: Instant,
    /// Who asks.
    pub by: Principal,
    /// The trace that the call belongs to, as its caller says it.
    pub trace: Option<TraceContext>,
}

impl Due {
    /// As a request that has just arrived says, by its headers and by the owner of its connection.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if they say no time, or two; UNAUTHENTICATED if they have several tokens; RESOURCE_EXHAUSTED if the principal
    /// has as many connections as it may have.
    pub fn said_in(
        headers: &HeaderMap, owner: &Owner, context: &NodeContext,
    ) -> Result<Due, Refusal> {
        let arrived = Instant::now();
        let mut patience = None;
        for value in headers.get_all(TIMEOUT_HEADER) {
            let millis = integer(value.as_bytes()).filter(|millis| *millis > 0);
            if millis.is_none() || patience.is_some() {
                let value = shown(value.as_bytes());
                let why = "give milliseconds, at least 1, once";
                refuse!(InvalidRequest, "{TIMEOUT_HEADER} is '{value}'; {why}");
            }
            patience = millis.map(Duration::from_millis);
        }
        let access = &context.services.access;
        let by = owner.asks_with(headers, access)?;
        // Before anything of the body is held.
        access.connection_is_used_by(&by)?;
        let deadline = arrived + budget(patience, &context.config);
        Ok(Due { arrived, deadline, by, trace: trace_in(context, headers) })
    }
}

impl FromRequestParts<Arc<NodeContext>> for Due {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts, context: &Arc<NodeContext>,
    ) -> Result<Self, Problem> {
        Ok(Due::said_in(&parts.headers, Owner::in_extensions(&parts.extensions), context)?)
    }
}

/// What is in the path of a page.
///
/// # Errors
/// INVALID_ARGUMENT if it is no text.
pub fn in_path<T>(path: PagePath<T>) -> Result<T, Refusal> {
    let invalid = |error: PathRejection| refusal!(InvalidRequest, "{}", error.body_text());
    path.map(|Path(path)| path).map_err(invalid)
}

/// The text that a part of a path stands for, which is the value of `field`.
///
/// # Errors
/// INVALID_ARGUMENT if it is no text. The words are those of [`in_path`].
pub fn decoded<'a>(field: &str, part: &'a str) -> Result<Cow<'a, str>, Refusal> {
    let text = percent_decode_str(part).decode_utf8();
    text.map_err(|_| refusal!(InvalidRequest, "Invalid URL: Invalid UTF-8 in `{field}`"))
}

// Bodies. That of a request is read within limits of its size, of the time, and of the memory of all requests. That
// memory also holds long answers.

/// The answer, marked for caches as one that they may not keep and give again: the next one is another.
pub fn uncacheable(answer: impl IntoResponse) -> Response {
    let mut answer = answer.into_response();
    forbid_caching(answer.headers_mut());
    answer
}

/// Marks an answer with these headers for caches as one that they may not keep and give again.
pub fn forbid_caching(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// An answer as it is sent.
pub type Answer = axum::http::Response<tonic::body::Body>;

/// An answer in JSON. The memory that is reserved for it is given back once its bytes are sent, or dropped.
///
/// # Errors
/// INTERNAL if it cannot be written as JSON.
pub fn reserved_json(
    answer: &impl Serialize, reservation: impl Into<Option<Reservation>>,
) -> Result<Answer, Problem> {
    let written = serde_json::to_string(answer);
    let written = written.map_err(|error| refusal!(Internal, "{error}"))?;
    let mut reservation = reservation.into();
    if let Some(reservation) = &mut reservation {
        reservation.resize(written.len());
    }
    let mut response = Answer::new(tonic::body::Body::new(written));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    until_sent(response.extensions_mut(), reservation);
    Ok(response)
}

/// Reads a body as JSON of type `T`. The memory that is reserved for its bytes comes with it: what was read holds as much.
///
/// # Errors
/// INVALID_ARGUMENT if it is larger than [`CLIENT_MESSAGE_BYTES_MAX`], or is not JSON of this type; RESOURCE_EXHAUSTED if
/// other requests hold the memory; DEADLINE_EXCEEDED if it does not arrive in time; UNAVAILABLE if the connection breaks.
pub async fn json<T: DeserializeOwned>(
    context: &NodeContext, body: Body, due: &Due,
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
    context: &NodeContext, body: Body, due: &Due,
) -> Result<(Bytes, Option<Reservation>), Refusal> {
    bytes_up_to(CLIENT_MESSAGE_BYTES_MAX, context, body, due).await
}

/// How many bytes of a body surely fit into what a stranger's connection may bring, beside the head of its request.
const STRANGERS_BODY_MAX: u64 = STRANGERS_BYTES_MAX as u64 / 2;

/// As [`bytes`], but for how many there may be.
///
/// # Errors
/// INVALID_ARGUMENT if there are more than `bytes_max`; those of `Admission::admit` if there are more than a stranger may
/// bring; else as [`bytes`].
pub async fn bytes_up_to(
    bytes_max: usize, context: &NodeContext, body: Body, due: &Due,
) -> Result<(Bytes, Option<Reservation>), Refusal> {
    if body.is_end_stream() {
        return Ok((Bytes::new(), None));
    }
    // A stranger's would never arrive, and nobody would say why.
    if body.size_hint().upper().is_none_or(|most| most > STRANGERS_BODY_MAX) {
        context.admission.admit(&due.by, Wanted::Anything, due.deadline).await?;
    }
    let reading = timeout_at(due.deadline, read(context, body, bytes_max)).await;
    reading.map_err(|_| refusal!(DeadlineExceeded, "the body did not arrive in time").not_done())?
}

async fn read(
    context: &NodeContext, body: Body, bytes_max: usize,
) -> Result<(Bytes, Option<Reservation>), Refusal> {
    let mut parts = body.into_data_stream();
    let mut bytes = BytesMut::new();
    let mut reserved = None;
    while let Some(part) = parts.next().await {
        let part =
            part.map_err(|error| refusal!(InvalidRequest, "the body ends early: {error}"))?;
        let length = bytes.len() + part.len();
        if length > bytes_max {
            refuse!(
                InvalidRequest,
                "the body has more than {bytes_max} bytes; send less at a time"
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
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What may be wrong where no body says what is asked for.
const NO_BODY: &str = "the path, or what follows the question mark,";

/// A request as it arrives. What it asks for is read field by field of the path, and the rest by [`Received::in_query`] or
/// [`Received::in_body`].
pub struct Received<'a> {
    /// The node that is asked.
    pub context: &'a Arc<NodeContext>,
    /// When it is to be answered, and to whom.
    pub due: &'a Due,
    /// The values of the fields that the path names, in its order.
    path: vec::IntoIter<Cow<'a, str>>,
    head: &'a Parts,
    body: Body,
}

impl<'a> Received<'a> {
    /// What asks for the values in `path`, with this head and body.
    pub fn new(
        context: &'a Arc<NodeContext>, due: &'a Due, path: Vec<Cow<'a, str>>,
        (head, body): (&'a Parts, Body),
    ) -> Self {
        Received { context, due, path: path.into_iter(), head, body }
    }

    /// What the caller calls it, without the quotes that may stand around that.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is said twice, or the quotes do not end.
    pub fn request_id(&self) -> Result<Option<Bytes>, Refusal> {
        let mut said = self.head.headers.get_all(IDEMPOTENCY_KEY).iter().map(HeaderValue::as_bytes);
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

    fn query(&self) -> &str {
        self.head.uri.query().unwrap_or_default()
    }

    /// What follows the question mark, without the fields of the path.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it cannot be read.
    pub fn in_query<Q: DeserializeOwned + Default>(&self) -> Result<Q, Refusal> {
        if self.query().is_empty() {
            return Ok(Q::default());
        }
        let query = || form_urlencoded::parse(self.query().as_bytes());
        // Different bytes that are no text would all be read as this character.
        if let Some((field, _)) = query().find(|(_, value)| value.contains('\u{FFFD}')) {
            refuse!(
                InvalidRequest,
                "what follows the question mark is not all UTF-8, or has U+FFFD; that is in '{}'",
                shown(field.as_bytes())
            );
        }
        let fields = serde_urlencoded::Deserializer::new(query());
        serde_path_to_error::deserialize(fields).map_err(|error| unreadable(NO_BODY, error))
    }

    /// The value of the next field of the path, which is called `field`. `is_alone`: nothing follows the question mark that
    /// is read.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it cannot be read, or is said again.
    pub fn in_path<T: InPath>(&mut self, field: &str, is_alone: bool) -> Result<T, Refusal> {
        let query = self.query();
        let mut said = form_urlencoded::parse(query.as_bytes());
        if !is_alone && said.any(|(name, _)| name == field) {
            return Err(unreadable(NO_BODY, format_args!("duplicate field `{field}`")));
        }
        let text = self.path.next().unwrap_or_default();
        T::in_path(text).map_err(|why| unreadable(NO_BODY, format_args!("{field}: {why}")))
    }

    /// What the body says, and the memory that is reserved for it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if something follows the question mark, or the body is compressed; and those of [`json()`].
    pub async fn in_body<Q: DeserializeOwned>(self) -> Result<(Q, Option<Reservation>), Refusal> {
        let query = self.query();
        if !query.is_empty() {
            refuse!(
                InvalidRequest,
                "here the body says what is asked for, and something follows the question mark: '{}'",
                shown(query.as_bytes())
            );
        }
        if let Some(encoding) = self.head.headers.get(header::CONTENT_ENCODING) {
            refuse!(
                InvalidRequest,
                "the body is compressed ({}: {}), and no node reads such; send it as it is",
                header::CONTENT_ENCODING,
                shown(encoding.as_bytes())
            );
        }
        json(self.context, self.body, self.due).await
    }

    /// Sees that there is no body. Returns the memory that is reserved for it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if there is one; and those of [`bytes`].
    pub async fn without_body(self) -> Result<Option<Reservation>, Refusal> {
        let (body, reserved) = bytes(self.context, self.body, self.due).await?;
        if !body.is_empty() {
            let why = "the request has a body; leave it out: what is asked for stands in the path, or after the question mark";
            refuse!(InvalidRequest, "{why}");
        }
        Ok(reserved)
    }
}

/// Sees that a body does not say a field of the path.
///
/// # Errors
/// INVALID_ARGUMENT if it does.
pub fn said_once<T: Default + PartialEq>(field: &str, in_body: &T) -> Result<(), Refusal> {
    match *in_body == T::default() {
        true => Ok(()),
        false => Err(refusal!(
            InvalidRequest,
            "the path says what the body says again; leave {field} out of the body"
        )),
    }
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
    context: &Arc<NodeContext>, wanted: Wanted<'_>, written: Option<v1::Key>, due: &Due,
) -> Result<Option<v1::Key>, Refusal> {
    let Some(written) = written.and_then(|key| key.kind) else {
        return Ok(None);
    };
    let kind = context.namespaces.key_kind(wanted, &due.by, due.deadline).await?;
    made_of(kind, wanted, written)
}

/// As [`of_kind`]. Who asks need not be let in if this node knows the kind, and nothing is wrong with the key: the key is told to
/// nobody, and what answers the message lets in who asks.
///
/// # Errors
/// As [`of_kind`].
pub async fn of_known_kind(
    context: &Arc<NodeContext>, wanted: Wanted<'_>, written: Option<v1::Key>, due: &Due,
) -> Result<Option<v1::Key>, Refusal> {
    let known = wanted.namespace().and_then(|namespace| context.namespaces.known_kind(namespace));
    if let (Some(kind), Some(v1::Key { kind: Some(key) })) = (known, &written)
        && let Ok(key) = made_of(kind, wanted, key.clone())
    {
        return Ok(key);
    }
    of_kind(context, wanted, written, due).await
}

fn made_of(kind: KeyKind, wanted: Wanted<'_>, written: Kind) -> Result<Option<v1::Key>, Refusal> {
    let written = match (kind, written) {
        (KeyKind::Id, written @ Kind::Id(_)) => return Ok(Some(v1::Key { kind: Some(written) })),
        (_, Kind::Id(id)) => id.to_string().into(),
        (_, Kind::Name(name)) => name,
    };
    Ok(to_key(&OwnedKey::from(key(kind, wanted.namespace().unwrap_or_default(), &written)?)))
}

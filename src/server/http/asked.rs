//! How what is asked becomes a message: of the path and the query, or of the path and the body, and of the header that names the
//! request.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue},
};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::{body, request::Due};
use crate::{
    node::{NodeContext, Reservation, to_key},
    proto::{
        Refusal, refusal,
        v1::{self, key::Kind},
    },
    sequence::OwnedKey,
    server::written::{self, shown},
};

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
    query: String,
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
        let query = head.uri.query().unwrap_or_default().to_owned();
        Received { context, due, path, query, headers: head.headers, body }
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
    /// INVALID_ARGUMENT if it cannot be read, or something is said twice; and those of [`body::json`].
    pub async fn message<Q: DeserializeOwned>(
        self, has_body: bool, merge: impl Fn(&mut Q, Q) -> Result<(), SaidTwice>,
    ) -> Result<(Q, Option<Reservation>), Refusal> {
        let Received { context, due, path, query, body, .. } = self;
        let named: Q = named(&path, if has_body { "" } else { &query })?;
        if !has_body {
            let (body, reserved) = body::bytes(&context, body, due).await?;
            if !body.is_empty() {
                let why = "the request has a body; leave it out: what is asked for stands in the path, or after the question mark";
                return Err(refusal!(InvalidRequest, "{why}"));
            }
            return Ok((named, reserved));
        }
        if !query.is_empty() {
            return Err(refusal!(
                InvalidRequest,
                "here the body says what is asked for, and something follows the question mark: '{}'",
                shown(query.as_bytes())
            ));
        }
        let (mut request, reserved): (Q, _) = body::json(&context, body, due).await?;
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
    let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
    // Different bytes that are no text would all be read as this character.
    if let Some((field, _)) = query.iter().find(|(_, value)| value.contains('\u{FFFD}')) {
        return Err(refusal!(
            InvalidRequest,
            "what follows the question mark is not all UTF-8, or has U+FFFD; that is in '{}'",
            shown(field.as_bytes())
        ));
    }
    let mut fields = form_urlencoded::Serializer::new(String::new());
    let fields = fields.extend_pairs(query).extend_pairs(path).finish();
    let fields = serde_urlencoded::Deserializer::new(form_urlencoded::parse(fields.as_bytes()));
    serde_path_to_error::deserialize(fields)
        .map_err(|error| body::unreadable("the path, or what follows the question mark,", error))
}

/// Takes what the header calls a request for its request id.
///
/// # Errors
/// INVALID_ARGUMENT if the message has an id of its own.
pub fn take_request_id(request_id: &mut Option<Bytes>, name: Option<Bytes>) -> Result<(), Refusal> {
    if name.is_some() && request_id.is_some() {
        let why = "Idempotency-Key says what request_id says again; leave one of them out";
        return Err(refusal!(InvalidRequest, "{why}"));
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
    let key = key(context, namespace, &written, due).await?;
    Ok(to_key(&key))
}

/// A key of a namespace, as it was written.
///
/// # Errors
/// If there is no such namespace, or it takes other keys.
pub async fn key(
    context: &Arc<NodeContext>, namespace: &str, written: &[u8], due: Due,
) -> Result<OwnedKey, Refusal> {
    let kind = context.leader.key_kind(namespace, due.deadline).await;
    let key = written::key(kind?, namespace, written);
    key.map(OwnedKey::from)
}

//! Makes a message of the parts of a request: of the path and the query, or of the path and the body, and of the header that
//! names the request.
//!
//! Invariant: a field that is said twice, in two places, is refused.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, request::Parts},
};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::{
    bodies::{bytes, check_encoding, json, unreadable},
    headers::Due,
    path::PathValues,
};
use crate::{
    node::{NodeContext, Reservation, to_key},
    proto::{
        Refusal, refusal, refuse,
        v1::{self, InPath, key::Kind},
    },
    sequence::{KeyKind, OwnedKey, Wanted},
    server::{
        header_values::values,
        written::{key, shown},
    },
};

/// The header that names a request, so that the caller can ask again.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The place of the fields in a request without a body, as errors name it.
const NO_BODY: &str = "the path, or what follows the question mark,";

/// A request as it arrives. The fields in the path are read one by one, and all others by [`Received::in_query`] or
/// [`Received::in_body`].
pub struct Received<'a> {
    /// The node that is asked.
    pub context: &'a Arc<NodeContext>,
    /// The deadline, and the caller.
    pub due: &'a Due,
    /// The values of the fields that the path names, in its order.
    path: PathValues<'a>,
    head: &'a Parts,
    body: Body,
}

impl<'a> Received<'a> {
    /// A request for the values in `path`, with this head and body.
    pub fn new(
        context: &'a Arc<NodeContext>, due: &'a Due, path: PathValues<'a>,
        (head, body): (&'a Parts, Body),
    ) -> Self {
        Received { context, due, path, head, body }
    }

    /// The name that the caller gave the request, without the quotes that may stand around it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if there are two names, or the quotes do not end.
    pub fn request_id(&self) -> Result<Option<Bytes>, Refusal> {
        let mut said = values(&self.head.headers, IDEMPOTENCY_KEY).map(HeaderValue::as_bytes);
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

    /// The message of the fields in the query, without those in the path.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it cannot be read.
    pub fn in_query<Q: DeserializeOwned + Default>(&self) -> Result<Q, Refusal> {
        if self.query().is_empty() {
            return Ok(Q::default());
        }
        let query = || form_urlencoded::parse(self.query().as_bytes());
        // Bytes that are no text would all be read as this character.
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

    /// The value of the next field in the path, whose name is `field`. `is_alone`: no field is read from the query.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it cannot be read, or the query has the field again.
    pub fn in_path<T: InPath>(&mut self, field: &str, is_alone: bool) -> Result<T, Refusal> {
        let query = self.query();
        let mut said = form_urlencoded::parse(query.as_bytes());
        if !is_alone && said.any(|(name, _)| name == field) {
            return Err(unreadable(NO_BODY, format_args!("duplicate field `{field}`")));
        }
        let text = self.path.next().unwrap_or_default();
        T::in_path(text).map_err(|why| unreadable(NO_BODY, format_args!("{field}: {why}")))
    }

    /// The message in the body, and the memory that is reserved for it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if there is a query, or the body is compressed; and those of [`json()`].
    pub async fn in_body<Q: DeserializeOwned>(self) -> Result<(Q, Option<Reservation>), Refusal> {
        let query = self.query();
        if !query.is_empty() {
            refuse!(
                InvalidRequest,
                "here the body says what is asked for, and something follows the question mark: '{}'",
                shown(query.as_bytes())
            );
        }
        check_encoding(&self.head.headers)?;
        json(self.context, self.body, self.due).await
    }

    /// Checks that there is no body. Returns the memory that is reserved for it.
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

/// Checks that a body does not have a field of the path again.
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

/// Makes the name in the header the request id of a message.
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

/// Makes a key of the kind that the namespace has. The caller may have written an id or a name.
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

/// Makes a key as [`of_kind`] does. If this node knows the kind, and nothing is wrong with the key, the caller is not checked
/// here: nobody is told the key, and the function that answers the message checks the caller.
///
/// # Errors
/// Those of [`of_kind`].
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

//! Reads the headers of a request: its deadline, its caller and its trace. Every handler gets them, and the node.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts, State},
    http::{HeaderMap, HeaderName, request::Parts},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::problem::Problem;
use crate::{
    node::{Asker, NodeContext, TraceContext, time_to_answer},
    proto::{Refusal, refuse},
    server::{
        connections::owner::Owner,
        header_values::values,
        metadata::CLUSTER_ID,
        trace_headers::trace_in,
        written::{integer, shown},
    },
};

/// How long the caller waits for the answer, in milliseconds.
const TIMEOUT_HEADER: HeaderName = HeaderName::from_static("ratchet-timeout-ms");

/// The timeout that every request may have, for the description of the API.
pub fn describe_timeout() -> Value {
    json!({
        "name": TIMEOUT_HEADER.as_str(),
        "in": "header",
        "description": "How long the caller waits for the answer, in milliseconds.",
        "schema": {"type": "integer", "minimum": 1},
    })
}

/// The cluster that every request may name, for the description of the API.
pub fn describe_cluster() -> Value {
    json!({
        "name": CLUSTER_ID.as_str(),
        "in": "header",
        "description": "The cluster that the request is meant for. Every other one refuses it.",
        "schema": {"type": "string", "format": "uuid"},
    })
}

/// The node, as every handler gets it.
pub type ContextState = State<Arc<NodeContext>>;

/// The deadline of a request, and its caller.
#[derive(Debug, Clone)]
pub struct Due {
    /// The time of its arrival.
    pub arrived: Instant,
    /// The time by which it is to be answered.
    pub deadline: Instant,
    /// The caller.
    pub by: Asker,
    /// The trace that the call belongs to, as its caller names it.
    pub trace: Option<TraceContext>,
}

impl Due {
    /// Reads the headers of a request that has just arrived over a connection of `owner`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the timeout is no time, or is there twice; UNAUTHENTICATED if there are several tokens;
    /// RESOURCE_EXHAUSTED if the principal has as many connections as it may have.
    pub fn said_in(
        headers: &HeaderMap, owner: &Owner, context: &NodeContext,
    ) -> Result<Due, Refusal> {
        let arrived = Instant::now();
        let mut patience = None;
        for value in values(headers, TIMEOUT_HEADER) {
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
        // This comes before any of the body is held.
        access.connection_is_used_by(&by)?;
        let deadline = arrived + time_to_answer(patience, &context.config);
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

//! The headers of a call: the cluster that it is meant for, its compression, the members that its caller knows, and its
//! deadline.
//!
//! A call that is meant for another cluster is refused before anything is done, whatever it asks for: its caller was
//! led here by an address that was another node's before. A caller that knows older members is told the route with the
//! answer.
//!
//! Invariant: a call that says none of this costs four looks into its headers. One of them is for the token of its caller
//! (`connections/owner.rs`).

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Either, ready},
};
use hyper::{
    HeaderMap, Request, Response,
    body::Incoming,
    header::{HeaderName, HeaderValue},
};
use prost::Message;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{
    Status,
    body::Body,
    codegen::Service,
    metadata::{MetadataMap, MetadataValue},
};

use super::{
    connections::{
        answering::Answering,
        owner::Owner,
        reflection::{REFLECTION, ReflectionCaller, described},
    },
    header_values::values,
    written::{integer, shown},
};
use crate::{
    node::{Asker, Config, NodeContext, time_to_answer, without_addresses},
    proto::{Refusal, refusal},
    sequence::{ClusterId, Wanted},
};

/// The cluster that a call is meant for; in a refusal, and over HTTP in every answer, the one that answers.
pub const CLUSTER_ID: HeaderName = HeaderName::from_static("ratchet-cluster-id");
/// How a call's messages may be compressed.
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// The version of the members that the caller knows; 0 for none. Absent: it does not want to be told.
const MEMBERS_VERSION: HeaderName = HeaderName::from_static("ratchet-members-version");
/// The route, with an answer.
const ROUTE: &str = "ratchet-route-bin";

/// Why a call is refused for its headers.
#[derive(Debug)]
pub struct HeadRefused {
    refusal: Refusal,
    /// The cluster of this node, which its caller is told: the call is meant for another one.
    own_cluster: Option<ClusterId>,
}

impl HeadRefused {
    /// The answer to the call.
    fn into_http(self) -> Response<Body> {
        let mut answer = Status::from(self.refusal).into_http();
        let own = self.own_cluster.map(|own| HeaderValue::try_from(own.to_string()));
        if let Some(Ok(own)) = own {
            answer.headers_mut().insert(CLUSTER_ID, own);
        }
        answer
    }
}

impl From<Refusal> for HeadRefused {
    fn from(refusal: Refusal) -> Self {
        HeadRefused { refusal, own_cluster: None }
    }
}

impl From<HeadRefused> for Refusal {
    fn from(refused: HeadRefused) -> Self {
        refused.refusal
    }
}

/// Checks which cluster a call is meant for, if its headers say so.
///
/// # Errors
/// FAILED_PRECONDITION with the id of this cluster if it is another one, UNAVAILABLE if this node does not know its own,
/// INVALID_ARGUMENT if the header is no id.
pub fn check(context: &NodeContext, headers: &HeaderMap) -> Result<(), HeadRefused> {
    // A proxy may have added one.
    values(headers, CLUSTER_ID).try_for_each(|written| {
        let (meant, own) =
            (ClusterId::parse(written.as_bytes()), context.services.members.cluster_id());
        match meant.is_some() && meant == own {
            true => Ok(()),
            false => Err(not_meant(written.as_bytes(), meant, own, context.config.node_id)),
        }
    })
}

/// Sees that a call's messages are not compressed: nobody here knows how large they are.
///
/// # Errors
/// UNIMPLEMENTED if its headers say that they may be.
fn check_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.get(ENCODING).filter(|encoding| *encoding != "identity") {
        None => Ok(()),
        Some(encoding) => Err(refusal!(
            Unsupported,
            "the messages are compressed ({ENCODING}: {}), and no node reads such; send them as they are",
            shown(encoding.as_bytes())
        )),
    }
}

#[cold]
fn not_meant(
    written: &[u8], meant: Option<ClusterId>, own: Option<ClusterId>, node: u64,
) -> HeadRefused {
    let (Some(meant), Some(own)) = (meant, own) else {
        return HeadRefused::from(match meant {
            None => refusal!(
                InvalidRequest,
                "{CLUSTER_ID} is '{}'; give the id of a cluster, a UUID, as ratchet status shows it",
                shown(written)
            ),
            Some(meant) => refusal!(
                NotFounded,
                "the call is meant for cluster {meant}; node {node} belongs to none yet, or has not heard of which: ask \
                 another node"
            ),
        });
    };
    let refusal = refusal!(
        ClusterMismatch,
        "the call is meant for cluster {meant}, and node {node} belongs to cluster {own}: correct the address, or the id"
    );
    HeadRefused { refusal, own_cluster: Some(own) }
}

/// Routes that answer what is meant for this cluster alone.
#[derive(Clone)]
pub struct Addressed<S> {
    routes: S,
    context: Arc<NodeContext>,
    owner: Owner,
    stop: CancellationToken,
}

impl<S> Addressed<S> {
    /// Lets those calls of a connection through to `routes` that are meant for the cluster of the node of `context`, with who
    /// asks in each. The connection counts for that caller before the call begins. Descriptions of the API end at `stop`.
    pub fn new(
        routes: S, context: Arc<NodeContext>, owner: Owner, stop: CancellationToken,
    ) -> Self {
        Addressed { routes, context, owner, stop }
    }

    /// The asker of a call with these headers, if the call may go on. The connection counts for that caller then.
    fn asker_of(&self, headers: &HeaderMap) -> Result<Asker, HeadRefused> {
        check(&self.context, headers)?;
        check_encoding(headers)?;
        let access = &self.context.services.access;
        let by = self.owner.asks_with(headers, access)?;
        access.connection_is_used_by(&by)?;
        Ok(by)
    }
}

impl<S: Answering> Addressed<S> {
    /// Has the API described to a caller, as long as it is let in. The reflection service has no code of ours that could look
    /// who asks.
    fn describe(
        &self, by: Asker, mut call: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> + Send + use<S> {
        let (mut routes, context, stop) =
            (self.routes.clone(), self.context.clone(), self.stop.clone());
        let caller = Arc::new(ReflectionCaller::new(context.services.access.clone(), by.clone()));
        call.extensions_mut().insert(caller.clone());
        let timeout = timeout_in(&MetadataMap::from_headers(call.headers().clone()));
        let deadline = Instant::now() + time_to_answer(timeout, &context.config);
        async move {
            let admitted = context.admission.admit(&by, Wanted::Anything, deadline).await;
            if let Err(refusal) = admitted {
                return Ok(Status::from(refusal).into_http());
            }
            let answer = routes.call(call).await?;
            Ok(described(answer, caller, context.metrics.clone(), stop))
        }
    }
}

impl<S: Answering> Service<Request<Incoming>> for Addressed<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<S::Future, BoxFuture<'static, Result<Response<Body>, Infallible>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.routes.poll_ready(cx)
    }

    fn call(&mut self, mut call: Request<Incoming>) -> Self::Future {
        let by = match self.asker_of(call.headers()) {
            Ok(by) => by,
            Err(refused) => return Either::Right(ready(Ok(refused.into_http())).boxed()),
        };
        call.extensions_mut().insert(by.clone());
        if call.uri().path().starts_with(REFLECTION) {
            return Either::Right(self.describe(by, call).boxed());
        }
        let Some(known) = call.headers().get(MEMBERS_VERSION) else {
            return Either::Left(self.routes.call(call));
        };
        let Some(known) = integer(known.as_bytes()) else {
            let refusal = refusal!(
                InvalidRequest,
                "{MEMBERS_VERSION} is '{}'; give a version from a route, or 0",
                shown(known.as_bytes())
            );
            return Either::Right(ready(Ok(Status::from(refusal).into_http())).boxed());
        };
        let (answering, context) = (self.routes.call(call), self.context.clone());
        let answering = async move {
            let mut answer = answering.await?;
            // Anybody may ask for the health, and is told no more.
            if context.services.access.check(&by, Wanted::Anything).is_ok() {
                tell_route(&context, (known, &by), answer.headers_mut());
            }
            Ok(answer)
        };
        Either::Right(answering.boxed())
    }
}

/// Adds the route to an answer, if the members that its caller knows are older.
fn tell_route(context: &NodeContext, (known, by): (u64, &Asker), headers: &mut HeaderMap) {
    if let Some(route) = context.services.members.route_after(known) {
        let route = if by.is_told_route() { route } else { without_addresses(route) };
        let route = route.encode_to_vec();
        let mut told = MetadataMap::new();
        told.insert_bin(ROUTE, MetadataValue::from_bytes(&route));
        headers.extend(told.into_headers());
    }
}

/// How long this node may work on `request`, by its `grpc-timeout` header.
pub fn time_of_call<T>(request: &tonic::Request<T>, config: &Config) -> Duration {
    time_to_answer(timeout_in(request.metadata()), config)
}

/// Parses the `grpc-timeout` header: 1 to 8 digits and a unit. `None` if it is missing or malformed.
fn timeout_in(metadata: &MetadataMap) -> Option<Duration> {
    let value = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3_600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: &str) -> Option<Duration> {
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", value.parse().unwrap());
        timeout_in(&metadata)
    }

    #[test]
    fn compressed_messages_are_refused_by_that_name() {
        let encoded = |encoding: &'static str| {
            let headers = HeaderMap::from_iter([(ENCODING, encoding.parse().unwrap())]);
            check_encoding(&headers)
        };
        assert_eq!(check_encoding(&HeaderMap::new()), Ok(()));
        assert_eq!(encoded("identity"), Ok(()));
        let refused = encoded("gzip").unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unimplemented);
        assert!(refused.message().contains("grpc-encoding: gzip"), "{refused:?}");
    }

    #[test]
    fn a_timeout_header_is_parsed_and_a_malformed_one_is_ignored() {
        assert_eq!(parsed("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parsed("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        assert_eq!(parsed("5u"), Some(Duration::from_micros(5)));
        for garbage in ["", "m", "5", "-5m", "123456789m", "5x", "5.0S"] {
            assert_eq!(parsed(garbage), None, "{garbage}");
        }
    }
}

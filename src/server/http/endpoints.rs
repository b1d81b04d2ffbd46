//! The operations that `proto` describes for HTTP (`google.api.http`): their routes, and how they are answered.

use std::{collections::BTreeSet, mem, sync::Arc};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode},
    middleware::Next,
    response::Response,
    routing::{MethodFilter, on},
};
use futures::{FutureExt, future::BoxFuture};
use serde::Serialize;
use tokio::time::Instant;

use super::{
    problem::Problem,
    request::{self, Due, InPath, Node, Received, in_path, of_kind, take_request_id, uncacheable},
};
use crate::{
    metrics::Interface,
    node::{Asked, NodeContext, Origin, ROUTE_UNWANTED, Reservation, SequenceRequest, check_ids},
    proto::{
        Code, Operation, Refusal, refusal, refuse,
        v1::{self, NextIdsRequest, NextIdsResponse, NextManyRequest, NextManyResponse},
    },
    server::{
        grpc::{count_response_errors, ids},
        written::shown,
    },
};

// What `proto` describes for HTTP (`google.api.http`): the routes.
//
// The build writes a row for each method (`build.rs`). `request.rs` makes the message of a request, and one of the functions
// here has it answered. The JSON is proto's own, made from the messages in the client's package.

/// Where a method can be asked for over HTTP, as its option has it.
pub struct Endpoint {
    /// The method of HTTP.
    pub verb: &'static str,
    /// The path, with the names of fields in braces.
    pub path: &'static str,
    /// The path up to its last field: the router cannot tell actions apart.
    route: &'static str,
    /// What follows that field: the action, as in `/v1/nodes/{id}:promote`.
    action: &'static str,
    /// Whether the other fields stand in the body; if not, they follow the question mark.
    pub has_body: bool,
    /// Whether a header may name the request.
    pub has_name: bool,
    /// The name of the service.
    pub service: &'static str,
    /// The name of the method.
    pub rpc: &'static str,
    /// The name of the message that asks.
    pub request: &'static str,
    /// The name of the message that answers.
    pub answer: &'static str,
    /// Whether the time until the answer counts among those of requests.
    is_timed: bool,
    /// The verb, for the router.
    filter: MethodFilter,
    /// Carries it out.
    serve: fn(Received) -> BoxFuture<'static, Result<Response, Problem>>,
}

/// The HTTP status of the answer to a method.
pub fn status(rpc: &str) -> StatusCode {
    match rpc.starts_with("Create") {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    }
}

impl Endpoint {
    /// Those that the router cannot tell from this one, itself among them.
    fn alike(&self) -> impl Iterator<Item = &'static Endpoint> {
        let is_alike = |one: &&Endpoint| (one.route, one.verb) == (self.route, self.verb);
        ENDPOINTS.iter().filter(is_alike)
    }
}

macro_rules! endpoints {
    ($($verb:ident $path:literal $route:literal $action:literal $has_body:literal $answered_by:ident $service:ident $rpc:ident $request:ident {
        in_path: $($in_path:ident)*; keys: $($key:ident)*; request_id: $($id:ident)?; route_version: $($version:ident)?
    } $answer:ident;)*) => {
        /// All of them.
        pub const ENDPOINTS: &[Endpoint] = &[$(Endpoint {
            verb: stringify!($verb),
            path: $path,
            route: $route,
            action: $action,
            has_body: $has_body,
            has_name: !stringify!($($id)?).is_empty(),
            service: stringify!($service),
            rpc: stringify!($rpc),
            request: stringify!($request),
            answer: stringify!($answer),
            is_timed: !matches!(stringify!($answered_by).as_bytes(), b"operation"),
            filter: MethodFilter::$verb,
            #[allow(unused_mut, unused_variables)] // Not all messages have all of these fields.
            serve: |received| Box::pin(async move {
                let (context, due) = (received.context.clone(), received.due);
                let id = received.request_id()?;
                let merge = |body: &mut v1::$request, path: v1::$request| {
                    let absent = v1::$request::default();
                    $(if body.$in_path != absent.$in_path {
                        return Err(stringify!($in_path));
                    }
                    body.$in_path = path.$in_path;)*
                    Ok(())
                };
                let (mut message, _held): (v1::$request, _) = received.message($has_body, merge).await?;
                $(take_request_id(&mut message.$id, id)?;)?
                // A caller that knows no route wants none: it has no other way to the leader.
                $(if message.$version == 0 {
                    message.$version = ROUTE_UNWANTED;
                })?
                $(message.$key =
                    of_kind(&context, &message.namespace, message.$key.take(), due).await?;)*
                let answer = $answered_by(&context, message, due).await?;
                answered(stringify!($rpc), answer)
            }),
        }),*];
    };
}

include!(concat!(env!("OUT_DIR"), "/http.rs"));

/// The routes of all of them.
pub fn routes() -> Router<Arc<NodeContext>> {
    let is_first =
        |one: &&Endpoint| one.alike().next().is_some_and(|first| first.request == one.request);
    ENDPOINTS.iter().filter(is_first).fold(Router::new(), |routes, first| {
        let alike: Arc<[&Endpoint]> = first.alike().collect();
        let serve = move |State(context): Node, due, path, request: Request| async move {
            // Nobody may give the answer again: the next one is another.
            uncacheable(answer(&alike, context, due, path, request).await)
        };
        routes.route(first.route, on(first.filter, serve))
    })
}

/// Answers a request to one of those that are `alike`.
async fn answer(
    alike: &[&'static Endpoint], context: Arc<NodeContext>, due: Result<Due, Problem>,
    path: InPath<Vec<(String, String)>>, request: Request,
) -> Result<Response, Problem> {
    let due = due?;
    let mut path = in_path(path)?;
    let endpoint = named_by(alike, request.uri().path(), &mut path)?;
    let answering = (endpoint.serve)(Received::new(context.clone(), due, path, request));
    match endpoint.is_timed {
        true => timed(&context, answering).await,
        false => answering.await,
    }
}

/// Which one of those that are alike a path names, as it was `sent`. The name is taken off the path's last field. A colon that
/// is escaped belongs to the field.
///
/// # Errors
/// UNIMPLEMENTED if it names none.
fn named_by(
    alike: &[&'static Endpoint], sent: &str, path: &mut [(String, String)],
) -> Result<&'static Endpoint, Problem> {
    let mut empty = String::new();
    let last = path.last_mut().map_or(&mut empty, |(_, value)| value);
    let named = alike.iter().filter(|one| sent.ends_with(one.action));
    let named = named.max_by_key(|one| one.action.len());
    let named = named.ok_or_else(|| no_action(alike, last))?;
    last.truncate(last.len() - named.action.len());
    Ok(named)
}

/// What is wrong with a path whose last field is `last`: it ends with no action.
fn no_action(alike: &[&'static Endpoint], last: &str) -> Problem {
    let actions: Vec<_> = alike.iter().map(|one| format!("'{}'", one.action)).collect();
    let is_other = |one: &&Endpoint| {
        let mut alike = alike.iter();
        alike.all(|this| one.route == this.route && one.verb != this.verb)
    };
    let others = ENDPOINTS.iter().filter(is_other);
    // What takes GET takes HEAD, too.
    let others =
        others.flat_map(|one| [one.verb].into_iter().chain((one.verb == "GET").then_some("HEAD")));
    let others = others.collect::<BTreeSet<&str>>().into_iter().collect::<Vec<_>>().join(", ");
    let refusal = refusal!(
        Unsupported,
        "the path ends with '{}'; here it must end with {}",
        shown(last.as_bytes()),
        actions.join(" or ")
    );
    Problem::of_method(refusal, HeaderValue::try_from(others).ok())
}

/// The answer to a method.
fn answered(
    rpc: &str, (answer, reserved): (impl Serialize, Option<Reservation>),
) -> Result<Response, Problem> {
    let mut response = request::reserved_json(&answer, reserved)?;
    *response.status_mut() = status(rpc);
    Ok(response)
}

// Asks the node, and records how long that took and whether it failed. The build says which function has which message
// answered (`build.rs`).
//
// Invariant: the memory of a long answer is reserved before anything is waited for, and held until it is sent.

/// The most keys of a request.
const KEYS_MAX: usize = 4_096;
/// How many bytes an answer has for each key.
const KEY_BYTES: usize = 100;

/// An answer, and the memory that is reserved for it, if it is much.
type Answered<A> = Result<(A, Option<Reservation>), Refusal>;

/// The node's answer to a request.
///
/// # Errors
/// Whatever the node, or the leader, refuses it for.
pub async fn serve<Q: SequenceRequest>(
    context: &Arc<NodeContext>, asked: Asked<Q>, due: Due,
) -> Result<Q::Answer, Refusal> {
    Ok(context.leader.serve(&asked, Origin::Client, due.deadline).await?)
}

/// Has an operation carried out.
///
/// # Errors
/// Whatever it is refused for.
pub async fn operation<Q: Operation>(
    context: &Arc<NodeContext>, message: Q, due: Due,
) -> Answered<Q::Answer> {
    Ok(context.leader.ask(&message, due.deadline).await?)
}

/// Answers a message out of the sequences of a namespace.
///
/// # Errors
/// INVALID_ARGUMENT if it is malformed or has too many keys; RESOURCE_EXHAUSTED if other requests hold the memory; and whatever
/// the node, or the leader, refuses it for.
pub async fn sequence<Q: SequenceRequest>(
    context: &Arc<NodeContext>, message: Q, due: Due,
) -> Answered<Q::Answer> {
    let asked = Asked::new(message)?;
    let keys = asked.keys();
    if keys > KEYS_MAX {
        refuse!(InvalidRequest, "the message has {keys} keys; over HTTP give at most {KEYS_MAX}");
    }
    let namespace = asked.namespace().to_owned();
    let reserved = context.request_memory.reserve_if_many(keys * KEY_BYTES);
    let reserved = reserved.map_err(|busy| {
        // What nobody could answer is told so, however many others wait.
        let known = context.leader.key_kind(&namespace, due.deadline).now_or_never();
        known.and_then(Result::err).map_or(busy, Refusal::from)
    })?;
    Ok((serve(context, asked, due).await?, reserved))
}

/// Answers a message that others send on a stream. An error of a key is counted, as it is there.
///
/// # Errors
/// As [`sequence`].
pub async fn one_of_stream(
    context: &Arc<NodeContext>, mut message: NextManyRequest, due: Due,
) -> Answered<NextManyResponse> {
    if message.timeout_ms > 0 {
        let why = "timeout_ms is for streams; here the header ratchet-timeout-ms says how long the caller waits";
        refuse!(InvalidRequest, "{why}");
    }
    let id = mem::take(&mut message.id);
    let (mut answer, reserved) = sequence(context, message, due).await?;
    answer.id = id;
    count_response_errors(&context.metrics, Interface::http, &answer);
    Ok((answer, reserved))
}

/// Makes ids.
///
/// # Errors
/// Those of [`Ids::next`](crate::node::Ids::next).
pub async fn ids(
    context: &Arc<NodeContext>, mut message: NextIdsRequest, due: Due,
) -> Answered<NextIdsResponse> {
    check_ids(&message)?;
    message.key = of_kind(context, &message.namespace, message.key.take(), due).await?;
    let (made, reserved) = context.ids.next(&message, due.deadline).await?;
    Ok((ids::answer(made, message.as_text), Some(reserved)))
}

/// Waits for an answer, and records how long it took.
pub async fn timed<A>(context: &NodeContext, answering: impl Future<Output = A>) -> A {
    let arrived = Instant::now();
    let answer = answering.await;
    context.metrics.request_seconds.of(Interface::http).observe(arrived.elapsed(), 1);
    answer
}

/// Answers a request of a path whose answers are [`timed`].
pub async fn time(State(context): Node, request: Request, next: Next) -> Response {
    timed(&context, next.run(request)).await
}

/// Counts the problem that an answer tells, if it tells one.
pub fn count(context: &NodeContext, answer: &Response) {
    if let Some(code) = answer.extensions().get::<Code>() {
        context.metrics.errors.of(Interface::http).add(*code, 1);
    }
}

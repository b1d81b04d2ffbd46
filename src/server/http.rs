//! The interface for HTTP: numbers, namespaces, members and the status in JSON; a status page; and the forms of other id
//! generators.
//!
//! From a socket to a number: this file refuses a request that is meant for another cluster, and `../foreign_page.rs` refuses
//! one that a page of another site sends. `endpoints.rs` has the routes of the methods that `proto` describes for HTTP
//! (`google.api.http`). `headers.rs` reads the deadline and the caller, `path.rs` the path, and `bodies.rs` the body within its
//! limits. `message.rs` makes a message of these parts: the same message as gRPC's. `answers.rs` has the node answer it.
//! `problem.rs` writes a failure as JSON.
//!
//! The other pages: `export.rs` streams the keys of a namespace, if this node leads. `drop_in.rs` answers clients of other id
//! generators in the form that they know. `page.rs` is the status page, at which browsers log in. `openapi.rs` describes the
//! API.
//!
//! Invariant: a number of 64 bits is written as a string, unless the caller knows no other form than a number. JavaScript, and
//! other languages whose numbers are floating point, would round a number above 2^53.

mod answers;
mod bodies;
mod drop_in;
mod endpoints;
mod export;
mod headers;
mod message;
mod openapi;
mod page;
mod path;
mod problem;

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
};

use axum::{
    BoxError, Router,
    body::{Body, Bytes, HttpBody},
    extract::{Request, State},
    http::{HeaderValue, request::Parts},
    middleware::map_response,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tower::{Service, ServiceExt, service_fn};

use super::{
    connections::owner::Owner,
    foreign_page,
    metadata::{CLUSTER_ID, check},
    metrics,
};
use crate::{node::NodeContext, proto::Refusal, sequence::Wanted};
use answers::{count, observe, timed};
use bodies::{HttpAnswer, forbid_caching, uncacheable};
use drop_in::yuewen;
use endpoints::HttpRoute;
use headers::{ContextState, Due};
use message::Received;
use page::login;
use problem::{Problem, nothing_here, other_method, takes_only};

pub use page::Live;

/// Answers the requests of the port.
#[derive(Clone)]
pub struct HttpPort {
    context: Arc<NodeContext>,
    /// The pages that `proto` does not describe.
    pages: Router,
}

impl HttpPort {
    /// Makes a port whose requests the node of `context` answers. `live` has the parts of the status page.
    pub fn new(context: Arc<NodeContext>, live: Live) -> HttpPort {
        let pages = pages(context.clone(), live);
        HttpPort { context, pages }
    }

    /// Answers the requests that come over a connection which `owner` has opened.
    pub fn requests_of<B>(
        &self, owner: Owner,
    ) -> impl Service<Request<B>, Response = HttpAnswer, Error = Infallible, Future: Send> + Clone + use<B>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let cluster_id = OnceLock::new();
        let connection = Arc::new(HttpConnection { port: self.clone(), owner, cluster_id });
        service_fn(move |request: Request<B>| {
            let connection = connection.clone();
            let (head, body) = request.into_parts();
            let body = match body.is_end_stream() {
                // An empty body needs no box.
                true => Body::empty(),
                false => Body::new(body),
            };
            connection.answer(head, body)
        })
    }
}

/// The state that all requests of a connection share. Threads that serve other connections do not count references to it, so no
/// request waits for them.
struct HttpConnection {
    port: HttpPort,
    owner: Owner,
    /// The id of the cluster, once this node knows it. It never changes.
    cluster_id: OnceLock<HeaderValue>,
}

impl HttpConnection {
    /// Answers a request, and says in a header which cluster answers. If the answer tells of a problem, the problem is counted.
    async fn answer(self: Arc<Self>, head: Parts, body: Body) -> Result<HttpAnswer, Infallible> {
        let HttpPort { context, .. } = &self.port;
        if let Err(refusal) = self.check(&head) {
            return Ok(self.told(sent(Problem::from(refusal).into_response())));
        }
        let Some((route, parts)) = HttpRoute::to(head.uri.path()) else {
            // Boxed, like every rare path: the future of the common path stays small.
            let page = Box::pin(self.page(head, body)).await;
            return Ok(self.told(page));
        };
        let (due, endpoint, values) = match route.asked(context, &self.owner, (&head, parts)) {
            Ok(asked) => asked,
            Err(problem) => return Ok(self.told(of_route(Err(problem)))),
        };
        let received = Received::new(context, &due, values, (&head, body));
        let answer = endpoint.carry_out(received).await;
        if endpoint.is_timed {
            observe(context, due.arrived);
        }
        Ok(self.told(of_route(answer)))
    }

    /// Answers a request for a page that `proto` does not describe.
    async fn page(&self, mut head: Parts, body: Body) -> HttpAnswer {
        head.extensions.insert(self.owner.clone());
        let Ok(answer) = self.port.pages.clone().oneshot(Request::from_parts(head, body)).await;
        sent(answer)
    }

    /// An answer as it is told: with the id of the cluster, and counted if it tells of a problem.
    fn told(&self, mut answer: HttpAnswer) -> HttpAnswer {
        count(&self.port.context, &answer);
        if let Some(id) = self.cluster_id() {
            answer.headers_mut().insert(CLUSTER_ID, id.clone());
        }
        answer
    }

    /// Checks that a request is meant for this cluster, and that no page of another site sent it. Probes are not checked,
    /// because they ask the node, whatever its cluster.
    fn check(&self, head: &Parts) -> Result<(), Refusal> {
        if foreign_page::PROBES.contains(&head.uri.path()) {
            return Ok(());
        }
        let context = &self.port.context;
        check(context, &head.headers)?;
        foreign_page::check(context, Some(&self.owner), &head.headers, &head.uri)
    }

    fn cluster_id(&self) -> Option<&HeaderValue> {
        if self.cluster_id.get().is_none() {
            let id = self.port.context.services.members.cluster_id()?;
            // The id has digits and hyphens alone, which a header's value may have.
            let id = HeaderValue::try_from(id.to_string()).ok()?;
            return Some(self.cluster_id.get_or_init(|| id));
        }
        self.cluster_id.get()
    }
}

/// The answer of a route of `proto`. No cache may give it again: the next answer is another one.
fn of_route(answer: Result<HttpAnswer, Problem>) -> HttpAnswer {
    let mut answer = answer.unwrap_or_else(|problem| sent(problem.into_response()));
    forbid_caching(answer.headers_mut());
    answer
}

fn sent(answer: Response) -> HttpAnswer {
    answer.map(tonic::body::Body::new)
}

/// The routes of the pages that `proto` does not describe.
fn pages(context: Arc<NodeContext>, live: Live) -> Router {
    let of_root = live.clone();
    let root = get(|context, due, head| root(context, due, head, of_root));
    // Without this, axum would answer HEAD as it answers GET, and take a number.
    let root = match yuewen::is_on(&context.config) {
        true => root.head(async |request: Request| takes_only(&request, Some("GET"))),
        false => root,
    };
    let [for_form, for_login, for_logout] = [(); 3].map(|()| live.sessions.clone());
    let form = get(|context, head| login::form(context, head, for_form));
    let log_in = |context, due, request| login::log_in(context, due, request, for_login);
    let log_out = |context, head| login::log_out(context, head, for_logout);
    let watch = |context: ContextState, due: Due, head: Parts| async move {
        live.watch(&context, &due, &head).await
    };
    let kept_by_no_cache = map_response(async |answer: Response| uncacheable(answer));
    Router::new()
        .route("/", root)
        .route("/events", get(watch))
        .route("/login", form.post(log_in))
        .route("/logout", post(log_out))
        .route("/openapi.json", get(document))
        .merge(metrics::probes())
        .route("/v1/namespaces/{namespace}/export", get(export::export).layer(kept_by_no_cache))
        .merge(drop_in::routes(&context))
        .fallback(nothing_here)
        .method_not_allowed_fallback(other_method)
        .with_state(context)
}

/// `GET /openapi.json`.
async fn document(State(context): ContextState, due: Due) -> Result<Response, Problem> {
    context.admission.admit(&due.by, Wanted::Anything, due.deadline).await?;
    Ok(openapi::document())
}

/// `GET /`: a number for clients of Yuewen's generator, if they are served, or else the status page.
async fn root(context: ContextState, due: Due, head: Parts, live: Live) -> Response {
    if yuewen::answers(&context, &head.uri) {
        return timed(&context, yuewen::next(&context, &due, &head.uri)).await;
    }
    match login::let_in(&context, &live.sessions, &due, &head).await {
        Ok(_) => live.page(&context).await,
        Err(refusal) => login::instead_of_page(&context, &head, refusal),
    }
}

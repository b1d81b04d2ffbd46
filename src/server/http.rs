//! The interface for HTTP: numbers, namespaces, members and the status, in JSON; a status page; and the forms of other id
//! generators.
//!
//! From a socket to a number: `request.rs` refuses what is meant for another cluster, reads the deadline, the path, and the
//! body within its limits, and makes the same message of them as gRPC's. `foreign_page.rs` refuses what another site's page
//! asks for. `endpoints.rs` has the routes of what `proto` describes for HTTP (`google.api.http`), and has the messages
//! answered. `problem.rs` tells what went wrong. `export.rs` streams what this node knows if it leads. `drop_in.rs` answers
//! clients of other id generators in the form that they know. `page.rs` is the status page, and `openapi.rs` describes the
//! API.
//!
//! Invariant: a number of 64 bits is written as a string unless the caller knows no other form. In JavaScript, and wherever
//! else numbers are floating, those above 2^53 would be rounded.

mod drop_in;
mod endpoints;
mod export;
pub mod foreign_page;
mod openapi;
mod page;
mod problem;
mod request;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::Uri,
    middleware::{map_request_with_state, map_response, map_response_with_state},
    response::Response,
    routing::get,
};

use crate::node::NodeContext;
use drop_in::yuewen;
use endpoints::{count, timed};
use problem::{nothing_here, other_method, takes_only};
use request::{Due, Node, uncacheable};

pub use page::Live;

/// The routes of the port. `live` is what the status page shows.
pub fn routes(context: Arc<NodeContext>, live: Live) -> Router {
    let of_root = live.clone();
    let watch = |State(context): Node| async move { live.watch(&context) };
    let root = get(|context, due, uri| root(context, due, uri, of_root));
    // HEAD of a number would take one.
    let root = match yuewen::is_on(&context.config) {
        true => root.head(async |request: Request| takes_only(&request, Some("GET"))),
        false => root,
    };
    let kept_by_no_cache = map_response(async |answer: Response| uncacheable(answer));
    Router::new()
        .route("/", root)
        .route("/events", get(watch))
        .route("/openapi.json", get(openapi::document))
        .merge(endpoints::routes())
        .route("/v1/namespaces/{namespace}/export", get(export::export).layer(kept_by_no_cache))
        .merge(drop_in::routes(&context))
        .fallback(nothing_here)
        .method_not_allowed_fallback(other_method)
        // The first one is outermost. As one layer they wrap each route once.
        .layer((
            map_response_with_state(context.clone(), finish),
            map_request_with_state(context.clone(), request::refuse),
            map_request_with_state(context.clone(), foreign_page::refuse),
        ))
        .with_state(context)
}

/// Counts the problem that an answer tells, if it tells one, and says which cluster answers.
async fn finish(State(context): Node, answer: Response) -> Response {
    count(&context, &answer);
    request::name(&context, answer)
}

/// `GET /`: a number for clients of Yuewen's generator, if they are served, or else the status page.
async fn root(State(context): Node, due: Due, uri: Uri, live: Live) -> Response {
    if yuewen::answers(&context, &uri) {
        return timed(&context, yuewen::next(&context, due, &uri)).await;
    }
    live.page(&context).await
}

//! The metrics port: `/metrics` in the OpenMetrics text format, and the probes `/livez` and `/readyz` for orchestrators and
//! balancers. The port for HTTP has the probes, too.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::map_request_with_state,
    response::IntoResponse,
    routing::get,
};

use super::foreign_page;
use crate::node::NodeContext;

/// The routes of the port.
pub fn routes(context: Arc<NodeContext>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .merge(probes())
        .layer(map_request_with_state(context.clone(), refuse_foreign_pages))
        .with_state(context)
}

/// The routes of the probes, which the port for HTTP has, too.
pub fn probes() -> Router<Arc<NodeContext>> {
    let allowed = async || (StatusCode::NO_CONTENT, [(header::ALLOW, "GET, HEAD, OPTIONS")]);
    let [live, ready] = foreign_page::PROBES;
    Router::new()
        .route(live, get(livez).options(allowed))
        .route(ready, get(readyz).options(allowed))
}

/// Lets a request through that no page of another site sent.
async fn refuse_foreign_pages(
    State(context): State<Arc<NodeContext>>, request: Request,
) -> Result<Request, (StatusCode, String)> {
    match foreign_page::check(&context, None, request.headers(), request.uri()) {
        Ok(()) => Ok(request),
        Err(status) => Err((StatusCode::FORBIDDEN, format!("{}\n", status.message()))),
    }
}

async fn metrics(State(context): State<Arc<NodeContext>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], context.services.status.metrics_text().await)
}

/// Fails once the node has a fault that stops it.
async fn livez(State(context): State<Arc<NodeContext>>) -> impl IntoResponse {
    probe(context.fault().map_or(Ok(None), Err))
}

/// Fails while this node cannot answer requests, so that they go to another one. A low disk is told and fails nothing: keys in
/// use go on, and the other nodes may be no better.
async fn readyz(State(context): State<Arc<NodeContext>>) -> impl IntoResponse {
    let remark = context.group.limiting_disk().map(|low| {
        let why = low.why_refused();
        format!("{why}: {low}; as leader this node refuses new keys and namespaces")
    });
    probe(context.readiness.check().map(|()| remark))
}

/// The answer to a probe: that all is well, with a remark if there is one, or why not.
fn probe(outcome: Result<Option<String>, impl std::fmt::Display>) -> impl IntoResponse {
    match outcome {
        Ok(None) => (StatusCode::OK, "ok\n".to_owned()),
        Ok(Some(remark)) => (StatusCode::OK, format!("ok, but {remark}\n")),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

//! `/metrics` in Prometheus' text format, and `/livez` and `/readyz` for orchestrators.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};

use crate::node::Shared;

/// What is served.
pub fn routes(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(shared)
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], shared.metrics_text().await)
}

/// Fails once the node must stop.
async fn livez(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    verdict(shared.fault().map_or(Ok(()), Err))
}

/// Fails while requests had better go to another node.
async fn readyz(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    verdict(shared.readiness())
}

fn verdict(found: Result<(), impl std::fmt::Display>) -> impl IntoResponse {
    match found {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

//! `/metrics` in Prometheus' text format.

use std::sync::Arc;

use axum::{Router, extract::State, http::header, response::IntoResponse, routing::get};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::node::Shared;

/// Serves until `stop`.
///
/// # Errors
/// The listener's.
pub async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .with_state(shared);
    axum::serve(listener, routes)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    shared.measure_lease();
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], shared.metrics.text())
}

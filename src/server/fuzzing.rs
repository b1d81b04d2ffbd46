//! The door for the fuzz targets: what parses the bytes of callers. Builds without the feature `fuzzing` do not have it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use super::{
    resp::fuzzing::*,
    written::{integer, key},
};
use crate::node::NodeContext;

/// The routes of the port for HTTP.
pub fn http_routes(context: Arc<NodeContext>) -> axum::Router {
    let live = super::http::Live::new(CancellationToken::new());
    super::http::routes(context, live)
}

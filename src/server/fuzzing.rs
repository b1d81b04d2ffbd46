//! The door for the fuzz targets: what parses the bytes of callers. Builds without the feature `fuzzing` do not have it.

use std::sync::Arc;

pub use super::{
    resp::fuzzing::*,
    written::{integer, key},
};
use crate::node::NodeContext;

/// The routes of the port for HTTP.
pub fn http_routes(context: Arc<NodeContext>) -> axum::Router {
    super::http::routes(context)
}

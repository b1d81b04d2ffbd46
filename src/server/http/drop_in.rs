//! Clients of Leaf, Tinyid and Yuewen's generator, served in the form that they know. A kind of client is served only if a
//! setting maps the names that it uses to keys.
//!
//! From a request to a number: `leaf.rs`, `tinyid.rs` and `yuewen.rs` read a request (`parameters.rs`). They write the answer:
//! a number, many numbers (`tinyid/listed.rs`), or a segment (`tinyid/segment.rs`). `mapped.rs` finds the row of a name in the
//! setting. The row or the caller gives the key (`said.rs`). Then `mapped.rs` takes numbers of the key, or ids
//! (`mapped/ids.rs`). Where the settings fit no namespace it warns the operator (`mapped/warnings.rs`).
//!
//! Invariant: no number is given twice by a cache or a proxy. Each answer says that it may not be kept. HEAD takes no number,
//! because a proxy may send HEAD as a request without effect.

mod leaf;
mod mapped;
mod parameters;
mod said;
mod tinyid;
pub mod yuewen;

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    middleware::from_fn_with_state,
    routing::{MethodRouter, get},
};

use super::{answers::time, problem::takes_only};
use crate::node::NodeContext;

type Routes = Router<Arc<NodeContext>>;

/// The routes of Leaf and of Tinyid, as far as they are configured. Yuewen's clients ask at `/`, which is the path of the
/// status page, too.
pub fn routes(context: &Arc<NodeContext>) -> Routes {
    let config = &context.config;
    let timed = from_fn_with_state(context.clone(), time);
    // Without this, axum would answer HEAD as it answers GET, and take a number.
    let numbers = |route: MethodRouter<_>| {
        let no_head = async |request: Request| takes_only(&request, Some("GET, POST"));
        route.route_layer(timed.clone()).head(no_head)
    };
    let mut routes = Router::new();
    if !config.leaf_tags.is_empty() {
        let next = get(leaf::next).post(leaf::next);
        routes = routes.route("/api/segment/get/{tag}", numbers(next));
    }
    if !config.leaf_snowflake.is_empty() {
        let next = get(leaf::next_id).post(leaf::next_id);
        routes = routes
            .route("/api/snowflake/get/{key}", numbers(next))
            .route("/decodeSnowflakeId", get(leaf::decode));
    }
    if !config.tinyid_types.is_empty() {
        for (path, both) in [
            ("nextId", get(tinyid::next_id).post(tinyid::next_id)),
            ("nextIdSimple", get(tinyid::next_id_simple).post(tinyid::next_id_simple)),
            ("nextSegmentId", get(tinyid::next_segment_id).post(tinyid::next_segment_id)),
            (
                "nextSegmentIdSimple",
                get(tinyid::next_segment_id_simple).post(tinyid::next_segment_id_simple),
            ),
        ] {
            routes = routes.route(&format!("/tinyid/id/{path}"), numbers(both));
        }
    }
    routes
}

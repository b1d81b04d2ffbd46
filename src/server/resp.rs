//! The interface for Redis clients: RESP2 and RESP3 over TCP. A key is written as namespace:key, and INCR takes its next
//! number.
//!
//! From a socket to a number: `connection.rs` reads the bytes that have arrived. `reader.rs` finds the commands in them, and
//! `table.rs` knows all commands. `session.rs` has each answered in its order, or puts it off (`transaction.rs`).
//! `merged_commands.rs` takes numbers from the node, `ids.rs` ids, `raise.rs` raises floors, and `key.rs` reads last numbers.
//! `about.rs` and `cluster.rs` tell of the node and of the cluster. `refused.rs` says why a command is refused, and
//! `replies.rs` writes the replies. `fuzzing.rs` is for the fuzz targets.
//!
//! Invariant: everything that one read of the socket brought is answered before the next read. So a client that does not read
//! its replies is not read either, and the bytes that a connection holds are bounded.

mod about;
mod cluster;
mod connection;
#[cfg(any(debug_assertions, feature = "counting"))]
pub mod fuzzing;
mod ids;
mod key;
mod merged_commands;
mod raise;
mod reader;
mod refused;
mod replies;
mod session;
mod table;
mod transaction;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::connections::{
    acceptor::{ConnectionLimits, accept},
    opening::Opening,
};
use crate::node::NodeContext;

/// Serves the connections of `listener` until `stop`.
pub async fn serve(
    listener: TcpListener, opening: Opening, context: Arc<NodeContext>, limits: ConnectionLimits,
    stop: CancellationToken,
) {
    let (last_id, idle) = (AtomicU64::new(0), limits.idle);
    let of_connection = stop.clone();
    accept(listener, limits, stop, move |socket, place| {
        let id = last_id.fetch_add(1, Relaxed) + 1;
        let (opening, context, stop) = (opening.clone(), context.clone(), of_connection.clone());
        async move {
            match opening.open(socket, &place, idle, &stop).await? {
                Some(stream) => connection::serve(stream, context, place, id, idle, stop).await,
                None => Ok(()),
            }
        }
    })
    .await;
}

//! The interfaces of a node, as a caller uses them: gRPC, HTTP, and the protocol of Redis clients.
//!
//! Invariant: a call is judged by the bytes that were certainly sent and read. It failed only if the node certainly
//! handed out nothing for it; its outcome is unknown otherwise.

mod connection;
mod failure;
mod http;
mod resp;
mod tcp;

pub use connection::Connection;
pub use failure::Failure;
pub use http::HttpConnection;
pub use resp::RespConnection;

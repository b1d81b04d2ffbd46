//! The doors of a node, as a caller uses them: gRPC, HTTP, and the protocol of Redis clients.
//!
//! Invariant: a call is judged by what was certainly sent and read. It failed only if the node certainly handed out
//! nothing for it; what became of it is unknown otherwise.

mod door;
mod failure;
mod http;
mod resp;
mod tcp;

pub use door::Door;
pub use failure::Failure;
pub use http::HttpDoor;
pub use resp::RespDoor;

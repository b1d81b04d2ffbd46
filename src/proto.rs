//! The code generated from `proto`: the services of the public API, whose messages the client's package has, and the peer
//! protocol.

#![allow(missing_docs)]

mod operations;
mod reasons;

pub use operations::Operation;
pub use packages::{peer::v1 as peer, v1};
pub(crate) use reasons::refusal;
pub use reasons::{Refusal, name_of_outcome, name_of_reason, reason_of, retry_after_ms};
/// The codes of `Failure`.
pub use tonic::Code;

// Generated code refers to other packages by their place in this tree.
mod packages {
    pub mod v1 {
        pub use ratchet_client::api::*;

        tonic::include_proto!("ratchet.v1");
    }
    pub mod peer {
        pub mod v1 {
            tonic::include_proto!("ratchet.peer.v1");
        }
    }
}

/// The public API's descriptors, for the reflection service and the description of the HTTP interface.
pub const PUBLIC_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ratchet.v1.bin"));

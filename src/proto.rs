//! The code generated from `proto`: the services of the public API, whose messages the client's package has, and the peer
//! protocol. `description.rs` has the API as its descriptors have it, `operations.rs` which methods the leader or the asked
//! node carries out, and `reasons.rs` why calls fail.

#![allow(missing_docs)]

mod description;
mod operations;
mod reasons;

pub use description::{Description, PUBLIC_API, PUBLIC_DESCRIPTORS, name_of};
pub use operations::{Operation, PEER_STREAMS, SERVICES, STREAMS};
pub use packages::{peer::v1 as peer, v1};
pub use reasons::{Refusal, name_of_outcome, name_of_reason, reason_of, retry_after_ms};

pub(crate) use reasons::{refusal, refuse};

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

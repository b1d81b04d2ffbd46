//! The code generated from `proto`: the services of the public API, whose messages the client's package has, and the
//! peer protocol.

#![allow(missing_docs)]

mod reasons;

pub use packages::{peer::v1 as peer, v1};
pub use reasons::{Refusal, name_of_outcome, name_of_reason, reason_of, retry_after_ms};

pub(crate) use reasons::refusal;

use prost::Message;

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

// The methods whose option `served_by` says who carries them out; of a stream, each message.

/// The request of an operation.
pub trait Operation: Message + Default + 'static {
    /// What it is answered with.
    type Answer: Message + Default + 'static;

    /// Service and method, as in the path of a gRPC call: "ratchet.v1.Admin/CreateNamespace".
    const METHOD: &'static str;

    /// Carrying it out again does no harm, so that its caller may be told UNAVAILABLE although it was carried out.
    const IS_IDEMPOTENT: bool;
}

include!(concat!(env!("OUT_DIR"), "/operations.rs"));

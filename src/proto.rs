//! The code generated from `client/proto` and `proto`: the public API and the peer protocol.

#![allow(missing_docs)]

pub use packages::{peer::v1 as peer, v1};

// Generated code refers to other packages by their place in this tree.
mod packages {
    pub mod v1 {
        tonic::include_proto!("ratchet.v1");
    }
    pub mod peer {
        pub mod v1 {
            tonic::include_proto!("ratchet.peer.v1");
        }
    }
}

impl From<&tonic::Status> for v1::Failure {
    fn from(status: &tonic::Status) -> Self {
        v1::Failure {
            code: status.code().into(),
            message: status.message().to_owned(),
        }
    }
}

impl From<v1::Failure> for tonic::Status {
    fn from(failure: v1::Failure) -> Self {
        tonic::Status::new(failure.code.into(), failure.message)
    }
}

/// The public API's descriptors, for the reflection service.
pub const PUBLIC_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ratchet.v1.bin"));

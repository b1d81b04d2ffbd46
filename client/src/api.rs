//! The messages of the public API, as `proto/ratchet/v1` describes them, and its plain gRPC clients.

#![allow(missing_docs)]

tonic::include_proto!("ratchet.v1");

impl From<Failure> for tonic::Status {
    fn from(failure: Failure) -> Self {
        tonic::Status::new(failure.code.into(), failure.message)
    }
}

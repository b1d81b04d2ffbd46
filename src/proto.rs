//! The code generated from `proto`: the public API and the peer protocol.

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

/// Tells, in the metadata of a status, after how many milliseconds to ask again (gRFC A6).
const RETRY_AFTER: &str = "grpc-retry-pushback-ms";

/// RESOURCE_EXHAUSTED because the node is busy: the caller is to ask again after `retry_after_ms` milliseconds. One without
/// that time is a limit that waiting does not lift.
pub fn busy(retry_after_ms: u64, why: impl Into<String>) -> tonic::Status {
    told_when(tonic::Status::resource_exhausted(why), Some(retry_after_ms))
}

/// The status with the time after which to ask again, if there is one.
fn told_when(mut status: tonic::Status, retry_after_ms: Option<u64>) -> tonic::Status {
    if let Some(millis) = retry_after_ms {
        status.metadata_mut().insert(RETRY_AFTER, millis.into());
    }
    status
}

/// After how many milliseconds to ask again, if a status says so.
pub fn retry_after_ms(status: &tonic::Status) -> Option<u64> {
    let told = status.metadata().get(RETRY_AFTER)?;
    told.to_str().ok()?.parse().ok()
}

impl From<&tonic::Status> for v1::Failure {
    fn from(status: &tonic::Status) -> Self {
        v1::Failure {
            code: status.code().into(),
            message: status.message().to_owned(),
            retry_after_ms: retry_after_ms(status),
        }
    }
}

impl From<v1::Failure> for tonic::Status {
    fn from(failure: v1::Failure) -> Self {
        let status = tonic::Status::new(failure.code.into(), failure.message);
        told_when(status, failure.retry_after_ms)
    }
}

/// The public API's descriptors, for the reflection service.
pub const PUBLIC_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ratchet.v1.bin"));

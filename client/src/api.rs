//! The messages of the public API, as `proto/ratchet/v1` describes them, and its plain gRPC clients.
//!
//! They follow the API and tonic, not the version of this package: any release may add fields. Build them
//! with `..Default::default()`.

#![allow(missing_docs)]

tonic::include_proto!("ratchet.v1");
#[cfg(feature = "json")]
include!(concat!(env!("OUT_DIR"), "/ratchet.v1.serde.rs"));
#[cfg(feature = "json")]
pub use crate::json::InPath;

impl Failure {
    /// The failure as a gRPC status.
    pub(crate) fn into_status(self) -> tonic::Status {
        let mut status = tonic::Status::new(self.code.into(), self.message);
        if let Some(millis) = self.retry_after_ms {
            let metadata = status.metadata_mut();
            metadata.insert(crate::error::RETRY_AFTER, millis.into());
        }
        status
    }
}

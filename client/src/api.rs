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

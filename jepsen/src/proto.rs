//! The public API, generated from `client/proto`.

#![allow(missing_docs)]

tonic::include_proto!("ratchet.v1");

//! The public API, generated from `proto`.

#![allow(missing_docs)]

tonic::include_proto!("ratchet.v1");

//! The public API, generated from the product's `proto/`.

#![allow(missing_docs)]

tonic::include_proto!("ratchet.v1");

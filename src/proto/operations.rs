//! The methods whose option `served_by` says who carries them out; of a stream, each message. The build writes which they
//! are.

use prost::Message;

use super::{peer, v1};

/// The request of an operation.
pub trait Operation: Message + Default + 'static {
    /// The answer to it.
    type Answer: Message + Default + 'static;

    /// Service and method, as in the path of a gRPC call: "ratchet.v1.Admin/CreateNamespace".
    const METHOD: &'static str;

    /// Carrying it out again does no harm, so that its caller may be told UNAVAILABLE although it was carried out.
    const IS_IDEMPOTENT: bool;

    /// It changes nothing.
    const ONLY_READS: bool;
}

include!(concat!(env!("OUT_DIR"), "/operations.rs"));
include!(concat!(env!("OUT_DIR"), "/streams.rs"));
include!(concat!(env!("OUT_DIR"), "/services.rs"));

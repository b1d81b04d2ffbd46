//! Reads the payloads of peers' messages, and writes the answers. An error names the node at the other end, because the
//! usual cause is that it runs another release.

use std::fmt::Display;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    proto::{Refusal, refusal},
    sequence::NodeId,
    storage::codec::{self, CodecError},
};

/// The value in `payload`. `what` names it in errors. `other_end` is the node that the reader of the
/// error exchanged it with.
///
/// # Errors
/// If `payload` is of another format version, or damaged: a text that says what to do.
pub fn decode<T: DeserializeOwned>(
    what: &str, other_end: NodeId, payload: &[u8],
) -> Result<T, String> {
    codec::decode(payload).map_err(|error| match error {
        CodecError::Version(_) => format!(
            "node {other_end} runs another release: {what} cannot be read: {error}; install \
             the same release on all nodes"
        ),
        error @ (CodecError::Short(_)
        | CodecError::Checksum { .. }
        | CodecError::Trailing(_)
        | CodecError::Format(_)) => format!(
            "{what} between this node and node {other_end} cannot be read: {error}; install the \
             same release on all nodes"
        ),
    })
}

/// The message in `payload`, which was sent to node `me`.
///
/// # Errors
/// INVALID_ARGUMENT if it cannot be read.
pub fn read<T: DeserializeOwned>(me: NodeId, payload: &[u8]) -> Result<T, Refusal> {
    decode("a peer message", me, payload).map_err(|why| refusal!(InvalidRequest, "{why}"))
}

/// The payload of an answer.
///
/// # Errors
/// INTERNAL if it cannot be encoded.
pub fn write<T: Serialize>(answer: &T) -> Result<Vec<u8>, Refusal> {
    codec::encode(answer)
        .map_err(|e| refusal!(Internal, "an answer to a peer cannot be written: {e}"))
}

/// The refusal for a peer when Raft has stopped.
pub fn stopped(error: impl Display) -> Refusal {
    refusal!(NodeStopping, "Raft has stopped on this node: {error}")
}

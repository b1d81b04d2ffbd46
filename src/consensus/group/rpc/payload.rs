//! Reads the payloads of peers' messages, and writes the answers. A failure is the refusal that the peer gets.

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    consensus::network::payload,
    proto::{Refusal, refusal},
    sequence::NodeId,
    storage::codec,
};

/// The message in `payload`, which was sent to node `me`.
///
/// # Errors
/// INVALID_ARGUMENT if it cannot be read.
pub fn read<T: DeserializeOwned>(me: NodeId, payload: &[u8]) -> Result<T, Refusal> {
    payload::decode("a peer message", me, payload).map_err(|why| refusal!(InvalidRequest, "{why}"))
}

/// The payload of an answer.
///
/// # Errors
/// INTERNAL if it cannot be encoded.
pub fn write<T: Serialize>(answer: &T) -> Result<Vec<u8>, Refusal> {
    codec::encode(answer)
        .map_err(|e| refusal!(Internal, "an answer to a peer cannot be written: {e}"))
}

/// What a peer is told when Raft has stopped.
pub fn stopped(error: impl std::fmt::Display) -> Refusal {
    refusal!(NodeStopping, "Raft has stopped on this node: {error}")
}

//! Decodes the payload of peer messages. An error names the node at the other end, because the usual cause is that it
//! runs another release.

use serde::de::DeserializeOwned;

use crate::{
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

//! The errors of the disk, each with what to do about it. The kind of an error says whether another start may help, or somebody
//! has to correct the setup.

use std::{io, path::PathBuf};

use crate::sequence::NodeId;

/// Advice about a node whose data directory is lost or cannot be trusted, as part of a sentence.
///
/// There is no other way. The new node gets another id, because its peers may still hold a promise or
/// an acknowledgement of the old one.
pub fn replacing(node: NodeId) -> String {
    REPLACE.replace("ID", &node.to_string())
}

/// The text of [`replacing`] where the node's id is not known.
pub(super) const REPLACE: &str = "replace the node: ratchet node remove ID; start it with an empty \
    data_dir and a node_id that was never used; then ratchet node add it (docs/replace.md)";

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An operation on a file or directory failed.
    #[error("{action} {path}: {source}; check the disk and the permissions", path = path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// RocksDB failed. Its message names the file.
    #[error(
        "the database in {dir} failed: {message}; check the disk; if the data is damaged, {REPLACE}",
        dir = dir.display()
    )]
    Database {
        /// The data directory.
        dir: PathBuf,
        /// RocksDB's message.
        message: String,
    },
    /// A record or file is not what was written.
    #[error(
        "{what} in {place} is damaged: {why}; do not start this node on this data again: {REPLACE}",
        place = place.display()
    )]
    Damaged {
        /// Which record or file.
        what: String,
        /// The directory or file that holds it.
        place: PathBuf,
        /// How the damage shows.
        why: String,
    },
    /// The disk is nearly full: the rest is for the log.
    #[error(
        "the disk of {dir} has {free} bytes left, and taking in a snapshot needs {needed}: make room; \
         the leader sends the snapshot again later",
        dir = dir.display()
    )]
    DiskNearlyFull {
        /// The data directory.
        dir: PathBuf,
        /// How many bytes are free.
        free: u64,
        /// How many bytes must be free.
        needed: u64,
    },
    /// Another release wrote the data. The text says which, and what to do.
    #[error("{0}")]
    OtherRelease(String),
    /// The user of this process cannot use the directory as it is mounted and owned. The text says what to do.
    #[error("{0}")]
    Inaccessible(String),
    /// The disk is well, and the directory is not one for a node that is set up like this: it holds other files, belongs to
    /// another node or cluster, or waits for the end of a recovery. The text says what to do.
    #[error("{0}")]
    WrongSetUp(String),
    /// The directory lost a part, is older than what the cluster knows, or may not be used now. The text says what to do.
    #[error("{0}")]
    Refused(String),
    /// An earlier write failed, so that nothing is written any more.
    #[error("{0}")]
    Failed(String),
    /// A value cannot be stored, or a configuration cannot be used.
    #[error("{0}")]
    Invalid(String),
}

impl StoreError {
    /// A [`StoreError::Invalid`].
    pub fn invalid(why: impl Into<String>) -> Self {
        StoreError::Invalid(why.into())
    }

    /// Whether the disk is well, and somebody has to correct how the node is set up: no restart helps. False for a disk that
    /// fails, data that cannot be trusted, and what may be over at the next start.
    pub fn is_of_set_up(&self) -> bool {
        use StoreError::*;
        match self {
            Inaccessible(_) | WrongSetUp(_) | OtherRelease(_) => true,
            Io { .. }
            | Database { .. }
            | Damaged { .. }
            | DiskNearlyFull { .. }
            | Refused(_)
            | Failed(_)
            | Invalid(_) => false,
        }
    }

    /// Makes a [`StoreError::Io`] of the system's error.
    pub(super) fn io(
        action: &'static str, path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| StoreError::Io { action, path, source }
    }
}

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        io::Error::other(error)
    }
}

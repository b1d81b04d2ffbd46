//! What can go wrong with the disk, and what to do about it.

use std::{io, path::PathBuf};

use crate::sequence::NodeId;

/// What to do with a node whose data directory is lost or cannot be trusted: the one advice there
/// is, as part of a sentence. The id is not used again, since its peers may still hold something
/// against it, or for it.
pub fn replacing(node: NodeId) -> String {
    REPLACE.replace("ID", &node.to_string())
}

/// The same where the node is not known.
pub(super) const REPLACE: &str = "replace the node: ratchet node remove ID; start it with an empty \
    data_dir, a node_id that was never used, and --join; then ratchet node add it (README.md, \
    Replace a node)";

/// Why the store cannot be used, or can no longer be.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or directory failed.
    #[error("{action} {path}: {source}; check the disk and the permissions", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// RocksDB failed; its message names the file.
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
    /// A record is not what was written.
    #[error(
        "{what} in {place} is damaged: {why}; do not start this node on this data again: {REPLACE}",
        place = place.display()
    )]
    Damaged {
        /// Which record.
        what: String,
        /// The directory or file.
        place: PathBuf,
        /// How it shows.
        why: String,
    },
    /// The disk is nearly full: what is left is for the log.
    #[error(
        "the disk of {dir} has {free} bytes left, and {needed} are needed to take a snapshot in: make \
         room; it is sent again later",
        dir = dir.display()
    )]
    DiskNearlyFull {
        /// The data directory.
        dir: PathBuf,
        /// What is free, in bytes.
        free: u64,
        /// What must be, in bytes.
        needed: u64,
    },
    /// A release that this one is not wrote it.
    #[error("{0}")]
    OtherRelease(String),
    /// The directory belongs to somebody else, or lost a part.
    #[error("{0}")]
    Refused(String),
    /// An earlier write failed: nothing is written any more.
    #[error("{0}")]
    Failed(String),
    /// A value cannot be stored, or a configuration not be used.
    #[error("{0}")]
    Invalid(String),
}

impl StoreError {
    /// An [`StoreError::Invalid`].
    pub fn invalid(why: impl Into<String>) -> Self {
        StoreError::Invalid(why.into())
    }

    pub(super) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| StoreError::Io {
            action,
            path,
            source,
        }
    }
}

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        io::Error::other(error)
    }
}

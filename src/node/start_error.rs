//! The error with which a node does not start, or has to stop.

use std::net::SocketAddr;

use super::config::ConfigError;
use crate::{storage::StoreError, tasks::Fault};

/// Why a node did not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data directory cannot be used or trusted.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An address cannot be listened on.
    #[error(
        "cannot listen on {field} {address}: {source}; stop what listens there or choose another"
    )]
    Listen {
        /// The configuration's field.
        field: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It ran, and had to stop.
    #[error(transparent)]
    Stopped(#[from] Fault),
    /// The runtime failed.
    #[error("{0}")]
    Internal(String),
}

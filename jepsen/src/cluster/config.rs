//! How a cluster is to be.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::network::Port;

/// What is under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Product {
    /// `ratchet`.
    Ratchet,
    /// The reference service that broadcasts and takes the maximum.
    MaxWins,
}

/// Which fence the nodes use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fence {
    /// The clock's.
    Lease,
    /// The majority's.
    Quorum,
}

/// How a cluster is to be.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is under test.
    pub product: Product,
    /// The program.
    pub binary: PathBuf,
    /// How many nodes found it.
    pub nodes: Port,
    /// How many more there is room for.
    pub spare: Port,
    /// Which fence.
    pub fence: Fence,
    /// The planted bug, where the program carries any.
    pub bug: Option<String>,
    /// How many bytes of the applied log are kept.
    pub log_keep_bytes: u64,
    /// Whether each process runs in network and mount namespaces, with faults on every link.
    pub isolated: bool,
    /// Whether nodes keep their data on disks that fail on demand.
    pub faulty_disks: bool,
    /// What all chance comes from.
    pub seed: u64,
}

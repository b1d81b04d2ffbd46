//! The configuration of a cluster.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::{history::Interface, manifest::Manifest, network::Port};

/// A product under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Product {
    /// `ratchet`.
    Ratchet,
    /// The reference service that broadcasts and takes the maximum.
    MaxWins,
}

impl Product {
    /// The interfaces through which the product can be asked.
    pub fn interfaces(self) -> &'static [Interface] {
        match self {
            Product::Ratchet => &[
                Interface::Unary,
                Interface::Stream,
                Interface::ProductClient,
                Interface::Http,
                Interface::Resp,
            ],
            // It answers gRPC calls only.
            Product::MaxWins => &[Interface::Unary],
        }
    }
}

/// The fence that the nodes use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fence {
    /// A lease, by the clock.
    Lease,
    /// A majority, asked after the numbers were taken.
    Quorum,
}

/// How long leases and promises last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// How long a leader's lease lasts, by its own clock.
    pub lease_ms: u64,
    /// For how long a follower that heard the leader votes for nobody else, by its own clock.
    pub election_timeout_ms: u64,
}

/// The configuration of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// The product under test.
    pub product: Product,
    /// The program.
    pub binary: PathBuf,
    /// How many nodes found the cluster.
    pub nodes: Port,
    /// How many nodes can be added during the run.
    pub spare: Port,
    /// The fence of the nodes.
    pub fence: Fence,
    /// The planted bug that the program has.
    pub bug: Option<String>,
    /// How many bytes of the applied log are kept.
    pub log_keep_bytes: u64,
    /// How long leases and promises last; `None`: as usual.
    pub timings: Option<Timings>,
    /// After how many milliseconds a key that nobody asks for is evicted from the leader's memory; `None`: as usual.
    pub key_idle_ms: Option<u64>,
    /// How many megabytes of keys the leader's memory holds; `None`: as usual.
    pub memory_max_mb: Option<u64>,
    /// Whether all connections are over TLS, and callers need a token.
    pub secure: bool,
    /// The manifest whose pods the nodes are. It says where they listen and how they find each other, which the harness says
    /// otherwise.
    pub manifest: Option<Manifest>,
    /// Whether each process runs in network and mount namespaces of its own, so that links can fail.
    pub isolated: bool,
    /// Whether nodes keep their data on disks that can fail.
    pub faulty_disks: bool,
    /// The seed of all random choices.
    pub seed: u64,
}

impl ClusterConfig {
    /// The greatest id that a node can have.
    pub fn room(&self) -> Port {
        self.nodes + self.spare
    }

    /// Whether keys come and go in the leader's memory all the time.
    pub fn releases_keys(&self) -> bool {
        self.key_idle_ms.is_some() || self.memory_max_mb.is_some()
    }
}

//! The command line of `ratchet-bench run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::{
    options::{ClusterOptions, Interface, LoadOptions, seconds},
    tls::TlsOptions,
    token::TokenOptions,
};

/// The other side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Against {
    /// A gRPC server whose handler does nothing
    Echo,
    /// redis-server with INCR, without persistence
    Redis,
    /// A three-node etcd, one put per number
    Etcd,
    /// A three-node tsoracle, one call per number
    #[value(name = "tsoracle")]
    TsOracle,
    /// The same cluster, asked through a follower
    Follower,
    /// A second cluster, with the quorum fence
    Quorum,
}

/// The options of `ratchet-bench run`.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// Servers of a running cluster, "host:port", separated by commas; without any, a cluster is started
    /// for the run. Numbers of the namespace "bench" are used up
    #[arg(long, value_delimiter = ',',
          conflicts_with_all = ["nodes", "fence", "step", "section_size", "gapless"])]
    pub server: Vec<String>,
    /// The certificates for a running cluster
    #[command(flatten)]
    pub tls: TlsOptions,
    /// The token for a running cluster
    #[command(flatten)]
    pub token: TokenOptions,
    /// Have the started cluster, and the echo, speak TLS with certificates of both ends, and callers show a token that may take
    /// numbers. Other products' servers stay without
    #[arg(long, conflicts_with = "server")]
    pub secure: bool,
    /// The other side of a comparison, measured in alternating rounds
    #[arg(long, value_enum)]
    pub against: Option<Against>,
    /// How numbers are requested from the other side [default: as from the cluster]
    #[arg(long, value_enum, requires = "against")]
    pub against_interface: Option<Interface>,
    /// Duration of all rounds together, in seconds
    #[arg(long, default_value_t = 20.0, value_parser = seconds)]
    pub seconds: f64,
    /// Number of rounds for each side [default: 5, or 1 without --against]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: Option<u32>,
    /// Number of nodes of the started cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=7))]
    pub nodes: u64,
    /// The load of each round
    #[command(flatten)]
    pub load: LoadOptions,
    /// The cluster
    #[command(flatten)]
    pub cluster: ClusterOptions,
    /// Write a plot of latency over time to this file, as SVG
    #[arg(long)]
    pub plot: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

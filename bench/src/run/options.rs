//! The command line of `ratchet-bench run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::{
    load::Load,
    options::{Door, Fence, Via, seconds},
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
    #[arg(long, value_delimiter = ',')]
    pub server: Vec<String>,
    /// How numbers are requested
    #[arg(long, value_enum, default_value_t = Door::Unary)]
    pub door: Door,
    /// The other side of a comparison, measured in alternating rounds
    #[arg(long, value_enum)]
    pub against: Option<Against>,
    /// How numbers are requested from the other side [default: as from the cluster]
    #[arg(long, value_enum, requires = "against")]
    pub against_door: Option<Door>,
    /// Duration of all rounds together, in seconds
    #[arg(long, default_value_t = 20.0, value_parser = seconds)]
    pub seconds: f64,
    /// Number of rounds for each side [default: 5, or 1 without --against]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: Option<u32>,
    /// Number of connections (doors unary and stream)
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Number of requests in flight on each connection (doors unary and stream)
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub in_flight: u32,
    /// Number of tasks that share one client, each with one request in flight (door client)
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub tasks: u32,
    /// Number of keys in each message (door stream)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: u32,
    /// Number of keys, from which each request draws at random
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub keys: u64,
    /// Open loop: send this many requests a second in all, however slow the answers are; latency counts
    /// from when a request was due
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: Option<u64>,
    /// The node that is asked
    #[arg(long, value_enum, default_value_t = Via::Leader)]
    pub via: Via,
    /// Number of nodes of the started cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=7),
          conflicts_with = "server")]
    pub nodes: u64,
    /// The fence of the started cluster
    #[arg(long, value_enum, default_value_t = Fence::Lease, conflicts_with = "server")]
    pub fence: Fence,
    /// The step of the namespace, in a started cluster
    #[arg(long, default_value_t = 10_000, conflicts_with = "server")]
    pub step: u64,
    /// Seed for drawing keys
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write a plot of latency over time to this file, as SVG
    #[arg(long)]
    pub plot: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// The node's program, for started clusters [default: `ratchet` in the directory of this program]
    #[arg(long)]
    pub binary: Option<PathBuf>,
}

impl RunOptions {
    /// The load of each round.
    pub fn load(&self) -> Load {
        Load {
            connections: self.connections as usize,
            in_flight: self.in_flight as usize,
            tasks: self.tasks as usize,
            batch: self.batch as usize,
            keys: self.keys,
            rate: self.rate,
            seed: self.seed,
        }
    }
}

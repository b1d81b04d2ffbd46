//! What the command line of `ratchet-bench run` says.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::load::Load;

/// Which fence the nodes of a cluster that is started use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fence {
    /// The leader's lease
    Lease,
    /// A quorum, before each answer
    Quorum,
}

impl Fence {
    /// As the node's command line spells it.
    pub fn name(self) -> &'static str {
        match self {
            Fence::Lease => "lease",
            Fence::Quorum => "quorum",
        }
    }
}

/// By which way numbers are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Door {
    /// One gRPC call for each number
    Unary,
    /// One bidirectional gRPC stream for each connection
    Stream,
    /// The client library
    Client,
}

/// Which node is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// The leader
    Leader,
    /// One that forwards
    Follower,
}

/// What the cluster is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Against {
    /// A gRPC server with a handler that does nothing
    Echo,
    /// redis-server, INCR, nothing on disk
    Redis,
    /// A three-node etcd, a put for each number
    Etcd,
    /// A three-node tsoracle, a call for each number
    #[value(name = "tsoracle")]
    TsOracle,
    /// The same cluster, asked at a follower
    Follower,
    /// Another cluster, whose leader asks a quorum before each answer
    Quorum,
}

/// `ratchet-bench run`.
#[derive(Debug, Args)]
pub struct Bench {
    /// The servers of a running cluster, "host:port", several separated by commas; without any, a
    /// cluster is started for the run. Keys of the namespace "bench" are used
    #[arg(long, value_delimiter = ',')]
    pub server: Vec<String>,
    /// How numbers are asked for
    #[arg(long, value_enum, default_value_t = Door::Unary)]
    pub door: Door,
    /// What to compare with, in alternating rounds
    #[arg(long, value_enum)]
    pub against: Option<Against>,
    /// How the other side is asked [default: as the cluster]
    #[arg(long, value_enum, requires = "against")]
    pub against_door: Option<Door>,
    /// How many seconds are measured in all
    #[arg(long, default_value_t = 20.0, value_parser = seconds)]
    pub seconds: f64,
    /// How many rounds the seconds are shared out to, for each side [default: 5, or 1 without --against]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: Option<u32>,
    /// How many connections (doors unary and stream)
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// How many requests are under way on each connection
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub in_flight: u32,
    /// How many tasks ask through one client (door client), each for one number after the other
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub tasks: u32,
    /// How many keys each message of a stream asks for
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: u32,
    /// How many keys there are, to be chosen from at random
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub keys: u64,
    /// Open loop: so many requests a second in all, whatever the answers do; latency counts from when a
    /// request was due
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: Option<u64>,
    /// Which node is asked
    #[arg(long, value_enum, default_value_t = Via::Leader)]
    pub via: Via,
    /// How many nodes the cluster is started with
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=7),
          conflicts_with = "server")]
    pub nodes: u64,
    /// What the started cluster's answers pass
    #[arg(long, value_enum, default_value_t = Fence::Lease, conflicts_with = "server")]
    pub fence: Fence,
    /// The step of the keys, in a started cluster
    #[arg(long, default_value_t = 10_000, conflicts_with = "server")]
    pub step: u64,
    /// Which keys are drawn
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Plot latency over time into this file, as SVG
    #[arg(long)]
    pub plot: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
    /// The node's program, for clusters that are started; `ratchet` beside this one where absent
    #[arg(long)]
    pub binary: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.5..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!(
            "{text} is not a number of seconds from 0.5 to 86400"
        )),
    }
}

impl Bench {
    /// What each round asks for, and how.
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

//! The common options of the subcommands: the load, and the cluster that is started.

use std::{path::PathBuf, sync::Arc};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::{
    load::{Load, Overload},
    secrets::Secrets,
};

/// The fence of the nodes that are started for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fence {
    /// The lease of the leader
    Lease,
    /// The confirmation of a majority before each answer
    Quorum,
}

impl Fence {
    /// The value of `--fence` on the command line of a node.
    pub fn name(self) -> &'static str {
        match self {
            Fence::Lease => "lease",
            Fence::Quorum => "quorum",
        }
    }
}

/// How numbers are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Interface {
    /// One gRPC call per number
    Unary,
    /// One bidirectional gRPC stream per connection
    Stream,
    /// The Rust client library
    Client,
    /// One HTTP request per number
    Http,
    /// One INCR per number, as a Redis client
    Redis,
}

impl Interface {
    /// The value of `--interface`.
    pub fn name(self) -> &'static str {
        match self {
            Interface::Unary => "unary",
            Interface::Stream => "stream",
            Interface::Client => "client",
            Interface::Http => "http",
            Interface::Redis => "redis",
        }
    }
}

/// The node that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// The leader
    Leader,
    /// A follower, which forwards to the leader
    Follower,
}

/// The options of the load.
#[derive(Debug, Args)]
pub struct LoadOptions {
    /// How numbers are requested
    #[arg(long, value_enum, default_value_t = Interface::Unary)]
    pub interface: Interface,
    /// Number of connections (all interfaces but client)
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Number of requests in flight on each connection (all interfaces but client). Over the interfaces http and redis each
    /// of them has a connection of its own: there are `connections` x `in-flight` connections
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub in_flight: u32,
    /// Number of tasks that share one client, each with one request in flight (interface client)
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub tasks: u32,
    /// Number of keys in each message (interface stream)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: u32,
    /// Number of keys, from which each request draws at random
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub keys: u64,
    /// Distance between the ids of two neighbouring keys: with shared sections, a great one spreads few keys
    /// over many sections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub key_stride: u64,
    /// Open loop: send this many requests a second in all, however slow the answers are; latency counts
    /// from when a request was due
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: Option<u64>,
    /// The node that is asked
    #[arg(long, value_enum, default_value_t = Via::Leader)]
    pub via: Via,
    /// Seed for drawing keys
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl LoadOptions {
    /// The load that the options ask for.
    ///
    /// # Errors
    /// The text, if the options contradict each other.
    pub fn load(&self, overload: Overload) -> Result<Load, String> {
        if self.interface != Interface::Stream && self.batch > 1 {
            return Err(format!(
                "--batch {} needs --interface stream; the other interfaces ask for one key at a time",
                self.batch
            ));
        }
        Ok(Load {
            connections: self.connections as usize,
            in_flight: self.in_flight as usize,
            tasks: self.tasks as usize,
            batch: self.batch as usize,
            keys: self.keys,
            key_stride: self.key_stride,
            rate: self.rate,
            overload,
            seed: self.seed,
        })
    }

    /// The options for a report in JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "interface": self.interface.name(),
            "via": format!("{:?}", self.via).to_lowercase(),
            "connections": self.connections,
            "in_flight": self.in_flight,
            "tasks": self.tasks,
            "batch": self.batch,
            "keys": self.keys,
            "key_stride": self.key_stride,
            "rate": self.rate,
            "seed": self.seed,
        })
    }

    /// The load in a few words, for a title.
    pub fn to_text(&self) -> String {
        let how = match self.interface {
            Interface::Client => format!("{} tasks", self.tasks),
            Interface::Unary | Interface::Stream => {
                format!("{} x {} in flight", self.connections, self.in_flight)
            }
            Interface::Http | Interface::Redis => {
                format!("{} connections", self.connections * self.in_flight)
            }
        };
        let rate = self.rate.map(|rate| format!(", {rate} requests/s"));
        let rate = rate.unwrap_or_default();
        format!("{:?}, {how}, {} keys{rate}", self.interface, self.keys)
    }
}

/// The options of a cluster that is started for the run.
#[derive(Debug, Clone, Args)]
pub struct ClusterOptions {
    /// The fence of the started cluster
    #[arg(long, value_enum, default_value_t = Fence::Lease)]
    pub fence: Fence,
    /// The step of the namespace, in a started cluster
    #[arg(long, default_value_t = 10_000)]
    pub step: u64,
    /// How many neighbouring ids of the namespace share a section, in a started cluster
    #[arg(long, default_value_t = 1)]
    pub section_size: u64,
    /// Make the namespace gapless, in a started cluster: each answer waits for a log entry
    #[arg(long)]
    pub gapless: bool,
    /// The node's program, for started clusters [default: `ratchet` in the directory of this program]
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Further arguments of the nodes, which a subcommand needs.
    #[arg(skip)]
    pub further: Vec<String>,
    /// The certificates and tokens of the nodes, if a subcommand has made some. Otherwise connections are plain.
    #[arg(skip)]
    pub secrets: Option<Arc<Secrets>>,
}

impl ClusterOptions {
    /// The options for a report in JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "fence": self.fence.name(),
            "step": self.step,
            "section_size": self.section_size,
            "gapless": self.gapless,
        })
    }
}

/// Parses a number of seconds.
///
/// # Errors
/// The text, if it is not a number from 0.5 to a day.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.5..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("{text} is not a number of seconds from 0.5 to 86400")),
    }
}

//! The command line of `ratchet-bench idle`.

use clap::Args;
use serde_json::{Value, json};

use crate::{
    load::{Load, Overload},
    options::{ClusterOptions, seconds},
};

/// How many keys the callers draw from.
const KEYS: u64 = 1_000;

/// The options of `ratchet-bench idle`.
#[derive(Debug, Args)]
pub struct IdleOptions {
    /// Number of idle connections, a third of them at each of the leader's interfaces: gRPC, HTTP and Redis
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(3..=60_000))]
    pub connections: u64,
    /// Number of other callers, whose latency is measured. Each has a connection of its own, and makes one unary gRPC
    /// call at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub callers: u32,
    /// Open loop: the callers send this many requests a second in all, however slow the answers are; latency counts
    /// from when a request was due
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: Option<u64>,
    /// Number of rounds, each without and with the idle connections
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// How long the callers call in each half of a round, in seconds. Before that, the leader is watched as long without
    /// callers. HTTP/2 pings idle connections every 10 seconds
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub seconds: f64,
    /// Number of nodes of the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=7))]
    pub nodes: u64,
    /// The cluster
    #[command(flatten)]
    pub cluster: ClusterOptions,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

impl IdleOptions {
    /// The load of the other callers.
    pub fn load(&self) -> Load {
        Load {
            connections: self.callers as usize,
            in_flight: 1,
            tasks: 1,
            batch: 1,
            keys: KEYS,
            key_stride: 1,
            rate: self.rate,
            overload: Overload::Abort,
            seed: 1,
        }
    }

    /// The options for a report in JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "connections": self.connections,
            "callers": self.callers,
            "rate": self.rate,
            "keys": KEYS,
            "seconds": self.seconds,
        })
    }

    /// The options in a few words, for a title.
    pub fn to_text(&self) -> String {
        let rate = self.rate.map(|rate| format!(", {rate} requests/s"));
        let rate = rate.unwrap_or_default();
        format!(
            "{} idle connections, {} callers, {KEYS} keys{rate}",
            self.connections, self.callers
        )
    }
}

//! The command line of `ratchet-bench memory`.

use clap::Args;
use serde_json::{Value, json};

use crate::{
    load::{Load, Overload},
    options::{ClusterOptions, seconds},
};

/// The options of `ratchet-bench memory`.
#[derive(Debug, Args)]
pub struct MemoryOptions {
    /// How many keys are asked for once, one after the other, during all rounds together
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    pub keys: u64,
    /// How many other keys are active: each is asked for again and again, and the callers draw from them
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub active: u64,
    /// Within how many seconds each active key is asked for once
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub active_seconds: f64,
    /// The bound of the first cluster, in 2^20 bytes; the second one has none
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    pub memory_max_mb: u64,
    /// Number of callers whose latency is measured. Each has a connection of its own, and asks for one number of an
    /// active key at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub callers: u32,
    /// How many requests a second the callers send in all, however slow the answers are; latency counts from when a
    /// request was due
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: u64,
    /// Number of rounds, each with both clusters
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// How long the callers call in each half of a round, in seconds
    #[arg(long, default_value_t = 20.0, value_parser = seconds)]
    pub seconds: f64,
    /// Number of nodes of each cluster
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=7))]
    pub nodes: u64,
    /// The clusters
    #[command(flatten)]
    pub cluster: ClusterOptions,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

impl MemoryOptions {
    /// The load of the callers.
    pub fn load(&self) -> Load {
        Load {
            connections: self.callers as usize,
            in_flight: 1,
            tasks: 1,
            batch: 1,
            keys: self.active,
            key_stride: 1,
            rate: Some(self.rate),
            overload: Overload::Abort,
            seed: 1,
        }
    }

    /// The options for a report in JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "keys": self.keys,
            "active": self.active,
            "active_seconds": self.active_seconds,
            "memory_max_mb": self.memory_max_mb,
            "callers": self.callers,
            "rate": self.rate,
            "seconds": self.seconds,
            "nodes": self.nodes,
        })
    }

    /// The options in a few words, for a title.
    pub fn to_text(&self) -> String {
        format!(
            "{} keys asked for once, {} active ones, {} requests/s, memory_max_mb = {}",
            self.keys, self.active, self.rate, self.memory_max_mb
        )
    }
}

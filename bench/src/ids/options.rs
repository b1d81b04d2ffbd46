//! The command line of `ratchet-bench ids`.

use std::time::Duration;

use clap::Args;

use crate::{
    load::{Load, Overload},
    options::{ClusterOptions, seconds},
};

/// The options of `ids`.
#[derive(Debug, Args)]
pub struct IdsOptions {
    /// The format of the ids, which must fit 64 bits and have no parameters
    #[arg(long, default_value = "snowflake")]
    pub format: String,
    /// How long each part of a round takes
    #[arg(long, default_value = "5", value_parser = seconds)]
    pub seconds: f64,
    /// How often each part is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Number of connections to a node, each with a stream of messages
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Number of messages in flight on each connection
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub in_flight: u32,
    /// Number of ids that each message asks for
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub batch: u32,
    #[command(flatten)]
    pub cluster: ClusterOptions,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl IdsOptions {
    /// The load of the streams.
    pub fn load(&self) -> Load {
        Load {
            connections: self.connections as usize,
            in_flight: self.in_flight as usize,
            tasks: 1,
            batch: self.batch as usize,
            keys: 1,
            key_stride: 1,
            rate: None,
            overload: Overload::Abort,
            seed: 1,
        }
    }

    /// How long each part of a round takes.
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

//! The command line of `ratchet-bench handshakes`.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::{
    load::{Load, Overload},
    options::{ClusterOptions, seconds},
    secrets::Shown,
};

/// How many measurements a round has: two kinds of handshakes, of two servers.
const PARTS: u32 = 4;

/// The options of `ratchet-bench handshakes`.
#[derive(Debug, Args)]
pub struct HandshakesOptions {
    /// Number of tasks, each of which opens one connection after the other, and closes it after its handshake
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub tasks: u32,
    /// Have clients show a certificate, too. It is checked in a full handshake
    #[arg(long)]
    pub client_certificates: bool,
    /// Duration of all rounds together, in seconds
    #[arg(long, default_value_t = 40.0, value_parser = seconds)]
    pub seconds: f64,
    /// Number of rounds. In each, both kinds of handshakes are measured of both servers
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// The cluster, of one node
    #[command(flatten)]
    pub cluster: ClusterOptions,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

impl HandshakesOptions {
    /// The load of the tasks: one handshake at a time each.
    pub fn load(&self) -> Load {
        Load {
            connections: self.tasks as usize,
            in_flight: 1,
            tasks: 1,
            batch: 1,
            keys: 1,
            key_stride: 1,
            rate: None,
            overload: Overload::Abort,
            seed: 1,
        }
    }

    /// The ends that show a certificate.
    pub fn shown(&self) -> Shown {
        if self.client_certificates { Shown::ByAll } else { Shown::ByServers }
    }

    /// How long each measurement takes.
    pub fn slice(&self) -> Duration {
        Duration::from_secs_f64(self.seconds / f64::from(self.rounds * PARTS))
    }

    /// The options for a report in JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "seconds": self.seconds,
            "tasks": self.tasks,
            "client_certificates": self.client_certificates,
            "secure": true,
        })
    }

    /// The options in a few words, for a title.
    pub fn to_text(&self) -> String {
        let whose = if self.client_certificates { "both ends" } else { "servers" };
        format!("TLS handshakes, secure, {} tasks, certificates of {whose}", self.tasks)
    }
}

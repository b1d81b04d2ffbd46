//! The command lines of `ratchet-bench failover` and `ratchet-bench handover`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::options::{ClusterOptions, LoadOptions, seconds};

/// The event in the cluster while the load runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The leader is killed with SIGKILL.
    Kill,
    /// The leadership is transferred, as by `ratchet transfer`.
    Transfer,
    /// The leader is stopped with SIGTERM.
    Sigterm,
    /// All nodes are restarted, one after the other, with SIGTERM.
    Rolling,
}

impl Event {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Event::Kill => "kill",
            Event::Transfer => "transfer",
            Event::Sigterm => "sigterm",
            Event::Rolling => "rolling",
        }
    }
}

/// The options of `ratchet-bench failover`.
#[derive(Debug, Args)]
pub struct FailoverOptions {
    #[command(flatten)]
    pub options: EventOptions,
}

/// The options of `ratchet-bench handover`.
#[derive(Debug, Args)]
pub struct HandoverOptions {
    /// The cause of the handover
    #[arg(long, value_enum, default_value_t = By::Transfer)]
    pub by: By,
    #[command(flatten)]
    pub options: EventOptions,
}

/// The cause of the handover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// A transfer of the leadership, as by `ratchet transfer`
    Transfer,
    /// SIGTERM of the leader
    Sigterm,
    /// SIGTERM and a new start of all three nodes, one after the other; the leader goes first as long as
    /// it was not restarted yet
    Rolling,
}

impl From<By> for Event {
    fn from(by: By) -> Event {
        match by {
            By::Transfer => Event::Transfer,
            By::Sigterm => Event::Sigterm,
            By::Rolling => Event::Rolling,
        }
    }
}

/// The options that both have.
#[derive(Debug, Args)]
pub struct EventOptions {
    /// When the event happens, in seconds after the first answer
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub at: f64,
    /// How long the load runs, in seconds, besides the time that the event itself takes
    #[arg(long, default_value_t = 16.5, value_parser = seconds)]
    pub seconds: f64,
    /// Number of events, each in a load of its own; the report has the medians
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub repeat: u32,
    /// Number of keys that are requested once in an earlier term, before anything is measured, so that the
    /// table has records of them
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    pub warm_records: u64,
    /// Another build of the node's program, whose cluster is measured in alternating events
    #[arg(long)]
    pub against_binary: Option<PathBuf>,
    /// The load
    #[command(flatten)]
    pub load: LoadOptions,
    /// The cluster
    #[command(flatten)]
    pub cluster: ClusterOptions,
    /// Write a plot of the throughput over time to this file, as SVG
    #[arg(long)]
    pub plot: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

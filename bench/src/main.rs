//! `ratchet-bench`: how fast a cluster hands out numbers, beside something else if asked for.
//!
//! Invariant: both sides of a comparison are driven by the same code, in alternating rounds of one run.

mod call_loop;
mod caller;
mod child;
mod cluster;
mod echo;
mod failed;
mod load;
mod options;
mod peers;
mod plot;
mod recorder;
mod report;
mod round;
mod run;
mod stream;
mod target;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use options::Bench;

#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure throughput and latency, beside something else if asked for
    Run(Box<Bench>),
    /// The empty handler to compare with: serves, and prints where
    #[command(hide = true)]
    Echo,
}

#[tokio::main]
async fn main() -> ExitCode {
    let (json, done) = match Cli::parse().command {
        Command::Run(bench) => (bench.json, bench.run().await),
        Command::Echo => (false, echo::serve().await),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => failed.report(json),
    }
}

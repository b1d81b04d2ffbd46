//! `ratchet-bench`: measures how fast a cluster hands out numbers, alone or next to another server.
//!
//! Invariant: both sides of a comparison are driven by the same code, in alternating rounds of one run.

mod call_loop;
mod caller;
mod chart;
mod child;
mod cluster;
mod connection;
mod echo;
mod error;
mod event;
mod files;
mod format;
mod handshake;
mod handshakes;
mod http;
mod http_connection;
mod id_stream;
mod idle;
mod ids;
mod load;
mod memory;
mod options;
mod output;
mod peers;
mod recorder;
mod redis;
mod round;
mod run;
mod secrets;
mod sides;
mod socket;
mod stream;
mod target;
mod tls;
mod token;
mod warm;
mod workers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use echo::EchoOptions;
use event::{FailoverOptions, HandoverOptions};
use handshakes::HandshakesOptions;
use idle::IdleOptions;
use ids::IdsOptions;
use memory::MemoryOptions;
use run::RunOptions;

#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure throughput and latency, alone or in comparison with another server
    Run(Box<RunOptions>),
    /// Kill the leader under load, and measure the effects on callers: silence, throughput around it, errors
    Failover(Box<FailoverOptions>),
    /// Have the leader hand over under load, and measure the same
    Handover(Box<HandoverOptions>),
    /// Open idle connections, and measure their cost for the leader and its other callers
    Idle(Box<IdleOptions>),
    /// Bound the leader's memory, ask for many more keys than fit, and measure the effects on callers of other keys
    Memory(Box<MemoryOptions>),
    /// Measure how fast ids of a format are made, by the Rust client and over a node's stream beside the echo, and the
    /// cost of their times
    Ids(Box<IdsOptions>),
    /// Open connections over TLS to a node and to the echo, and measure how many handshakes a second they make, full and
    /// resumed
    Handshakes(HandshakesOptions),
    /// Serve as the echo, a server with empty handlers for gRPC and HTTP, and print both addresses
    #[command(hide = true)]
    Echo(EchoOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    let (json, done) = match Cli::parse().command {
        Command::Run(options) => {
            let json = options.json;
            (json, output::print(json, options.run()).await)
        }
        Command::Ids(options) => {
            let json = options.json;
            (json, output::print(json, options.run()).await)
        }
        Command::Failover(options) => {
            let json = options.options.json;
            (json, output::print(json, options.run()).await)
        }
        Command::Handover(options) => {
            let json = options.options.json;
            (json, output::print(json, options.run()).await)
        }
        Command::Idle(options) => {
            let json = options.json;
            (json, output::print(json, options.run()).await)
        }
        Command::Memory(options) => {
            let json = options.json;
            (json, output::print(json, options.run()).await)
        }
        Command::Handshakes(options) => {
            let json = options.json;
            (json, output::print(json, options.run()).await)
        }
        Command::Echo(options) => (false, echo::serve(options).await),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => failed.report(json),
    }
}

//! The `ratchet` command: one file per subcommand.
//!
//! Uses the client, and the server for `start`. Invariant: what a script needs goes to standard
//! output, what went wrong to standard error, and the exit code says of which kind it was.

mod connection;
mod exit;
mod namespace;
mod node;
mod numbers;
mod output;
mod recover;
mod settings;
mod start;
mod status;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::version;

use exit::Failed;

/// The tool's command line.
#[derive(Debug, Parser)]
#[command(name = "ratchet", version = version::LONG, about, after_help = exit::HELP)]
pub struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Run a node: alone a cluster of one in ./ratchet-data, with --peers one of several
    Start(Box<start::Start>),
    /// Take the next numbers of a key
    Next(numbers::Next),
    /// Show the last number handed out for a key
    Current(numbers::Current),
    /// Create, show, list and change namespaces
    Namespace(namespace::Namespace),
    /// Show the nodes of the cluster and how far each is
    Status(status::Status),
    /// Hand the leadership over, without a gap
    Transfer(node::Transfer),
    /// Add, promote, move and remove nodes
    Node(node::Node),
    /// Make a cluster of one out of the data directory of a node whose cluster lost its majority for
    /// good; offline
    Recover(recover::Recover),
    /// Print a script that completes this command's words in a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
}

impl Subcommands {
    fn wants_json(&self) -> bool {
        match self {
            Subcommands::Next(next) => next.connection.json,
            Subcommands::Current(current) => current.connection.json,
            Subcommands::Namespace(namespace) => namespace.wants_json(),
            Subcommands::Status(status) => status.connection.json,
            Subcommands::Transfer(transfer) => transfer.connection.json,
            Subcommands::Node(node) => node.wants_json(),
            Subcommands::Recover(recover) => recover.json,
            Subcommands::Start(_) | Subcommands::Completions { .. } => false,
        }
    }

    async fn run(self) -> Result<(), Failed> {
        match self {
            Subcommands::Start(start) => start.run().await,
            Subcommands::Next(next) => next.run().await,
            Subcommands::Current(current) => current.run().await,
            Subcommands::Namespace(namespace) => namespace.run().await,
            Subcommands::Status(status) => status.run().await,
            Subcommands::Transfer(transfer) => transfer.run().await,
            Subcommands::Node(node) => node.run().await,
            Subcommands::Recover(recover) => recover.run().await,
            Subcommands::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "ratchet", &mut script);
                output::write(&script)
            }
        }
    }
}

/// Runs the command that the process was called with.
pub fn run() -> ExitCode {
    let Cli { command } = Cli::parse();
    let json = command.wants_json();
    let mut runtime = if matches!(command, Subcommands::Start(_)) {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let outcome = match runtime.enable_all().build() {
        Ok(runtime) => runtime.block_on(command.run()),
        Err(error) => Err(Failed::other(format!("no runtime: {error}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => failed.report(json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}

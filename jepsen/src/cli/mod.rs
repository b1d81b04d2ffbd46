//! The command line. A subcommand that is more than one call has a file of its own.

mod authors_formats;
mod child;
mod controls;
mod exit;
mod matrix;
mod names;
mod run;
mod side_by_side;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use ratchet_jepsen::{
    checker,
    finding::Finding,
    history::History,
    max_wins,
    verdict::{Verdict, VerdictKind},
};

use exit::{block_on, failed};

/// Tests under faults whether Ratchet keeps its promise.
#[derive(Parser)]
#[command(version, after_help = "Exit codes: 0 pass, 1 violation, 3 unknown, 4 harness error")]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// One run: a cluster, callers and faults, then a verdict and a report.
    Run(run::Arguments),
    /// A run of every nemesis, and a table of the verdicts.
    Matrix(matrix::Matrix),
    /// A run for every planted bug. Each must be caught.
    Controls(controls::Controls),
    /// Checks the order of a history that was exported as JSON.
    Check {
        /// The file history.json of a run.
        history: PathBuf,
    },
    /// The formats of ids as their authors make them, whose duplicates must be found.
    AuthorsFormats(authors_formats::AuthorsFormats),
    /// The reference service that broadcasts and takes the maximum.
    MaxWins {
        /// The address on which it listens for clients.
        #[arg(long)]
        listen: SocketAddr,
        /// The address on which it listens for peers.
        #[arg(long)]
        peer_listen: SocketAddr,
        /// The peer addresses of all servers: 1=host:port,2=host:port
        #[arg(long, value_delimiter = ',', value_parser = peer)]
        peers: Vec<SocketAddr>,
    },
}

fn peer(text: &str) -> Result<SocketAddr, String> {
    let address = text.split_once('=').map_or(text, |(_, address)| address);
    address.parse().map_err(|error| format!("{address:?}: {error}"))
}

/// Parses the command line and calls the subcommand.
pub fn main() -> ExitCode {
    match Command::parse().what {
        What::Run(arguments) => run::main(arguments),
        What::Matrix(matrix) => matrix.main(),
        What::Controls(controls) => controls.main(),
        What::AuthorsFormats(authors) => authors.main(),
        What::Check { history } => check(&history).into(),
        What::MaxWins { listen, peer_listen, peers } => {
            match block_on(max_wins::serve(listen, peer_listen, peers)) {
                Ok(Ok(())) => ExitCode::SUCCESS,
                Ok(Err(error)) => failed(error),
                Err(error) => failed(error),
            }
        }
    }
}

fn check(path: &Path) -> VerdictKind {
    let read = std::fs::read(path).map_err(|error| error.to_string()).and_then(|text| {
        serde_json::from_slice::<History>(&text).map_err(|error| error.to_string())
    });
    let verdict = match read {
        Err(error) => Verdict::HarnessError(format!("{}: {error}", path.display())),
        Ok(history) => match checker::check_order(&history) {
            Err(pair) => Verdict::Violation(vec![Finding::Order.told(pair.to_string())]),
            Ok(()) if history.answered().next().is_none() => {
                Verdict::Unknown(vec!["nothing was answered".to_owned()])
            }
            Ok(()) => Verdict::Pass,
        },
    };
    println!("{verdict}");
    verdict.kind()
}

//! The `ratchet` command: one file for each group of subcommands.
//!
//! From a command to its exit code: [`run`] parses the command line (clap ends the process with 2 if that is wrong) and runs
//! the subcommand. Its result is printed as text or JSON. An error of the client or of the node becomes a `CommandError`, whose
//! kind is the exit code.
//!
//! Uses the client, and the server for `start`. Invariant: results go to standard output, errors to standard
//! error, and the exit code tells the kind of error.
//!
//! Commands that work on this machine:
//!
//! * `start`: runs a node until it is stopped or fails. `settings` reads its settings, and `log` writes its log.
//! * `recover`: makes a cluster of one from a data directory.
//! * `cert`: makes certificates in a directory.
//!
//! Commands that ask a cluster:
//!
//! * `numbers`: `next`, `current` and `raise`.
//! * `import` and `export`: many keys, from a file and to one.
//! * `keys`: `keys` and `explain`. `gaps`: skipped numbers by day.
//! * `id` and `worker`: ids, and the worker ids that they are made under.
//! * `namespace`: the namespaces.
//! * `access`: `token`, `grant` and `quota`.
//! * `found`, `node` and `status`: the members, `transfer` and the state of the cluster. `reload`: certificates that were
//!   replaced.
//!
//! The parts that the subcommands share:
//!
//! * `connection`: the flags of all that ask a cluster, and the client that they make.
//! * `files`: files that are whole or not there. `token_file`: those that hold a token.
//! * `flags`: a message of the API as the arguments of a command.
//! * `output`: results, as text or JSON. `command_error`: failures.

mod access;
mod cert;
mod command_error;
mod connection;
mod export;
mod files;
mod flags;
mod found;
mod gaps;
mod id;
mod import;
mod keys;
mod log;
mod namespace;
mod node;
mod numbers;
mod output;
mod recover;
mod reload;
mod settings;
mod start;
mod status;
mod token_file;
mod worker;

use std::{path::PathBuf, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::version;
use command_error::CommandError;
use connection::Asking;

/// The command line of `ratchet`.
#[derive(Debug, Parser)]
#[command(name = "ratchet", version = version::LONG, long_version = version::with_features())]
#[command(about, after_help = command_error::HELP)]
pub struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Run a node. Without data it waits until `ratchet found` makes it and its --peers a cluster, or `ratchet node add`
    /// adds it to one; with --dev it is a cluster of one at once
    Start(Box<start::StartArgs>),
    /// Found a cluster of running nodes that hold no data: the one that is asked, and those in its --peers. Once in a
    /// cluster's life; asked again, it changes nothing
    Found(Asking<found::FoundArgs>),
    /// Take the next numbers of a key
    Next(Asking<numbers::NextArgs>),
    /// Show the last number handed out for a key
    Current(Asking<numbers::CurrentArgs>),
    /// Raise the floor of a key: the numbers handed out later are greater
    Raise(Asking<numbers::RaiseArgs>),
    /// Raise many keys to the numbers in a file
    Import(Asking<import::ImportArgs>),
    /// Write all keys of a namespace and their numbers, as import reads them
    Export(Asking<export::ExportArgs>),
    /// List the keys of a namespace that got numbers, page by page
    Keys(Asking<keys::KeysArgs>),
    /// Show the state of a key's numbers: its ceiling, its stored record, how many were skipped, and all that the leader has in
    /// memory
    Explain(Asking<keys::ExplainArgs>),
    /// Show how many numbers of a namespace were handed out and skipped, by cause, on each day of the last month. Days are
    /// in UTC. Numbers skipped by FENCE, DEADLINE and FLOOR are among those handed out; LEADER CHANGE is an upper bound
    Gaps(Asking<gaps::GapsArgs>),
    /// Make ids of a namespace that has a format, take ids apart, and explain formats
    Id(id::IdArgs),
    /// Create, show, list, change and delete namespaces
    Namespace(Asking<namespace::NamespaceArgs>),
    /// Show the worker ids of a namespace and their holders, and end a lease that reaches too far ahead
    Worker(Asking<worker::WorkerArgs>),
    /// Create, list and revoke tokens, by which callers are known
    Token(Asking<access::TokenArgs>),
    /// Replace the grants of everybody, or of the client of a certificate
    ///
    /// The grants of anonymous hold for everybody: `ratchet grant anonymous --nothing` makes tokens necessary, and `ratchet
    /// grant anonymous all` opens the cluster again.
    Grant(Asking<access::GrantArgs>),
    /// Limit how much a token, a client with a certificate, or anonymous may use
    ///
    /// The quotas that are given take the place of earlier ones. See "ratchet token list" for the present ones.
    Quota(Asking<access::QuotaArgs>),
    /// Show the nodes of the cluster, their roles, and how far each one's log is
    Status(Asking<status::StatusArgs>),
    /// Transfer the leadership to another node; no number is skipped if it takes the memory
    Transfer(Asking<node::TransferArgs>),
    /// Add, promote, move and remove nodes
    Node(Asking<node::NodeArgs>),
    /// Have the node that --server names read the files of its certificates again, at once
    Reload(Asking<reload::ReloadArgs>),
    /// Make a cluster of one from the data directory of a stopped node, after its cluster lost its
    /// majority for good
    Recover(recover::RecoverArgs),
    /// Make the certificates of a cluster: of a CA, and those that it signs for nodes and clients
    Cert(cert::CertArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages, one for each subcommand, to a directory
    #[command(hide = true)]
    Man {
        /// The directory
        dir: PathBuf,
    },
}

impl Subcommands {
    async fn run(self) -> Result<(), CommandError> {
        use Subcommands::*;
        match self {
            Start(start) => start.run().await,
            Found(found) => found.run().await,
            Next(next) => next.run().await,
            Current(current) => current.run().await,
            Raise(raise) => raise.run().await,
            Import(import) => import.run().await,
            Export(export) => export.run().await,
            Keys(keys) => keys.run().await,
            Explain(explain) => explain.run().await,
            Gaps(gaps) => gaps.run().await,
            Id(id) => id.run().await,
            Namespace(namespace) => namespace.run().await,
            Worker(worker) => worker.run().await,
            Token(token) => token.run().await,
            Grant(grant) => grant.run().await,
            Quota(quota) => quota.run().await,
            Status(status) => status.run().await,
            Transfer(transfer) => transfer.run().await,
            Node(node) => node.run().await,
            Reload(reload) => reload.run().await,
            Recover(recover) => recover.run().await,
            Cert(cert) => cert.run(),
            Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "ratchet", &mut script);
                output::write(&script)
            }
            Man { dir } => clap_mangen::generate_to(Cli::command(), &dir).map_err(|error| {
                let dir = dir.display();
                CommandError::other(format!("cannot write the manual pages to {dir}: {error}"))
            }),
        }
    }
}

/// Parses the process's command line and runs it. Returns the process's exit code.
pub fn run() -> ExitCode {
    let Cli { command } = Cli::parse();
    let mut runtime = if matches!(command, Subcommands::Start(_)) {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let outcome = match runtime.enable_all().build() {
        Ok(runtime) => runtime.block_on(command.run()),
        Err(error) => Err(CommandError::other(format!("cannot start the async runtime: {error}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => failed.report(),
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

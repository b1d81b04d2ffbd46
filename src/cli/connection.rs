//! The flags of every subcommand that asks a cluster, and the client that they make.

use std::time::Duration;

use clap::Args;
use ratchet_client::Client;

use super::output::CommandError;

/// A subcommand that asks a cluster, with the flags that say which one.
#[derive(Debug, Args)]
pub struct Asking<C: Args> {
    #[command(flatten)]
    command: C,
    #[command(flatten)]
    connection: Connection,
}

/// What such a subcommand does.
pub trait Ask {
    /// Asks, and prints the result.
    ///
    /// # Errors
    /// If the cluster refuses or does not answer, or the result cannot be printed.
    async fn run(self, connection: &Connection) -> Result<(), CommandError>;
}

impl<C: Args + Ask> Asking<C> {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// The subcommand's, to be told as JSON if that is asked for.
    pub async fn run(self) -> Result<(), CommandError> {
        let Asking { command, connection } = self;
        command.run(&connection).await.map_err(|error| error.in_json(connection.json))
    }
}

/// Which servers to ask, how long to wait, and whether to print JSON. Subcommands of a subcommand have the flags, too.
#[derive(Debug, Args)]
pub struct Connection {
    /// The servers to ask, as "host:port", separated by commas; the first one that answers is used
    #[arg(
        long,
        global = true,
        env = "RATCHET_SERVER",
        default_value = "127.0.0.1:7600",
        value_delimiter = ','
    )]
    pub server: Vec<String>,
    /// The cluster to ask, by its id as `ratchet status` shows it; servers of another one are not asked
    #[arg(long, global = true, env = "RATCHET_CLUSTER_ID")]
    pub cluster_id: Option<String>,
    /// How long to wait for an answer, in milliseconds
    #[arg(long, global = true, env = "RATCHET_TIMEOUT_MS", default_value_t = 5_000,
          value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub timeout_ms: u64,
    /// Print the result, or the error, as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

impl Connection {
    /// Creates the client.
    ///
    /// # Errors
    /// If a server's address is malformed.
    pub fn client(&self) -> Result<Client, ratchet_client::Error> {
        self.patient_client(Duration::ZERO)
    }

    /// Creates a client that waits for `at_least` at least.
    ///
    /// # Errors
    /// As [`Connection::client`].
    pub fn patient_client(&self, at_least: Duration) -> Result<Client, ratchet_client::Error> {
        self.client_of(&self.server, at_least)
    }

    /// Creates a client of these servers, which waits for `at_least` at least.
    ///
    /// # Errors
    /// As [`Connection::client`].
    pub fn client_of(
        &self, servers: &[String], at_least: Duration,
    ) -> Result<Client, ratchet_client::Error> {
        let timeout = Duration::from_millis(self.timeout_ms).max(at_least);
        let builder = Client::builder().servers(servers).timeout(timeout);
        match &self.cluster_id {
            Some(id) => builder.cluster_id(id).build(),
            None => builder.build(),
        }
    }
}

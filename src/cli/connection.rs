//! The flags that each subcommand which asks a cluster has.

use std::time::Duration;

use clap::Args;
use ratchet_client::Client;

/// Where to ask, and how to answer.
#[derive(Debug, Args)]
pub struct Connection {
    /// The servers to ask, "host:port", several separated by commas: the first that answers is used
    #[arg(
        long,
        env = "RATCHET_SERVER",
        default_value = "127.0.0.1:7600",
        value_delimiter = ','
    )]
    pub server: Vec<String>,
    /// How long to wait for an answer, in milliseconds
    #[arg(long, env = "RATCHET_TIMEOUT_MS", default_value_t = 5_000,
          value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub timeout_ms: u64,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

impl Connection {
    pub fn client(&self) -> Result<Client, ratchet_client::Error> {
        let timeout = Duration::from_millis(self.timeout_ms);
        Client::builder()
            .servers(&self.server)
            .timeout(timeout)
            .build()
    }
}

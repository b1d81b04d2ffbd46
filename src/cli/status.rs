//! `ratchet status`: the nodes of the cluster, and whether a leader and all voters are there.

use std::{
    io::{IsTerminal, stdout},
    time::Duration,
};

use clap::Args;
use futures::{StreamExt, stream::FuturesUnordered};

mod format;
#[cfg(test)]
mod tests;

use format::{since, to_text};

use super::{connection::Connection, exit::CommandError, output};
use ratchet_client::{Client, Error, api as v1};

/// Moves a terminal's cursor to the top and clears the screen below it.
const REDRAW: &str = "\x1b[H\x1b[J";

/// `ratchet status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Repeat every SECONDS (2 if not given) until Ctrl-C; on a terminal each status replaces the one
    /// before, elsewhere it follows it
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    watch: Option<u32>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Status {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let client = self.connection.client()?;
        if let Some(seconds) = self.watch {
            let pause = Duration::from_secs(seconds.into());
            return tokio::select! {
                biased;
                interrupted = tokio::signal::ctrl_c() => interrupted
                    .map_err(|error| CommandError::other(format!("cannot wait for Ctrl-C: {error}"))),
                watched = self.watch(&client, pause) => watched,
            };
        }
        let status = self.ask(&client).await?;
        output::result(self.connection.json, &status, &to_text(&status))?;
        verdict(&status)
    }

    /// Shows the status again and again until the reader closes standard output. Goes on if the cluster does not
    /// answer.
    async fn watch(&self, client: &Client, pause: Duration) -> Result<(), CommandError> {
        let json = self.connection.json;
        let redraw = stdout().is_terminal() && !json;
        loop {
            let (text, failed) = match self.ask(client).await {
                Ok(status) if json => (output::json(&status)?, verdict(&status).err()),
                Ok(status) => (format!("{}\n\n", to_text(&status)), verdict(&status).err()),
                Err(error) => (String::new(), Some(CommandError::from(error))),
            };
            let start = if redraw { REDRAW } else { "" };
            if !output::write_if_read(format!("{start}{text}").as_bytes())? {
                return Ok(());
            }
            if let Some(failed) = failed {
                failed.print(json);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Asks the first server that answers. If it knows no serving leader, asks all servers: one of them may be on
    /// the leader's side of a partition.
    async fn ask(&self, client: &Client) -> Result<v1::StatusResponse, Error> {
        let first = client.status().await?;
        if first.serving || self.connection.server.len() == 1 {
            return Ok(first);
        }
        let patience = Duration::from_millis(self.connection.timeout_ms);
        let each = self.connection.server.iter().map(|server| async move {
            let client = Client::builder().servers([server]).timeout(patience).build()?;
            client.status().await
        });
        let mut answers: FuturesUnordered<_> = each.collect();
        while let Some(answer) = answers.next().await {
            if let Ok(status) = answer
                && status.serving
            {
                return Ok(status);
            }
        }
        Ok(first)
    }
}

/// Checks the status for the exit code: an error if no leader serves, or if a voter is missing.
fn verdict(status: &v1::StatusResponse) -> Result<(), CommandError> {
    if !status.serving {
        return Err(CommandError::no_leader(match status.leader {
            Some(leader) if leader == status.node => {
                format!("node {leader} leads, but hears from no majority of the voters")
            }
            None if status.waits => format!(
                "node {0} belongs to no cluster: found a new one, once, with ratchet found, or add the node to a running one \
                 with ratchet node add {0}; if it had data, look for its data directory first",
                status.node
            ),
            Some(leader) => format!("node {leader}, the last known leader, does not answer"),
            None => format!("node {} knows no leader", status.node),
        }));
    }
    let missing = status.nodes.iter().filter(|node| node.voter && node.missing);
    let missing: Vec<String> =
        missing.map(|node| format!("node {} was not heard {}", node.id, since(node))).collect();
    match missing.as_slice() {
        [] => Ok(()),
        missing => Err(CommandError::voter_missing(missing.join(", "))),
    }
}

//! `ratchet node` and `ratchet transfer`.

use clap::{Args, Subcommand};
use serde_json::json;

use super::{connection::Connection, exit::Failed, output};
use ratchet_client::api as v1;

/// `ratchet transfer`.
#[derive(Debug, Args)]
pub struct Transfer {
    /// The node to lead next; without one, the voter with the longest log
    to: Option<u64>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Transfer {
    pub(super) async fn run(self) -> Result<(), Failed> {
        let now = self.connection.client()?.transfer(self.to).await?;
        let value = json!({"leader": now.leader, "term": now.term});
        let text = format!("node {} leads, term {}", now.leader, now.term);
        output::result(self.connection.json, &value, &text)
    }
}

/// `ratchet node`.
#[derive(Debug, Args)]
pub struct Node {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add a node that was started with --join: as a learner, or with --voter as a voter
    Add {
        /// Its node id
        id: u64,
        /// Where it listens for peers, "host:port"
        peer_address: String,
        /// Make it a voter
        #[arg(long)]
        voter: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Make a learner a voter, once it has caught up
    Promote {
        /// Its node id
        id: u64,
        /// Promote it even where it, or a majority of the voters, does not answer or lags behind. If
        /// they do not come back, no number can be had until ratchet recover makes another cluster
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove a node
    Remove {
        /// Its node id
        id: u64,
        /// Remove it even where a majority of the voters that are left does not answer or lags
        /// behind. If they do not come back, no number can be had until ratchet recover makes another
        /// cluster
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Take in the addresses of a member that runs at another place than it did
    Update {
        /// Its node id
        id: u64,
        /// Where it listens for peers now, "host:port"; without it, where it did. It tells its
        /// address for clients itself
        #[arg(long)]
        peer_address: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
}

impl Node {
    pub(super) fn wants_json(&self) -> bool {
        match &self.command {
            Command::Add { connection, .. }
            | Command::Promote { connection, .. }
            | Command::Remove { connection, .. }
            | Command::Update { connection, .. } => connection.json,
        }
    }

    pub(super) async fn run(self) -> Result<(), Failed> {
        let (connection, members) = match self.command {
            Command::Add {
                id,
                peer_address,
                voter,
                connection,
            } => {
                let client = connection.client()?;
                let mut members = client.add_node(id, peer_address).await?;
                if voter {
                    members = client.promote_node(id, false).await?;
                }
                (connection, members)
            }
            Command::Promote {
                id,
                force,
                connection,
            } => {
                let members = connection.client()?.promote_node(id, force).await?;
                (connection, members)
            }
            Command::Remove {
                id,
                force,
                connection,
            } => {
                let members = connection.client()?.remove_node(id, force).await?;
                (connection, members)
            }
            Command::Update {
                id,
                peer_address,
                connection,
            } => {
                let client = connection.client()?;
                let members = client.update_node(id, peer_address).await?;
                (connection, members)
            }
        };
        let value = json!({"voters": members.voters, "learners": members.learners});
        output::result(connection.json, &value, &to_text(&members))
    }
}

fn to_text(members: &v1::MembershipResponse) -> String {
    let list = |ids: &[u64]| match ids {
        [] => "none".to_owned(),
        ids => ids
            .iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    };
    format!(
        "voters: {}\nlearners: {}",
        list(&members.voters),
        list(&members.learners)
    )
}

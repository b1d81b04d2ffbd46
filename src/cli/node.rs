//! `ratchet node`, `ratchet transfer` and `ratchet found`: the members of the cluster, and which one leads.

use clap::{Args, Subcommand};
use ratchet_client::api as v1;

use super::{
    connection::Connection,
    output::{self, CommandError},
};

/// `ratchet transfer`.
#[derive(Debug, Args)]
pub struct Transfer {
    /// The id of the node that is to lead [default: the voter with the longest log]
    to: Option<u64>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Transfer {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let now = self.connection.client()?.transfer(self.to).await?;
        let text = format!("node {} leads, term {}", now.leader, now.term);
        output::result(self.connection.json, &now, &text)
    }
}

/// `ratchet node`.
#[derive(Debug, Args)]
pub struct Node {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    pub(super) connection: Connection,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add a running node that holds no data; it becomes a learner, or with --voter a voter
    Add {
        /// The node's id
        id: u64,
        /// The address where it listens for peers, "host:port"
        peer_address: String,
        /// Make it a voter once it has caught up
        #[arg(long)]
        voter: bool,
    },
    /// Make a learner a voter, once it has caught up
    Promote {
        /// The node's id
        id: u64,
        /// Promote it even if it, or a majority of the voters, does not answer or lags behind. If
        /// these do not come back, the cluster hands out no numbers until ratchet recover makes a new one
        #[arg(long)]
        force: bool,
    },
    /// Remove a node
    Remove {
        /// The node's id
        id: u64,
        /// Remove it even if a majority of the remaining voters does not answer or lags behind. If
        /// these do not come back, the cluster hands out no numbers until ratchet recover makes a new one
        #[arg(long)]
        force: bool,
    },
    /// Record the new addresses of a member that has moved
    Update {
        /// The node's id
        id: u64,
        /// Its new address for peers, "host:port" [default: unchanged]. The node itself is asked for its
        /// address for clients
        #[arg(long)]
        peer_address: Option<String>,
    },
}

impl Node {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let client = self.connection.client()?;
        let members = match self.command {
            Command::Add { id, peer_address, voter } => {
                let added = client.add_node(id, peer_address).await?;
                if voter { client.promote_node(id, false).await? } else { added }
            }
            Command::Promote { id, force } => client.promote_node(id, force).await?,
            Command::Remove { id, force } => client.remove_node(id, force).await?,
            Command::Update { id, peer_address } => client.update_node(id, peer_address).await?,
        };
        output::result(self.connection.json, &members, &to_text(&members))
    }
}

fn to_text(members: &v1::MembershipResponse) -> String {
    let list = |ids: &[u64]| match ids {
        [] => "none".to_owned(),
        ids => ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    };
    format!("voters: {}\nlearners: {}", list(&members.voters), list(&members.learners))
}

// `ratchet found`: founds a cluster of nodes that hold no data yet.

/// `ratchet found`.
#[derive(Debug, Args)]
pub struct Found {
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Found {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let answer = self.connection.client()?.found().await?;
        output::result(self.connection.json, &answer, &founded_to_text(&answer))
    }
}

fn founded_to_text(answer: &v1::FoundResponse) -> String {
    let voters: Vec<String> = answer.voters.iter().map(u64::to_string).collect();
    format!(
        "cluster {} ({}) {}, voters: {}",
        answer.cluster,
        answer.cluster_id,
        match answer.founded {
            true => "is founded",
            false => "was founded before: nothing is changed",
        },
        voters.join(", ")
    )
}

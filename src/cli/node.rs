//! `ratchet node` and `ratchet transfer`: the members of the cluster, and which one leads.

use clap::{Args, Subcommand};
use ratchet_client::api as v1;

use super::{
    command_error::CommandError,
    connection::{Ask, Connection},
    flags::Flags,
    output,
};

/// `ratchet transfer`.
#[derive(Debug, Args)]
pub struct TransferArgs {
    /// The id of the node that is to lead [default: the voter with the longest log]
    to: Option<u64>,
}

impl Ask for TransferArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let now = connection.client()?.transfer(self.to).await?;
        let text = format!("node {} leads, term {}", now.leader, now.term);
        output::result(connection.json, &now, &text)
    }
}

/// `ratchet node`.
#[derive(Debug, Args)]
pub struct NodeArgs {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
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
    Promote(Flags<v1::PromoteNodeRequest>),
    /// Remove a node
    Remove(Flags<v1::RemoveNodeRequest>),
    /// Record the new addresses of a member that has moved
    Update(Flags<v1::UpdateNodeRequest>),
}

impl Ask for NodeArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let client = connection.client()?;
        let members = match self.command {
            NodeCommand::Add { id, peer_address, voter } => {
                let added = client.add_node(id, peer_address).await?;
                match voter {
                    true => client.promote_node(id, false).await.map_err(|error| {
                        let go_on = format!("go on with: ratchet node promote {id}");
                        let more = format!("; the node was added as a learner, {go_on}");
                        CommandError::from(error).and(&more)
                    })?,
                    false => added,
                }
            }
            NodeCommand::Promote(Flags(node)) => client.promote_node(node.id, node.force).await?,
            NodeCommand::Remove(Flags(node)) => client.remove_node(node.id, node.force).await?,
            NodeCommand::Update(Flags(node)) => {
                client.update_node(node.id, node.peer_address).await?
            }
        };
        output::result(connection.json, &members, &to_text(&members))
    }
}

pub(super) fn list(ids: &[u64]) -> String {
    match ids {
        [] => "none".to_owned(),
        ids => ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn to_text(members: &v1::MembershipResponse) -> String {
    format!("voters: {}\nlearners: {}", list(&members.voters), list(&members.learners))
}

//! `ratchet node`, `ratchet transfer` and `ratchet found`: the members of the cluster, and which one leads.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use ratchet_client::{Code, Error, api as v1};

use super::{
    connection::{Ask, Connection},
    flags::Flags,
    output::{self, CommandError},
    token_file::Token,
};

/// `ratchet transfer`.
#[derive(Debug, Args)]
pub struct Transfer {
    /// The id of the node that is to lead [default: the voter with the longest log]
    to: Option<u64>,
}

impl Ask for Transfer {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let now = connection.client()?.transfer(self.to).await?;
        let text = format!("node {} leads, term {}", now.leader, now.term);
        output::result(connection.json, &now, &text)
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

impl Ask for Node {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let client = connection.client()?;
        let members = match self.command {
            Command::Add { id, peer_address, voter } => {
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
            Command::Promote(Flags(node)) => client.promote_node(node.id, node.force).await?,
            Command::Remove(Flags(node)) => client.remove_node(node.id, node.force).await?,
            Command::Update(Flags(node)) => client.update_node(node.id, node.peer_address).await?,
        };
        output::result(connection.json, &members, &to_text(&members))
    }
}

fn list(ids: &[u64]) -> String {
    match ids {
        [] => "none".to_owned(),
        ids => ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn to_text(members: &v1::MembershipResponse) -> String {
    format!("voters: {}\nlearners: {}", list(&members.voters), list(&members.learners))
}

// `ratchet found`: founds a cluster of nodes that hold no data yet.

/// `ratchet found`.
#[derive(Debug, Args)]
pub struct Found {
    /// Let nobody do anything without a token, and make one that may do everything. It is written to this file, which its owner
    /// alone can read, before the cluster is asked. If the file is there, the token in it is taken, and nothing is overwritten:
    /// so the command can be repeated. Without this, everybody may do everything
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

impl Ask for Found {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let Some(path) = &self.admin_token_file else {
            let answer = connection.client()?.found().await?;
            return output::result(connection.json, &answer, &founded_to_text(&answer));
        };
        // What is wrong with the other flags is told before a file is made.
        connection.client()?;
        let (token, _) = Token::of_file("--admin-token-file", path)?;
        let founded = found_with(&token, connection).await;
        let answer = founded.map_err(|error| Token::refused(path, error))?;
        let text = founded_to_text(&answer);
        let text = format!("{text}\nthe token that may do everything is in {}", path.display());
        output::result(connection.json, &answer, &text)
    }
}

/// Founds a cluster of this token.
async fn found_with(token: &Token, connection: &Connection) -> Result<v1::FoundResponse, Error> {
    let founded = connection.client()?.found_with_token(token.sha256()).await;
    let code = founded.as_ref().err().and_then(Error::code);
    match code {
        // An earlier run has founded it: whoever asks again has to show the token.
        Some(Code::Unauthenticated | Code::PermissionDenied) if connection.token_file.is_none() => {
            let client =
                connection.client_showing(Some(token), &connection.server, Duration::ZERO)?;
            client.found_with_token(token.sha256()).await
        }
        _ => founded,
    }
}

fn founded_to_text(answer: &v1::FoundResponse) -> String {
    format!(
        "cluster {} ({}) {}, voters: {}",
        answer.cluster,
        answer.cluster_id,
        match answer.founded {
            true => "is founded",
            false => "was founded before: nothing is changed",
        },
        list(&answer.voters)
    )
}

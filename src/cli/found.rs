//! `ratchet found`: founds a cluster of nodes that hold no data yet.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use ratchet_client::{Code, Error, api as v1};

use super::{
    command_error::CommandError,
    connection::{Ask, Connection},
    node::list,
    output,
    token_file::SecretToken,
};

/// `ratchet found`.
#[derive(Debug, Args)]
pub struct FoundArgs {
    /// Let nobody do anything without a token, and make one that may do everything. It is written to this file, which its owner
    /// alone can read, before the cluster is asked. If the file is there, the token in it is taken, and nothing is overwritten:
    /// so the command can be repeated. Without this, everybody may do everything
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

impl Ask for FoundArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let Some(path) = &self.admin_token_file else {
            let answer = connection.client()?.found().await?;
            return output::result(connection.json, &answer, &founded_to_text(&answer));
        };
        // An error in the other flags is told before a file is made.
        connection.client()?;
        let (token, _) = SecretToken::of_file("--admin-token-file", path)?;
        let founded = found_with(&token, connection).await;
        let answer = founded.map_err(|error| SecretToken::refused(path, error))?;
        let mut text = founded_to_text(&answer);
        // It may have come through a pipe.
        if path.is_file() {
            text += &format!("\nthe token that may do everything is in {}", path.display());
        }
        output::result(connection.json, &answer, &text)
    }
}

/// Founds a cluster of this token.
async fn found_with(
    token: &SecretToken, connection: &Connection,
) -> Result<v1::FoundResponse, Error> {
    let founded = connection.client()?.found_with_token(token.sha256()).await;
    let code = founded.as_ref().err().and_then(Error::code);
    match code {
        // An earlier run has founded it: the operator who asks again has to show the token.
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

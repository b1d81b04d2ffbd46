//! `ratchet found`: founds a cluster of nodes that hold no data yet.

use clap::Args;

use super::{connection::Connection, exit::CommandError, output};
use ratchet_client::api as v1;

/// `ratchet found`.
#[derive(Debug, Args)]
pub struct Found {
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Found {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let answer = self.connection.client()?.found().await?;
        output::result(self.connection.json, &answer, &to_text(&answer))
    }
}

fn to_text(answer: &v1::FoundResponse) -> String {
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

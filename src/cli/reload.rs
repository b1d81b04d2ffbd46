//! `ratchet reload`: a node reads the files of its certificates again.

use clap::Args;
use ratchet_client::api::{ReloadResponse, ReloadedFile};

use super::{
    command_error::CommandError,
    connection::{Ask, Connection},
    output::{self, table},
};

/// `ratchet reload`.
#[derive(Debug, Args)]
pub struct ReloadArgs {}

impl Ask for ReloadArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let read = connection.client_of_one()?.reload().await?;
        output::result(connection.json, &read, &to_text(&read))
    }
}

fn to_text(read: &ReloadResponse) -> String {
    if read.files.is_empty() {
        return "the node reads no certificates: it has neither tls nor peer_tls".to_owned();
    }
    let head = ["SETTING", "FILE", "CHANGED"].map(str::to_owned).to_vec();
    let row = |ReloadedFile { setting, path, changed }: &ReloadedFile| {
        let changed = if *changed { "yes" } else { "no" };
        vec![setting.clone(), path.clone(), changed.to_owned()]
    };
    let rows: Vec<_> = [head].into_iter().chain(read.files.iter().map(row)).collect();
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_told_with_whether_it_changed() {
        assert!(to_text(&ReloadResponse::default()).contains("no certificates"));
        let file = |setting: &str, changed| ReloadedFile {
            setting: setting.to_owned(),
            path: format!("/etc/{setting}"),
            changed,
        };
        let read = ReloadResponse { files: vec![file("tls_cert", true), file("tls_key", false)] };
        let told = "SETTING   FILE           CHANGED\ntls_cert  /etc/tls_cert  yes\ntls_key   /etc/tls_key   no";
        assert_eq!(to_text(&read), told);
    }
}

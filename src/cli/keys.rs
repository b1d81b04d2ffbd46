//! `ratchet keys` and `ratchet explain`: which keys there are, and what the cluster knows of one.

mod format;

use clap::Args;
use serde_json::json;

use super::{
    connection::Connection,
    exit::CommandError,
    numbers::{KeyArgs, key_of},
    output,
};
use ratchet_client::api as v1;

/// `ratchet keys`.
#[derive(Debug, Args)]
pub struct Keys {
    /// The namespace, for example "book"
    namespace: String,
    /// Only names that begin with this
    #[arg(long, default_value = "")]
    prefix: String,
    /// Only keys after this one, which need not exist: the last one of the page before
    #[arg(long)]
    after: Option<String>,
    /// The key given as --after is a name even if it looks like an id
    #[arg(long, requires = "after")]
    name: bool,
    /// How many keys to show
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Keys {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let after = self.after.as_ref().map(|after| key_of(after, self.name));
        let request = v1::ListKeysRequest {
            namespace: self.namespace.clone(),
            prefix: self.prefix.into_bytes().into(),
            after: after.map(Into::into),
            limit: self.limit,
        };
        let page = self.connection.client()?.list_keys(request).await?;
        let keys: Vec<_> = page.keys.iter().map(format::listed_json).collect();
        let value = json!({"keys": keys, "more": page.more, "epoch": page.epoch});
        let text = format::page(&self.namespace, &page);
        output::result(self.connection.json, &value, &text)
    }
}

/// `ratchet explain`.
#[derive(Debug, Args)]
pub struct Explain {
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Explain {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let client = self.connection.client()?;
        let explanation = (client.explain(self.key.namespace.clone(), self.key.key())).await?;
        let value = format::explanation_json(&explanation);
        let text = format::explanation(&explanation);
        output::result(self.connection.json, &value, &text)
    }
}

//! `ratchet keys` and `ratchet explain`: which keys there are, and what the cluster knows of one.

mod format;

use clap::Args;

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
    /// Only keys after this one, which need not exist
    #[arg(long)]
    after: Option<String>,
    /// The key given as --after is a name even if it looks like an id
    #[arg(long, requires = "after")]
    name: bool,
    /// Where a page ended, as it says
    #[arg(long, default_value = "")]
    page_token: String,
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
            namespace: self.namespace,
            prefix: self.prefix.into_bytes().into(),
            after: after.map(Into::into),
            page_size: self.limit,
            page_token: self.page_token,
        };
        let page = self.connection.client()?.list_keys(request).await?;
        output::result(self.connection.json, &page, &format::page(&page))
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
        let text = format::explanation(&explanation);
        output::result(self.connection.json, &explanation, &text)
    }
}

//! `ratchet namespace`: create, show, list, change and delete namespaces.

mod format;

use std::slice;

use clap::{Args, Subcommand, ValueEnum};

use self::format::to_table;
use super::{connection::Connection, exit::CommandError, output};
use ratchet_client::{Client, api as v1};

/// `ratchet namespace`.
#[derive(Debug, Args)]
pub struct Namespace {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    pub(super) connection: Connection,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List all namespaces
    List,
    /// Show one namespace
    #[command(visible_alias = "get")]
    Show {
        /// The namespace's name
        name: String,
    },
    /// Create a namespace
    Create(Create),
    /// Change a namespace. What orders numbers (increment, start, section size, kind of keys) changes until its first
    /// number
    Update(Update),
    /// Delete a namespace and all its keys
    Delete(Delete),
}

#[derive(Debug, Args)]
struct Create {
    /// The namespace's name: 1 to 64 of the characters A-Z a-z 0-9 . _ -
    name: String,
    /// The kind of its keys
    #[arg(long, value_enum, default_value_t = Kind::Id)]
    key_kind: Kind,
    /// How many numbers one bump makes available at first [default: 10000]
    #[arg(long)]
    step: Option<u64>,
    /// The smallest step that a section with little load shrinks to [default: the step]
    #[arg(long)]
    step_min: Option<u64>,
    /// The largest step that a section under load grows to; an unclean leader change skips at most
    /// this many numbers of a section [default: the step]
    #[arg(long)]
    step_max: Option<u64>,
    /// The distance between neighbouring numbers of a key [default: 1]
    #[arg(long)]
    increment: Option<u64>,
    /// The first number of every key [default: 1]
    #[arg(long)]
    start: Option<u64>,
    /// The greatest number of every key [default: 9223372036854775807]
    #[arg(long)]
    max: Option<u64>,
    /// How many consecutive ids share a ceiling, at most 1000000 [default: 1]
    #[arg(long)]
    section_size: Option<u64>,
    /// Commit every number before it is answered, so that none is skipped; needs section_size 1, and takes a round of
    /// the cluster for each answer
    #[arg(long)]
    gapless: bool,
    /// Numbers of a gapless namespace may be taken without a request id, as clients of Redis do; a lost answer then
    /// leaves a gap
    #[arg(long)]
    request_id_optional: bool,
    /// What it is for, in at most 256 characters
    #[arg(long, default_value_t)]
    description: String,
    /// The most numbers of a key in one request [default: the nodes' count_max]
    #[arg(long)]
    count_max: Option<u64>,
    /// How many keys may get numbers, in whole sections; a key beyond is refused [default: any number]
    #[arg(long)]
    keys_max: Option<u64>,
    /// The format of its ids: the name of one, such as snowflake, or its fields; needs increment 1, section size 1, and not
    /// gapless [default: plain numbers]
    #[arg(long)]
    format: Option<String>,
}

#[derive(Debug, Args)]
struct Delete {
    /// The namespace's name
    name: String,
    /// The name again
    #[arg(long, value_name = "NAME")]
    confirm: String,
    /// Forget which numbers were handed out: a namespace that is created under the name again may hand out the same ones.
    /// Without it, it begins above them
    #[arg(long)]
    forget: bool,
}

#[derive(Debug, Args)]
struct Update {
    /// The namespace's name
    name: String,
    /// How many numbers one bump makes available at first
    #[arg(long)]
    step: Option<u64>,
    /// The smallest step that a section with little load shrinks to; 0: the step does not shrink
    #[arg(long)]
    step_min: Option<u64>,
    /// The largest step that a section under load grows to; 0: the step does not grow
    #[arg(long)]
    step_max: Option<u64>,
    /// The greatest number of every key
    #[arg(long)]
    max: Option<u64>,
    /// What it is for, in at most 256 characters
    #[arg(long)]
    description: Option<String>,
    /// The most numbers of a key in one request; 0: the nodes' count_max alone counts
    #[arg(long)]
    count_max: Option<u64>,
    /// How many keys may get numbers, in whole sections; 0: any number
    #[arg(long)]
    keys_max: Option<u64>,
    /// The distance between neighbouring numbers of a key; until the first number
    #[arg(long)]
    increment: Option<u64>,
    /// The first number of every key; until the first number
    #[arg(long)]
    start: Option<u64>,
    /// How many consecutive ids share a ceiling, at most 1000000; until the first number
    #[arg(long)]
    section_size: Option<u64>,
    /// The kind of its keys; until the first number
    #[arg(long, value_enum)]
    key_kind: Option<Kind>,
    /// Whether numbers of a gapless namespace may be taken without a request id
    #[arg(long)]
    request_id_optional: Option<bool>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Unsigned 64-bit integers
    Id = v1::KeyKind::Id as isize,
    /// Byte strings of 1 to 256 bytes
    Name = v1::KeyKind::Name as isize,
}

impl Namespace {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let (client, json) = (self.connection.client()?, self.connection.json);
        let namespace = match self.command {
            Command::List => {
                let namespaces = client.list_namespaces().await?;
                let all = v1::ListNamespacesResponse { namespaces };
                return output::result(json, &all, &to_table(&all.namespaces));
            }
            Command::Delete(delete) => return delete.run(&client, json).await,
            Command::Show { name } => client.get_namespace(name).await?,
            Command::Create(create) => client.create_namespace(create.into()).await?,
            Command::Update(update) => client.update_namespace(update.into()).await?,
        };
        output::result(json, &namespace, &to_table(slice::from_ref(&namespace)))
    }
}

impl From<Create> for v1::CreateNamespaceRequest {
    fn from(create: Create) -> Self {
        v1::CreateNamespaceRequest {
            name: create.name,
            key_kind: create.key_kind as i32,
            step: create.step,
            step_min: create.step_min,
            step_max: create.step_max,
            increment: create.increment,
            start: create.start,
            max: create.max,
            section_size: create.section_size,
            gapless: create.gapless,
            request_id_optional: create.request_id_optional,
            description: create.description,
            count_max: create.count_max,
            keys_max: create.keys_max,
            format: create.format,
        }
    }
}

impl From<Update> for v1::UpdateNamespaceRequest {
    fn from(update: Update) -> Self {
        v1::UpdateNamespaceRequest {
            namespace: update.name,
            step: update.step,
            step_min: update.step_min,
            step_max: update.step_max,
            max: update.max,
            description: update.description,
            count_max: update.count_max,
            keys_max: update.keys_max,
            increment: update.increment,
            start: update.start,
            section_size: update.section_size,
            key_kind: update.key_kind.map_or(0, |kind| kind as i32),
            request_id_optional: update.request_id_optional,
        }
    }
}

impl Delete {
    async fn run(self, client: &Client, json: bool) -> Result<(), CommandError> {
        let name = self.name.clone();
        let deleted = (client.delete_namespace(self.name, self.confirm, self.forget)).await?;
        let again = format!("deleted {name}; a namespace that is created under that name");
        let text = match (deleted.floor, deleted.ids_after_ms) {
            (Some(floor), None) => format!("{again} begins above {floor}\n"),
            (Some(floor), Some(ids)) => {
                format!("{again} begins above {floor}, and its ids have times after {ids} ms\n")
            }
            (None, Some(ids)) => format!("{again} has ids with times after {ids} ms\n"),
            (None, None) => format!("deleted {name}; nothing of it is remembered\n"),
        };
        output::result(json, &deleted, &text)
    }
}

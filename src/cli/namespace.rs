//! `ratchet namespace`: create, show, list, change and delete namespaces.

mod format;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use self::format::{to_json, to_table};
use super::{connection::Connection, exit::CommandError, output};
use ratchet_client::api as v1;

/// `ratchet namespace`.
#[derive(Debug, Args)]
pub struct Namespace {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List all namespaces
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Show one namespace
    #[command(visible_alias = "get")]
    Show {
        /// The namespace's name
        name: String,
        #[command(flatten)]
        connection: Connection,
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
    #[command(flatten)]
    connection: Connection,
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
    #[command(flatten)]
    connection: Connection,
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
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Unsigned 64-bit integers
    Id,
    /// Byte strings of 1 to 256 bytes
    Name,
}

impl Kind {
    fn on_the_wire(self) -> v1::KeyKind {
        match self {
            Kind::Id => v1::KeyKind::Id,
            Kind::Name => v1::KeyKind::Name,
        }
    }
}

impl Namespace {
    pub(super) fn wants_json(&self) -> bool {
        match &self.command {
            Command::List { connection } | Command::Show { connection, .. } => connection.json,
            Command::Create(create) => create.connection.json,
            Command::Update(update) => update.connection.json,
            Command::Delete(delete) => delete.connection.json,
        }
    }

    pub(super) async fn run(self) -> Result<(), CommandError> {
        match self.command {
            Command::List { connection } => {
                let all = connection.client()?.list_namespaces().await?;
                let value = json!({"namespaces": all.iter().map(to_json).collect::<Vec<_>>()});
                output::result(connection.json, &value, &to_table(&all))
            }
            Command::Show { name, connection } => {
                let namespace = connection.client()?.get_namespace(name).await?;
                show(&connection, namespace)
            }
            Command::Create(create) => create.run().await,
            Command::Update(update) => update.run().await,
            Command::Delete(delete) => delete.run().await,
        }
    }
}

impl Create {
    async fn run(self) -> Result<(), CommandError> {
        let request = v1::CreateNamespaceRequest {
            name: self.name,
            key_kind: self.key_kind.on_the_wire().into(),
            step: self.step,
            step_min: self.step_min,
            step_max: self.step_max,
            increment: self.increment,
            start: self.start,
            max: self.max,
            section_size: self.section_size,
            gapless: self.gapless,
            request_id_optional: self.request_id_optional,
            description: self.description,
            count_max: self.count_max,
            keys_max: self.keys_max,
            format: self.format,
        };
        let client = self.connection.client()?;
        show(&self.connection, client.create_namespace(request).await?)
    }
}

impl Update {
    async fn run(self) -> Result<(), CommandError> {
        let request = v1::UpdateNamespaceRequest {
            name: self.name,
            step: self.step,
            step_min: self.step_min,
            step_max: self.step_max,
            max: self.max,
            description: self.description,
            count_max: self.count_max,
            keys_max: self.keys_max,
            increment: self.increment,
            start: self.start,
            section_size: self.section_size,
            key_kind: (self.key_kind).map_or(v1::KeyKind::Unspecified, Kind::on_the_wire).into(),
            request_id_optional: self.request_id_optional,
        };
        let client = self.connection.client()?;
        show(&self.connection, client.update_namespace(request).await?)
    }
}

impl Delete {
    async fn run(self) -> Result<(), CommandError> {
        let client = self.connection.client()?;
        let name = self.name.clone();
        let deleted = (client.delete_namespace(self.name, self.confirm, self.forget)).await?;
        let value = json!({
            "name": name, "floor": deleted.floor, "ids_after_ms": deleted.ids_after_ms,
        });
        let again = format!("deleted {name}; a namespace that is created under that name");
        let text = match (deleted.floor, deleted.ids_after_ms) {
            (Some(floor), None) => format!("{again} begins above {floor}\n"),
            (Some(floor), Some(ids)) => {
                format!("{again} begins above {floor}, and its ids have times after {ids} ms\n")
            }
            (None, Some(ids)) => format!("{again} has ids with times after {ids} ms\n"),
            (None, None) => format!("deleted {name}; nothing of it is remembered\n"),
        };
        output::result(self.connection.json, &value, &text)
    }
}

fn show(connection: &Connection, namespace: v1::Namespace) -> Result<(), CommandError> {
    let (value, text) = (to_json(&namespace), to_table(&[namespace]));
    output::result(connection.json, &value, &text)
}

//! `ratchet namespace`.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::{Connection, Failed, output};
use crate::proto::v1;

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
    Get {
        /// Its name
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Create a namespace
    Create {
        /// Its name: 1 to 64 characters out of A-Z a-z 0-9 . _ -
        name: String,
        /// What its keys are
        #[arg(long, value_enum, default_value_t = Kind::Id)]
        key_kind: Kind,
        /// How many numbers one bump makes available [default: 10000]
        #[arg(long)]
        step: Option<u64>,
        /// The distance between neighbouring numbers of a key [default: 1]
        #[arg(long)]
        increment: Option<u64>,
        /// The first number of every key [default: 1]
        #[arg(long)]
        start: Option<u64>,
        /// No number is greater [default: 9223372036854775807]
        #[arg(long)]
        max: Option<u64>,
        /// How many neighbouring ids share a ceiling [default: 1]
        #[arg(long)]
        section_size: Option<u64>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Change a namespace's step or max
    Update {
        /// Its name
        name: String,
        /// How many numbers one bump makes available
        #[arg(long)]
        step: Option<u64>,
        /// No number is greater
        #[arg(long)]
        max: Option<u64>,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Unsigned 64-bit integers
    Id,
    /// Byte strings of 1 to 256 bytes
    Name,
}

impl Namespace {
    pub(super) fn wants_json(&self) -> bool {
        match &self.command {
            Command::List { connection }
            | Command::Get { connection, .. }
            | Command::Create { connection, .. }
            | Command::Update { connection, .. } => connection.json,
        }
    }

    pub(super) async fn run(self) -> Result<(), Failed> {
        match self.command {
            Command::List { connection } => {
                let all = connection.client()?.list_namespaces().await?;
                let value = json!({"namespaces": all.iter().map(to_json).collect::<Vec<_>>()});
                output::either(connection.json, &value, &to_table(&all))
            }
            Command::Get { name, connection } => {
                show(&connection, connection.client()?.get_namespace(name).await?)
            }
            Command::Create {
                name,
                key_kind,
                step,
                increment,
                start,
                max,
                section_size,
                connection,
            } => {
                let kind = match key_kind {
                    Kind::Id => v1::KeyKind::Id,
                    Kind::Name => v1::KeyKind::Name,
                };
                let request = v1::CreateNamespaceRequest {
                    name,
                    key_kind: kind.into(),
                    step,
                    increment,
                    start,
                    max,
                    section_size,
                };
                show(
                    &connection,
                    connection.client()?.create_namespace(request).await?,
                )
            }
            Command::Update {
                name,
                step,
                max,
                connection,
            } => {
                let request = v1::UpdateNamespaceRequest { name, step, max };
                show(
                    &connection,
                    connection.client()?.update_namespace(request).await?,
                )
            }
        }
    }
}

fn show(connection: &Connection, namespace: v1::Namespace) -> Result<(), Failed> {
    let (value, text) = (to_json(&namespace), to_table(&[namespace]));
    output::either(connection.json, &value, &text)
}

fn kind_name(namespace: &v1::Namespace) -> &'static str {
    match namespace.key_kind() {
        v1::KeyKind::Name => "name",
        _ => "id",
    }
}

fn to_json(namespace: &v1::Namespace) -> Value {
    json!({
        "name": namespace.name,
        "key_kind": kind_name(namespace),
        "step": namespace.step,
        "increment": namespace.increment,
        "start": namespace.start,
        "max": namespace.max,
        "section_size": namespace.section_size,
    })
}

fn to_table(namespaces: &[v1::Namespace]) -> String {
    let head = [
        "NAME",
        "KEYS",
        "STEP",
        "INCREMENT",
        "START",
        "MAX",
        "SECTION SIZE",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(namespaces.iter().map(|namespace| {
        vec![
            namespace.name.clone(),
            kind_name(namespace).to_owned(),
            namespace.step.to_string(),
            namespace.increment.to_string(),
            namespace.start.to_string(),
            namespace.max.to_string(),
            namespace.section_size.to_string(),
        ]
    }));
    output::table(&rows)
}

//! `ratchet namespace`: create, show, list and change namespaces.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

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
    Get {
        /// The namespace's name
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Create a namespace
    Create(Create),
    /// Change the step, its bounds or the max of a namespace
    Update(Update),
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
    /// How many consecutive ids share a ceiling [default: 1]
    #[arg(long)]
    section_size: Option<u64>,
    /// Commit every number before it is answered, so that none is skipped; needs section_size 1, and takes a round of
    /// the cluster for each answer
    #[arg(long)]
    gapless: bool,
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

impl Namespace {
    pub(super) fn wants_json(&self) -> bool {
        match &self.command {
            Command::List { connection } | Command::Get { connection, .. } => connection.json,
            Command::Create(create) => create.connection.json,
            Command::Update(update) => update.connection.json,
        }
    }

    pub(super) async fn run(self) -> Result<(), CommandError> {
        match self.command {
            Command::List { connection } => {
                let all = connection.client()?.list_namespaces().await?;
                let value = json!({"namespaces": all.iter().map(to_json).collect::<Vec<_>>()});
                output::result(connection.json, &value, &to_table(&all))
            }
            Command::Get { name, connection } => {
                let namespace = connection.client()?.get_namespace(name).await?;
                show(&connection, namespace)
            }
            Command::Create(create) => create.run().await,
            Command::Update(update) => update.run().await,
        }
    }
}

impl Create {
    async fn run(self) -> Result<(), CommandError> {
        let kind = match self.key_kind {
            Kind::Id => v1::KeyKind::Id,
            Kind::Name => v1::KeyKind::Name,
        };
        let request = v1::CreateNamespaceRequest {
            name: self.name,
            key_kind: kind.into(),
            step: self.step,
            step_min: self.step_min,
            step_max: self.step_max,
            increment: self.increment,
            start: self.start,
            max: self.max,
            section_size: self.section_size,
            gapless: self.gapless,
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
        };
        let client = self.connection.client()?;
        show(&self.connection, client.update_namespace(request).await?)
    }
}

fn show(connection: &Connection, namespace: v1::Namespace) -> Result<(), CommandError> {
    let (value, text) = (to_json(&namespace), to_table(&[namespace]));
    output::result(connection.json, &value, &text)
}

/// The step, and its bounds if they differ: "10000 (100..1000000)".
fn steps(namespace: &v1::Namespace) -> String {
    let v1::Namespace {
        step,
        step_min,
        step_max,
        ..
    } = namespace;
    if step_min == step_max {
        step.to_string()
    } else {
        format!("{step} ({step_min}..{step_max})")
    }
}

fn kind_name(namespace: &v1::Namespace) -> &'static str {
    match namespace.key_kind() {
        v1::KeyKind::Name => "name",
        v1::KeyKind::Id | v1::KeyKind::Unspecified => "id",
    }
}

fn to_json(namespace: &v1::Namespace) -> Value {
    json!({
        "name": namespace.name,
        "key_kind": kind_name(namespace),
        "step": namespace.step,
        "step_min": namespace.step_min,
        "step_max": namespace.step_max,
        "increment": namespace.increment,
        "start": namespace.start,
        "max": namespace.max,
        "section_size": namespace.section_size,
        "gapless": namespace.gapless,
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
        "GAPLESS",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(namespaces.iter().map(|namespace| {
        vec![
            namespace.name.clone(),
            kind_name(namespace).to_owned(),
            steps(namespace),
            namespace.increment.to_string(),
            namespace.start.to_string(),
            namespace.max.to_string(),
            namespace.section_size.to_string(),
            if namespace.gapless { "yes" } else { "no" }.to_owned(),
        ]
    }));
    output::table(&rows)
}

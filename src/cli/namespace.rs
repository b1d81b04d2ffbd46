//! `ratchet namespace`: create, show, list, change and delete namespaces. `ratchet gaps`: how many of their numbers
//! were handed out and skipped, day by day.

use std::slice;

use clap::{Args, Subcommand, ValueEnum};
use ratchet_client::{Client, api as v1};
use ratchet_ids::Format;

use super::{
    connection::Connection,
    output::{self, CommandError, date},
};
use crate::sequence::DAYS_KEPT;

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

// Namespaces as `ratchet namespace` shows them.

/// The step, and its bounds if they differ: "10000 (100..1000000)".
fn steps(namespace: &v1::Namespace) -> String {
    let v1::Namespace { step, step_min, step_max, .. } = namespace;
    if step_min == step_max { step.to_string() } else { format!("{step} ({step_min}..{step_max})") }
}

/// A limit, if there is one.
fn limit(limit: Option<u64>) -> String {
    limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string())
}

/// The name of a format that has one, or its fields; "-" for plain numbers.
fn format_name(namespace: &v1::Namespace) -> String {
    let Some(format) = &namespace.format else {
        return "-".to_owned();
    };
    // Whatever this release does not know is shown as it is.
    let known = Format::parse(format).ok();
    let name = known.as_ref().and_then(Format::name);
    name.unwrap_or(format).to_owned()
}

fn kind_name(namespace: &v1::Namespace) -> &'static str {
    match namespace.key_kind() {
        v1::KeyKind::Name => "name",
        v1::KeyKind::Id | v1::KeyKind::Unspecified => "id",
    }
}

/// Namespaces as a table.
pub fn to_table(namespaces: &[v1::Namespace]) -> String {
    let head = [
        "NAME",
        "KEYS",
        "STEP",
        "INCREMENT",
        "START",
        "MAX",
        "SECTION SIZE",
        "GAPLESS",
        "COUNT MAX",
        "KEYS MAX",
        "FORMAT",
        "DESCRIPTION",
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
            limit(namespace.count_max),
            limit(namespace.keys_max),
            format_name(namespace),
            namespace.description.clone(),
        ]
    }));
    output::table(&rows)
}

// `ratchet gaps`: how many numbers of a namespace were handed out and skipped, day by day.

/// `ratchet gaps`.
#[derive(Debug, Args)]
pub struct Gaps {
    /// The namespace, for example "book"
    namespace: String,
    /// How many days back, today included; all that are kept by default
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS_KEPT)))]
    days: Option<u32>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Gaps {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let client = self.connection.client()?;
        let gaps = client.gaps(self.namespace, self.days.unwrap_or(0)).await?;
        output::result(self.connection.json, &gaps, &days_to_table(&gaps.days))
    }
}

/// Up to when the books tell.
const AS_OF: &str = "as of each key's last log entry: what was handed out of its last chunk since is booked with its next one";

/// A row for each day, and a column for each cause.
fn days_to_table(days: &[v1::GapsOfDay]) -> String {
    let Some(first) = days.first() else {
        return format!("nothing is booked, {AS_OF}");
    };
    let mut head = vec!["DAY".to_owned(), "HANDED OUT".to_owned()];
    let causes = first.skipped.iter();
    head.extend(causes.map(|skipped| skipped.cause.to_uppercase().replace('_', " ")));
    let mut rows = vec![head];
    rows.extend(days.iter().map(|day| {
        let mut row = vec![date(day.day.into()), day.handed_out.to_string()];
        row.extend(day.skipped.iter().map(|skipped| skipped.numbers.to_string()));
        row
    }));
    format!("{}\n{AS_OF}", output::table(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_a_row_and_a_cause_a_column() {
        let skipped = |cause: &str, numbers| v1::Skipped { cause: cause.to_owned(), numbers };
        let days = [v1::GapsOfDay {
            day: 20_513,
            handed_out: 42,
            skipped: vec![skipped("leader_change", 10_000), skipped("fence", 0)],
        }];
        assert_eq!(
            days_to_table(&days).lines().collect::<Vec<_>>(),
            [
                "DAY         HANDED OUT  LEADER CHANGE  FENCE",
                "2026-03-01  42          10000          0",
                AS_OF
            ]
        );
        assert_eq!(days_to_table(&[]), format!("nothing is booked, {AS_OF}"));
    }
}

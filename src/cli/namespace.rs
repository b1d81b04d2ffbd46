//! `ratchet namespace`: create, show, list, change and delete namespaces.

use std::slice;

use clap::{Args, Subcommand};
use ratchet_client::api as v1;
use ratchet_ids::Format;

use super::{
    command_error::CommandError,
    connection::{Ask, Connection},
    flags::Flags,
    output,
};

/// `ratchet namespace`.
#[derive(Debug, Args)]
pub struct NamespaceArgs {
    #[command(subcommand)]
    command: NamespaceCommand,
}

#[derive(Debug, Subcommand)]
enum NamespaceCommand {
    /// List all namespaces
    List,
    /// Show one namespace
    #[command(visible_alias = "get")]
    Show {
        /// The namespace's name
        name: String,
    },
    /// Create a namespace
    Create(Flags<v1::CreateNamespaceRequest>),
    /// Change a namespace. The fields that order numbers (increment, start, section size, kind of keys) change until its first
    /// number
    Update(Flags<v1::UpdateNamespaceRequest>),
    /// Delete a namespace and all its keys
    Delete(Flags<v1::DeleteNamespaceRequest>),
}

impl Ask for NamespaceArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let (client, json) = (connection.client()?, connection.json);
        let namespace = match self.command {
            NamespaceCommand::List => {
                let namespaces = client.list_namespaces().await?;
                let all = v1::ListNamespacesResponse { namespaces };
                return output::result(json, &all, &to_table(&all.namespaces));
            }
            NamespaceCommand::Delete(Flags(asked)) => {
                let v1::DeleteNamespaceRequest { namespace, confirm, forget } = asked;
                let deleted = client.delete_namespace(namespace.clone(), confirm, forget).await?;
                return output::result(json, &deleted, &remembered(&namespace, &deleted));
            }
            NamespaceCommand::Show { name } => client.get_namespace(name).await?,
            NamespaceCommand::Create(Flags(create)) => client.create_namespace(create).await?,
            NamespaceCommand::Update(Flags(update)) => client.update_namespace(update).await?,
        };
        output::result(json, &namespace, &to_table(slice::from_ref(&namespace)))
    }
}

/// The text about the bounds that are remembered of the deleted namespace `name`.
fn remembered(name: &str, deleted: &v1::DeleteNamespaceResponse) -> String {
    let again = format!("deleted {name}; a namespace that is created under that name");
    match (deleted.floor, deleted.ids_after_ms) {
        (Some(floor), None) => format!("{again} begins above {floor}\n"),
        (Some(floor), Some(ids)) => {
            format!("{again} begins above {floor}, and its ids have times after {ids} ms\n")
        }
        (None, Some(ids)) => format!("{again} has ids with times after {ids} ms\n"),
        (None, None) => format!("deleted {name}; nothing of it is remembered\n"),
    }
}

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

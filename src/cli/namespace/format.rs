//! Namespaces as `ratchet namespace` shows them.

use ratchet_client::api as v1;
use ratchet_ids::Format;

use crate::cli::output;

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

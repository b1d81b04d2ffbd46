//! `ratchet recover`: a cluster of one from the data directory of a survivor. It asks no node: this process changes the data
//! directory (`storage`) while the node is stopped. This file reads the margins, and shows the outcome.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args;
use ratchet_client::api as v1;
use serde_json::{Value, json};

use super::{
    access::principals::to_table,
    command_error::CommandError,
    output::{self, date_and_time},
};
use crate::{
    clock::{BootClock, Clock},
    node,
    storage::{Margin, RaisedNamespace, Recovery},
};

/// With the default step this covers a copy that is one day old, of a section that hands out 10 000 numbers
/// per second.
const MARGIN_STEPS: u64 = 100_000;

/// `ratchet recover`.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// The data directory of the surviving node, which must be stopped
    #[arg(long)]
    data_dir: PathBuf,
    /// By how many steps to raise every ceiling; a step is the greatest one of the namespace. It must
    /// cover the numbers that the lost nodes handed out of any section after the end of this copy. Namespaces whose ids
    /// come from keys and hold a time follow the clock instead
    #[arg(long, default_value_t = MARGIN_STEPS)]
    margin_steps: u64,
    /// The margin of one namespace, also a deleted one, as "name=steps"; may be repeated
    #[arg(long = "margin", value_parser = margin_of)]
    margins: Vec<(String, u64)>,
    /// Show what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the result, or the error, as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Parses "name=steps".
fn margin_of(text: &str) -> Result<(String, u64), String> {
    let parts = text.split_once('=');
    parts
        .and_then(|(name, steps)| Some((name.to_owned(), steps.parse().ok()?)))
        .ok_or_else(|| format!("{text:?} does not have the form name=steps, for example book=1000"))
}

impl RecoverArgs {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let margin = Margin {
            default_steps: self.margin_steps,
            steps_by_namespace: BTreeMap::from_iter(self.margins),
        };
        let (dir, dry_run) = (self.data_dir, self.dry_run);
        let done = node::recover(&dir, &margin, dry_run);
        let failed = |error| CommandError::from(node::StartError::from(error)).in_json(self.json);
        let (done, principals) = done.map_err(failed)?;
        let value = json!({"dry_run": dry_run, "recovery": done, "principals": principals});
        let text = format!("{}\n{}", to_text(&done, dry_run), of_principals(&principals));
        output::result(self.json, &with_strings(value), &text)
    }
}

/// The value with strings in the place of its numbers: all of them have 64 bits.
fn with_strings(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::String(number.to_string()),
        Value::Array(items) => items.into_iter().map(with_strings).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, with_strings(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value,
    }
}

/// A text about the recovery that was done, or would be.
fn outcome(done: &Recovery, dry_run: bool) -> String {
    let (node, cluster) = (done.node, &done.cluster);
    match (dry_run, done.completed_only) {
        (true, false) => {
            format!("nothing was changed; this would make node {node} a cluster of one")
        }
        (true, true) => {
            "nothing was changed; an earlier run was interrupted near its end, and the \
                         next run completes it as it began"
                .to_owned()
        }
        (false, false) => format!("node {node} is now a cluster of one, {cluster:?}"),
        (false, true) => {
            format!("the earlier run is complete: node {node} is now a cluster of one")
        }
    }
}

/// How a namespace was raised.
fn lines_of(namespace: &RaisedNamespace, line: &mut impl FnMut(String)) {
    let RaisedNamespace {
        name,
        margin_steps,
        raised_by,
        sections,
        exhausted,
        start,
        ids_after_ms,
        follows_the_time,
    } = namespace;
    line(match (follows_the_time, margin_steps) {
        (true, 0) => format!("namespace {name}: {sections} sections raised to {start}"),
        (true, _) => format!(
            "namespace {name}: {sections} sections raised to {start}, with a margin of {raised_by} ({margin_steps} steps)"
        ),
        (false, _) => format!(
            "namespace {name}: {sections} sections raised by {raised_by} ({margin_steps} steps); keys of other sections begin \
             at {start}"
        ),
    });
    if let Some(ids_after_ms) = ids_after_ms {
        let leases = match follows_the_time {
            true => "",
            false => "; whoever held a worker id leases one again",
        };
        let date = date_and_time(*ids_after_ms);
        line(format!("  its ids have times from {ids_after_ms} ms ({date} UTC) on{leases}"));
    }
    match (exhausted, ids_after_ms) {
        (0, _) => {}
        (_, None) => line(format!(
            "  {exhausted} of its sections have no numbers left below its max; raise it: ratchet namespace update {name} \
             --max ..."
        )),
        // A format says which numbers have ids.
        (_, Some(_)) => {
            line(format!("  {exhausted} of its keys have no ids left: their format has no more"))
        }
    }
}

fn to_text(done: &Recovery, dry_run: bool) -> String {
    let mut lines = vec![outcome(done, dry_run)];
    let mut line = |line: String| lines.push(line);
    line(format!(
        "this copy ends at log entry {} of term {}{}",
        done.last_log_index,
        done.last_log_term,
        match done.unapplied_entries {
            0 => String::new(),
            n => format!(" ({n} of its entries had not been applied; they are included)"),
        }
    ));
    let left_behind: Vec<String> = done.left_behind.iter().map(u64::to_string).collect();
    if !left_behind.is_empty() {
        line(format!(
            "left behind: nodes {}; never start them again on their data",
            left_behind.join(", ")
        ));
    }
    for namespace in &done.namespaces {
        lines_of(namespace, &mut line);
    }
    line(
        "no number repeats if, after the end of this copy, no section got more numbers than it is \
         raised by, no namespace was created, and none got a greater step; and no id repeats if the clocks of the lost nodes \
         were at most 50 s ahead of this machine's. For keys in sections that are not in \
         this copy, current answers none until their next number"
            .to_owned(),
    );
    lines.join("\n")
}

/// A text about the principals of the recovered cluster, and what is to be done about them.
fn of_principals(principals: &[v1::Principal]) -> String {
    format!(
        "these may do what was granted to them by this copy: look through them. Who was revoked, or had a grant taken away, after \
         the end of this copy is among them again; take that away again at once: ratchet token revoke, ratchet grant\n{}",
        to_table(principals, BootClock.wall_ms())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(namespace: &RaisedNamespace) -> String {
        let mut lines = Vec::new();
        lines_of(namespace, &mut |line: String| lines.push(line));
        lines.join("\n")
    }

    #[test]
    fn a_greater_max_is_advised_only_where_a_namespace_can_have_one() {
        let plain = RaisedNamespace {
            name: "book".to_owned(),
            margin_steps: 50,
            raised_by: 500,
            sections: 3,
            exhausted: 1,
            start: 501,
            ids_after_ms: None,
            follows_the_time: false,
        };
        let text = text_of(&plain);
        assert!(text.contains("namespace update book --max"), "{text}");
        let dated = RaisedNamespace { ids_after_ms: Some(5), ..plain };
        let text = text_of(&dated);
        assert!(text.contains("no ids left") && !text.contains("--max"), "{text}");
    }

    #[test]
    fn what_follows_the_time_is_told_where_it_goes_on_and_not_by_how_much_it_was_raised() {
        let chat = RaisedNamespace {
            name: "chat".to_owned(),
            margin_steps: 0,
            raised_by: 0,
            sections: 3,
            exhausted: 0,
            start: 501,
            ids_after_ms: Some(7),
            follows_the_time: true,
        };
        let text = text_of(&chat);
        let expected = "namespace chat: 3 sections raised to 501\n  its ids have times from 7 ms (1970-01-01 00:00:00 UTC) on";
        assert!(text.starts_with(expected), "{text}");
        let with_margin = RaisedNamespace { margin_steps: 2, raised_by: 20, ..chat };
        let text = text_of(&with_margin);
        assert!(text.contains("margin of 20 (2 steps)"), "{text}");
    }
}

//! `ratchet recover`: a cluster of one from the data directory of a survivor.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args;
use serde_json::json;

use super::{exit::CommandError, output};
use crate::{
    node,
    storage::{Margin, Recovery},
};

/// With the default step this covers a copy that is one day old, of a section that hands out 10 000 numbers
/// per second.
const MARGIN_STEPS: u64 = 100_000;

/// `ratchet recover`.
#[derive(Debug, Args)]
pub struct Recover {
    /// The data directory of the surviving node, which must be stopped
    #[arg(long)]
    data_dir: PathBuf,
    /// By how many steps to raise every ceiling; a step is the greatest one of the namespace. It must
    /// cover the numbers that the lost nodes handed out of any section after the end of this copy
    #[arg(long, default_value_t = MARGIN_STEPS)]
    margin_steps: u64,
    /// The margin of one namespace, as "name=steps"; may be repeated
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

impl Recover {
    pub(super) async fn run(self) -> Result<(), CommandError> {
        let margin = Margin {
            default_steps: self.margin_steps,
            steps_by_namespace: BTreeMap::from_iter(self.margins),
        };
        let (dir, dry_run) = (self.data_dir, self.dry_run);
        let done = node::recover(&dir, &margin, dry_run).map_err(node::StartError::from)?;
        let value = json!({"dry_run": dry_run, "recovery": done});
        output::result(self.json, &value, &to_text(&done, dry_run))
    }
}

/// What was done, or would be.
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
        line(format!(
            "namespace {}: {} sections raised by {} ({} steps); keys of other sections begin at {}",
            namespace.name,
            namespace.sections,
            namespace.raised_by,
            namespace.margin_steps,
            namespace.start
        ));
        if let Some(ids_after_ms) = namespace.ids_after_ms {
            line(format!(
                "  its ids have times after {ids_after_ms} ms; whoever held a worker id leases one again"
            ));
        }
        if namespace.exhausted > 0 {
            line(format!(
                "  {} of its sections have no numbers left below its max; raise it: ratchet namespace \
                 update {} --max ...",
                namespace.exhausted, namespace.name
            ));
        }
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

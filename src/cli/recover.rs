//! `ratchet recover`.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args;
use serde_json::json;

use super::{exit::Failed, output};
use crate::{
    node,
    storage::{Margin, Recovery},
};

/// Covers a copy that is a day old, of a section that takes 10 000 numbers a second with the default
/// step.
const MARGIN_STEPS: u64 = 100_000;

/// `ratchet recover`.
#[derive(Debug, Args)]
pub struct Recover {
    /// The data directory of the surviving node, which must not run
    #[arg(long)]
    data_dir: PathBuf,
    /// By how many steps every ceiling is raised. It must cover what the lost nodes handed out after
    /// this copy ends: of each section, so many times the (greatest) step of its namespace
    #[arg(long, default_value_t = MARGIN_STEPS)]
    margin_steps: u64,
    /// The same for one namespace, "name=steps"; may be given several times
    #[arg(long = "margin", value_parser = margin_of)]
    margins: Vec<(String, u64)>,
    /// Only tell what would be done
    #[arg(long)]
    dry_run: bool,
    /// Answer in JSON
    #[arg(long)]
    pub(super) json: bool,
}

fn margin_of(text: &str) -> Result<(String, u64), String> {
    let parts = text.split_once('=');
    parts
        .and_then(|(name, steps)| Some((name.to_owned(), steps.parse().ok()?)))
        .ok_or_else(|| format!("{text:?} is not of the form name=steps"))
}

impl Recover {
    pub(super) async fn run(self) -> Result<(), Failed> {
        let margin = Margin {
            steps: self.margin_steps,
            of: BTreeMap::from_iter(self.margins),
        };
        let (dir, dry_run) = (self.data_dir, self.dry_run);
        let done = node::recover(&dir, &margin, dry_run).map_err(node::StartError::from)?;
        let value = json!({"dry_run": dry_run, "recovery": done});
        output::result(self.json, &value, &to_text(&done, dry_run))
    }
}

fn outcome(done: &Recovery, dry_run: bool) -> String {
    let (node, cluster) = (done.node, &done.cluster);
    match (dry_run, done.completed_only) {
        (true, false) => {
            format!("nothing was changed; this would make node {node} a cluster of one")
        }
        (true, true) => "nothing was changed; an earlier run was cut short near its end: another \
                         one completes it as it began"
            .to_owned(),
        (false, false) => format!("node {node} is a cluster of one now, {cluster:?}"),
        (false, true) => {
            format!("the earlier run is complete: node {node} is a cluster of one now")
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
            n => format!(" ({n} of them not applied before, taken in)"),
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
        if namespace.exhausted > 0 {
            line(format!(
                "  {} of its sections have no number left under its max; raise it: ratchet namespace \
                 update {} --max ...",
                namespace.exhausted, namespace.name
            ));
        }
    }
    line(
        "no number repeats if, after this copy ended, no section was given more than that, and no \
         namespace was created or given a greater step. Of keys in sections that this copy never \
         heard of, current answers none until their next number"
            .to_owned(),
    );
    lines.join("\n")
}

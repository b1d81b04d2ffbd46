//! What a run was asked for, and what it gave.

use std::path::PathBuf;

use serde::Serialize;

use crate::{
    cluster::Plan,
    history::{History, Op, Outcome, longest_silence},
    judge::Verdict,
    monitor::Led,
    nemesis::{Nemesis, Strike},
    workload::Workload,
};

/// What a run is to be.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cluster.
    pub plan: Plan,
    /// What goes wrong.
    pub nemesis: Nemesis,
    /// What callers ask for.
    pub workload: Workload,
    /// How many keys the workloads of many keys have.
    pub keys: u64,
    /// How many callers.
    pub callers: usize,
    /// For how long faults go on.
    pub seconds: u64,
    /// The step of the namespaces.
    pub step: u64,
    /// How many answered operations make the run worth judging.
    pub ops_min: u64,
    /// How many operations the history has at most: callers are held back so that it lasts.
    pub ops_max: u64,
    /// How many leader changes do.
    pub changes_min: u64,
    /// Whether to stop at the first violation.
    pub until_violation: bool,
    /// Where the report, the histories and the nodes' logs go.
    pub out: PathBuf,
    /// The command that repeats it.
    pub replay: String,
}

/// What a run was.
pub struct Run {
    /// What was asked for.
    pub options: Options,
    /// The verdict.
    pub verdict: Verdict,
    /// What callers saw.
    pub history: History,
    /// What went wrong.
    pub strikes: Vec<Strike>,
    /// Who led when.
    pub led: Vec<Led>,
    /// The figures.
    pub summary: Summary,
}

/// A run in figures.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// What went wrong.
    pub nemesis: String,
    /// The verdict in a word.
    pub verdict: String,
    /// Operations answered.
    pub answered: u64,
    /// The keys of those.
    pub keys: usize,
    /// Operations that surely did not happen.
    pub failed: u64,
    /// Operations of unknown outcome.
    pub unknown: u64,
    /// Leader changes seen.
    pub leader_changes: u64,
    /// Faults that happened, and those of them that surely bit.
    pub strikes: usize,
    /// Faults of which it is certain that they happened.
    pub bit: usize,
    /// The longest time without an answer, in milliseconds.
    pub longest_outage_ms: u64,
    /// After how many seconds the first violation was found, where the run was to stop at it.
    pub caught_after_s: Option<f64>,
}

/// The figures of a run.
pub fn summary(
    options: &Options,
    verdict: &Verdict,
    history: &History,
    strikes: &[Strike],
    leader_changes: u64,
    caught_after_s: Option<f64>,
) -> Summary {
    let count = |outcome| {
        history
            .ops
            .iter()
            .filter(|op| op.outcome == outcome)
            .count() as u64
    };
    Summary {
        nemesis: format!("{:?}", options.nemesis),
        verdict: verdict.word().to_owned(),
        answered: count(Outcome::Ok),
        keys: history.keys(),
        failed: count(Outcome::Fail),
        unknown: count(Outcome::Info),
        leader_changes,
        strikes: strikes.len(),
        bit: strikes.iter().filter(|strike| strike.bit).count(),
        longest_outage_ms: longest_outage(history) / 1_000_000,
        caught_after_s,
    }
}

/// The longest time between two answers.
fn longest_outage(history: &History) -> u64 {
    let answered = || history.answered().map(Op::returned);
    let (first, last) = (answered().min(), answered().max());
    longest_silence(answered(), first.unwrap_or(0), last.unwrap_or(0))
}

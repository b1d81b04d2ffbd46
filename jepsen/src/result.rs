//! The options of a run, and its result.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::Serialize;

use crate::{
    cluster::{ClusterConfig, Product},
    finding::Finding,
    history::{History, Interface, Op, Outcome, longest_silence},
    ids::Figures,
    monitor::Leadership,
    nemesis::{Fault, Nemesis},
    verdict::{Criteria, Verdict},
    workload::Workload,
};

/// The options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cluster.
    pub cluster: ClusterConfig,
    /// The faults.
    pub nemesis: Nemesis,
    /// The workload of the callers.
    pub workload: Workload,
    /// How many keys the workloads with many keys have.
    pub keys: u64,
    /// How many callers there are.
    pub callers: usize,
    /// For how long faults are injected.
    pub seconds: u64,
    /// The step of the namespaces.
    pub step: u64,
    /// How many operations must be answered; with fewer the verdict is unknown.
    pub ops_min: u64,
    /// How many operations the history has at most. Callers are held back so that it lasts.
    pub ops_max: u64,
    /// How many leader changes there must be; with fewer the verdict is unknown.
    pub changes_min: u64,
    /// Whether to stop at the first violation.
    pub until_violation: bool,
    /// Where the report, the histories and the nodes' logs go.
    pub out: PathBuf,
    /// The command that repeats the run.
    pub replay: String,
}

/// How many callers ask for numbers where the others ask for ids.
const CALLERS_BESIDE_IDS: usize = 4;

impl Options {
    /// Whether ids are asked for: by the workload of that name, and beside the numbers of composed runs.
    pub fn asks_for_ids(&self) -> bool {
        let wanted = self.workload == Workload::Ids || self.nemesis == Nemesis::Composed;
        wanted && self.cluster.product == Product::Ratchet
    }

    /// How many callers ask for numbers.
    pub fn callers_of_numbers(&self) -> usize {
        match self.workload {
            Workload::Ids => self.callers.min(CALLERS_BESIDE_IDS),
            _ => self.callers,
        }
    }
}

/// The result of a run.
pub struct Run {
    /// The options of the run.
    pub options: Options,
    /// The verdict.
    pub verdict: Verdict,
    /// The history that callers saw.
    pub history: History,
    /// The faults that were injected.
    pub faults: Vec<Fault>,
    /// The leaders, and when each of them led.
    pub leaderships: Vec<Leadership>,
    /// The figures.
    pub summary: Summary,
}

/// A run in figures, as `summary.json` holds them.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The nemesis.
    pub nemesis: String,
    /// Whether all connections were over TLS, and callers needed a token.
    pub secure: bool,
    /// The verdict in a word.
    pub verdict: String,
    /// The ways in which the promise was broken.
    pub findings: BTreeSet<Finding>,
    /// Operations that were answered.
    pub answered: u64,
    /// How many of them went through each interface that was used.
    pub answered_through: BTreeMap<Interface, u64>,
    /// The keys of those operations.
    pub keys: usize,
    /// Operations that certainly did not happen.
    pub failed: u64,
    /// Operations of unknown outcome.
    pub unknown: u64,
    /// Leader changes that were seen.
    pub leader_changes: u64,
    /// At least as many as there were unclean leader changes, seen or not.
    pub unclean_changes: u64,
    /// Numbers whose fence failed after they were taken, as the nodes counted them.
    pub fence_skips: u64,
    /// Faults that were injected.
    pub faults: usize,
    /// Faults that certainly happened.
    pub took_effect: usize,
    /// The longest time without an answer, in milliseconds.
    pub longest_outage_ms: u64,
    /// After how many seconds the first violation was found, if the run stopped at it.
    pub caught_after_s: Option<f64>,
    /// Ids, if they were asked for.
    pub ids: Option<Figures>,
}

impl Summary {
    /// The figures of a run. `criteria` has the facts on which its verdict depended.
    pub fn new(
        options: &Options, verdict: &Verdict, history: &History, faults: &[Fault],
        criteria: Option<&Criteria>, caught_after_s: Option<f64>,
    ) -> Summary {
        let count = |outcome| {
            let ops = history.ops.iter();
            ops.filter(|op| op.outcome == outcome).count() as u64
        };
        Summary {
            nemesis: format!("{:?}", options.nemesis),
            secure: options.cluster.secure,
            verdict: verdict.kind().word().to_owned(),
            findings: verdict.findings(),
            answered: count(Outcome::Ok),
            answered_through: history.answered_through(),
            keys: history.keys(),
            failed: count(Outcome::Fail),
            unknown: count(Outcome::Info),
            leader_changes: criteria.map_or(0, |criteria| criteria.changes),
            fence_skips: criteria.map_or(0, |criteria| criteria.fence_skips),
            unclean_changes: criteria.map_or(0, Criteria::unclean_count),
            faults: faults.len(),
            took_effect: faults.iter().filter(|fault| fault.took_effect).count(),
            longest_outage_ms: longest_outage_ns(history) / 1_000_000,
            caught_after_s,
            ids: None,
        }
    }

    /// The same with figures of ids.
    #[must_use]
    pub fn with_ids(self, ids: Option<Figures>) -> Summary {
        Summary { ids, ..self }
    }

    /// How many operations were answered through each interface, as a text.
    pub fn answered_through(&self) -> String {
        let interfaces = self.answered_through.iter();
        let counts = interfaces.map(|(interface, count)| format!("{} {count}", interface.name()));
        Vec::from_iter(counts).join(", ")
    }
}

/// The longest time between two answers.
fn longest_outage_ns(history: &History) -> u64 {
    let answered = || history.answered().map(Op::returned);
    let (first, last) = (answered().min(), answered().max());
    longest_silence(answered(), first.unwrap_or(0), last.unwrap_or(0))
}

//! The verdict on a run.
//!
//! Three things are kept apart: how an operation ended (the history), whether the harness could do its work
//! (a harness error), and whether the product kept its promise (the verdict). A run in which the fault never
//! happened proves nothing. Its verdict is unknown, not a pass.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    process::ExitCode,
};

use serde::Serialize;

use crate::{
    accounting::{Accounting, Circumstances},
    checker,
    exported::Exported,
    finding::{Finding, Violation},
    gaps::{self, GapBound, UncleanChanges},
    history::{Action, History, Op},
    ids::Findings,
    nemesis::{Fault, Nemesis},
    target::INCREMENT,
};

#[cfg(test)]
mod tests;

/// How many answers to a call may have been lost: one between two nodes, and one between the node and the caller.
const LOST_MAX: u64 = 2;
/// A call that took this long may have been tried more than once.
const SLOW_NS: u64 = 50_000_000;
/// How many keys with forbidden gaps a verdict names.
const GAPS_TOLD_MAX: usize = 10;

/// The verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "why")]
pub enum Verdict {
    /// The promise was kept, and the faults certainly happened.
    Pass,
    /// The promise was broken.
    Violation(Vec<Violation>),
    /// Nothing broke the promise, but too little happened to say that it was kept.
    Unknown(Vec<String>),
    /// The harness could not do its work.
    HarnessError(String),
}

/// A verdict without its reasons, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerdictKind {
    /// See [`Verdict::Pass`].
    Pass,
    /// See [`Verdict::Unknown`].
    Unknown,
    /// See [`Verdict::HarnessError`].
    HarnessError,
    /// See [`Verdict::Violation`].
    Violation,
}

impl VerdictKind {
    const ALL: [VerdictKind; 4] = [
        VerdictKind::Pass,
        VerdictKind::Unknown,
        VerdictKind::HarnessError,
        VerdictKind::Violation,
    ];

    /// The exit code: 0 pass, 1 violation, 3 unknown, 4 harness error. (2 is a wrong command line.)
    pub fn exit_code(self) -> u8 {
        match self {
            VerdictKind::Pass => 0,
            VerdictKind::Violation => 1,
            VerdictKind::Unknown => 3,
            VerdictKind::HarnessError => 4,
        }
    }

    /// The kind that an exit code stands for. Any other code is a harness error.
    pub fn from_exit_code(code: Option<i32>) -> VerdictKind {
        let found =
            VerdictKind::ALL.into_iter().find(|kind| code == Some(i32::from(kind.exit_code())));
        found.unwrap_or(VerdictKind::HarnessError)
    }

    /// The kind in a word or two.
    pub fn word(self) -> &'static str {
        match self {
            VerdictKind::Pass => "pass",
            VerdictKind::Violation => "VIOLATION",
            VerdictKind::Unknown => "unknown",
            VerdictKind::HarnessError => "harness error",
        }
    }
}

impl From<VerdictKind> for ExitCode {
    fn from(kind: VerdictKind) -> ExitCode {
        ExitCode::from(kind.exit_code())
    }
}

impl Verdict {
    /// The verdict without its reasons.
    pub fn kind(&self) -> VerdictKind {
        match self {
            Verdict::Pass => VerdictKind::Pass,
            Verdict::Violation(_) => VerdictKind::Violation,
            Verdict::Unknown(_) => VerdictKind::Unknown,
            Verdict::HarnessError(_) => VerdictKind::HarnessError,
        }
    }

    /// The ways in which the promise was broken.
    pub fn findings(&self) -> BTreeSet<Finding> {
        match self {
            Verdict::Violation(violations) => {
                violations.iter().map(|violation| violation.finding).collect()
            }
            Verdict::Pass | Verdict::Unknown(_) | Verdict::HarnessError(_) => BTreeSet::new(),
        }
    }

    /// Decides on a run.
    pub fn decide(
        history: &History, faults: &[Fault], final_reads: &[Op], criteria: &Criteria,
    ) -> Verdict {
        let disorder = checker::check_order(history).err();
        let taken = gaps::taken(history, &criteria.gap_bound(), |_| true);
        let found = [
            (Finding::Order, disorder.iter().map(ToString::to_string).collect()),
            (Finding::FinalRead, wrong_final_reads(history, final_reads)),
            (Finding::Gap, forbidden_gaps(history, criteria)),
            (Finding::Accounting, criteria.wrong_accounts(history)),
            (Finding::Export, criteria.exported.judge(&taken)),
            (Finding::Panic, criteria.panics.clone()),
            (Finding::TwoLeaders, criteria.two_leaders.clone()),
            (Finding::Gapless, criteria.gapless.violations.clone()),
            (Finding::Ids, criteria.ids.violations.clone()),
        ];
        let found = found
            .into_iter()
            .flat_map(|(finding, texts)| texts.into_iter().map(move |text| finding.told(text)));
        let of_faults = faults.iter().flat_map(|fault| {
            fault.violations.iter().map(|Violation { finding, text }| {
                finding.told(format!("{}: {text}", fault.description))
            })
        });
        let violations: Vec<Violation> = found.chain(of_faults).collect();
        if !violations.is_empty() {
            return Verdict::Violation(violations);
        }
        let shortcomings = shortcomings(history, faults, criteria);
        if shortcomings.is_empty() { Verdict::Pass } else { Verdict::Unknown(shortcomings) }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().word())?;
        let tell = |f: &mut fmt::Formatter<'_>, why: &dyn fmt::Display| write!(f, "\n- {why}");
        match self {
            Verdict::Pass => Ok(()),
            Verdict::Violation(violations) => violations.iter().try_for_each(|why| tell(f, why)),
            Verdict::Unknown(reasons) => reasons.iter().try_for_each(|why| tell(f, why)),
            Verdict::HarnessError(reason) => tell(f, reason),
        }
    }
}

/// The facts on which the verdict on a run depends, besides its history.
#[derive(Debug, Clone)]
pub struct Criteria {
    /// The faults that were asked for.
    pub nemesis: Nemesis,
    /// How many operations must be answered.
    pub ops_min: u64,
    /// How many keys they must be for.
    pub keys_min: u64,
    /// How many leader changes there must be.
    pub changes_min: u64,
    /// How many keys must be evicted from the memory.
    pub evicted_min: u64,
    /// How many were.
    pub evicted: u64,
    /// The step of the namespaces.
    pub step: u64,
    /// The leader changes that may have been unclean. A graceful one may skip nothing.
    pub unclean_changes: Vec<UncleanChanges>,
    /// How many leader changes were seen.
    pub changes: u64,
    /// How many numbers the nodes counted as skipped because the fence failed after they were taken. Such a
    /// call was tried again, and may have been quick all the same.
    pub fence_skips: u64,
    /// How many numbers of one key calls may ask for at the same time, those among them whose callers have gone.
    pub waiting_max: u64,
    /// The nodes' accounts and counters. `None` if the product has no accounting, or the run was stopped.
    pub accounting: Option<Accounting>,
    /// The exports at the end. Nothing if the run was stopped.
    pub exported: Exported,
    /// The nodes' messages about tasks of theirs that panicked.
    pub panics: Vec<String>,
    /// The messages about two nodes that lead one term.
    pub two_leaders: Vec<String>,
    /// The findings on gapless keys.
    pub gapless: Findings,
    /// The findings on ids, if ids were asked for.
    pub ids: Findings,
    /// Whether a key has a section of its own.
    pub own_section: fn(&str) -> bool,
}

impl Criteria {
    /// At least as many as there were unclean leader changes.
    pub fn unclean_count(&self) -> u64 {
        let changes = self.unclean_changes.iter();
        changes.map(|change| change.count).sum()
    }

    fn gap_bound(&self) -> GapBound {
        GapBound {
            increment: INCREMENT,
            step: self.step,
            unclean_changes: self.unclean_changes.clone(),
            fence_skips: self.fence_skips,
            lost_max: LOST_MAX,
            slow_ns: SLOW_NS,
        }
    }

    /// The errors in the nodes' accounting, beside the answers that callers saw.
    fn wrong_accounts(&self, history: &History) -> Vec<String> {
        let Some(accounting) = &self.accounting else {
            return Vec::new();
        };
        let taken = gaps::taken(history, &self.gap_bound(), self.own_section);
        let than = Circumstances {
            unclean_changes: self.unclean_count(),
            skipped_max: self.step + self.waiting_max,
        };
        accounting.judge(&taken, than)
    }
}

fn forbidden_gaps(history: &History, criteria: &Criteria) -> Vec<String> {
    let bound = criteria.gap_bound();
    let gaps = gaps::gaps(history, &bound, criteria.own_section).into_iter();
    let forbidden: Vec<_> = gaps.filter(|(_, gap)| gap.missing > gap.allowed).collect();
    let told = forbidden.iter().take(GAPS_TOLD_MAX).map(|(key, gap)| {
        format!(
            "key {key}: {} numbers were skipped; the promise allows {} (step {} for each unclean leader \
             change in between, at most {} numbers whose fence failed, and what failed calls may have burnt)",
            gap.missing, gap.allowed, criteria.step, criteria.fence_skips
        )
    });
    let more = forbidden.len().saturating_sub(GAPS_TOLD_MAX);
    let rest = (more > 0).then(|| format!("{more} more keys skipped too many numbers"));
    told.chain(rest).collect()
}

/// Every final read must have been answered, and not lie below a number that had been acknowledged before.
fn wrong_final_reads(history: &History, final_reads: &[Op]) -> Vec<String> {
    let mut wrong = Vec::new();
    let keys: HashSet<&str> = final_reads.iter().map(|read| read.key.as_str()).collect();
    let mut answered: HashMap<&str, Vec<&Op>> = HashMap::new();
    for op in history.answered().filter(|op| keys.contains(op.key.as_str())) {
        answered.entry(&op.key).or_default().push(op);
    }
    for read in final_reads {
        if !read.is_ok() {
            let (key, node) = (&read.key, read.node);
            wrong.push(format!("the final read of {key} at node {node} failed: {}", read.note));
            continue;
        }
        let of_key = answered.get(read.key.as_str()).into_iter().flatten();
        let above = of_key.filter(|op| op.returned() < read.invoked_ns && op.last > read.last);
        if let Some(highest) = above.max_by_key(|op| op.last) {
            wrong.push(format!(
                "the final read of {} at node {} answered {}, although {} had been acknowledged",
                read.key, read.node, read.last, highest.last
            ));
        }
    }
    wrong
}

/// The events that did not happen, although the run says nothing without them.
fn shortcomings(history: &History, faults: &[Fault], criteria: &Criteria) -> Vec<String> {
    let mut missing = Vec::new();
    let mut require = |count: u64, min: u64, what: &str| {
        if count < min {
            missing.push(format!("{count} {what}; the run needs at least {min}"));
        }
    };
    let answered = history.answered().count() as u64;
    require(answered, criteria.ops_min, "operations were answered");
    let keys = history.keys() as u64;
    require(keys, criteria.keys_min, "keys were answered for");
    require(criteria.changes, criteria.changes_min, "leader changes were seen");
    require(criteria.evicted, criteria.evicted_min, "keys were evicted from the memory");
    let injected: BTreeSet<Nemesis> = faults.iter().map(|fault| fault.nemesis).collect();
    if injected.is_empty() && criteria.nemesis != Nemesis::None {
        missing.push(format!("{:?} was never injected", criteria.nemesis));
    }
    for nemesis in injected {
        let mut of_kind = faults.iter().filter(|fault| fault.nemesis == nemesis);
        if !of_kind.any(|fault| fault.took_effect) {
            missing.push(format!("{nemesis:?} never took effect"));
        }
    }
    // Each of them is another one.
    let events = faults.iter().filter(|fault| fault.nemesis == Nemesis::Pods);
    for event in events.filter(|event| !event.took_effect) {
        missing.push(format!("without effect: {}", event.description));
    }
    for (interface, answered) in history.answered_through() {
        if answered == 0 {
            let name = interface.name();
            missing.push(format!("no operation through {name} was answered"));
        }
    }
    let allocated = history.answered().any(|op| matches!(op.action, Action::Next { .. }));
    if !allocated {
        missing.push("no number was handed out".to_owned());
    }
    missing.extend(criteria.gapless.shortcomings.iter().cloned());
    missing.extend(criteria.ids.shortcomings.iter().cloned());
    missing
}

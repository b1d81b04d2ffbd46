//! The verdict on a run.
//!
//! Three things are kept apart: how an operation ended (the history), whether the harness could do
//! its work (an error of its own), and whether the product kept its promise (the verdict). A run in
//! which the fault never happened proves nothing, and is not a pass.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    process::ExitCode,
};

use serde::Serialize;

use crate::{
    checker,
    history::{Action, History, Op},
    nemesis::{Nemesis, Strike},
};

/// How often a call that failed, or took long, may have been tried again on its way.
const ATTEMPTS_MAX: u64 = 8;
/// From here on a call may have been tried again on its way.
const SLOW_NS: u64 = 50_000_000;

/// The verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "why")]
pub enum Verdict {
    /// The promise was kept under faults that happened.
    Pass,
    /// It was broken.
    Violation(Vec<String>),
    /// Nothing broke it, but too little happened.
    Unknown(Vec<String>),
    /// The harness could not do its work.
    HarnessError(String),
}

impl Verdict {
    /// For scripts: 0 pass, 1 violation, 3 unknown, 4 harness error (2 is a wrong command line).
    pub fn exit(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    /// The same as a number.
    pub fn code(&self) -> u8 {
        match self {
            Verdict::Pass => 0,
            Verdict::Violation(_) => 1,
            Verdict::Unknown(_) => 3,
            Verdict::HarnessError(_) => 4,
        }
    }

    /// In a word.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Violation(_) => "VIOLATION",
            Verdict::Unknown(_) => "unknown",
            Verdict::HarnessError(_) => "harness error",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        let why = match self {
            Verdict::Pass => &[][..],
            Verdict::Violation(why) | Verdict::Unknown(why) => why,
            Verdict::HarnessError(why) => std::slice::from_ref(why),
        };
        why.iter().try_for_each(|why| write!(f, "\n- {why}"))
    }
}

/// What a run must be measured by.
#[derive(Debug, Clone)]
pub struct Measure {
    /// The fault that was to happen.
    pub nemesis: Nemesis,
    /// How many answered operations make a run worth judging.
    pub ops_min: u64,
    /// How many keys they must be for.
    pub keys_min: u64,
    /// How many leader changes do.
    pub changes_min: u64,
    /// The step of the namespaces.
    pub step: u64,
    /// No fewer than there were unclean leader changes.
    pub unclean_changes: u64,
    /// How many leader changes were seen.
    pub changes: u64,
    /// How many numbers the nodes say they skipped since the fence failed after they were taken. A
    /// call that this happened to was tried again, and may have been quick all the same.
    pub fence_skips: u64,
    /// Whether a key has a section of its own.
    pub own_section: fn(&str) -> bool,
}

/// Judges a run.
pub fn judge(history: &History, strikes: &[Strike], finals: &[Op], measure: &Measure) -> Verdict {
    let mut wrong: Vec<String> = Vec::new();
    if let Err(violation) = checker::check_order(history) {
        wrong.push(violation.to_string());
    }
    wrong.extend(final_reads(history, finals));
    wrong.extend(gaps(history, measure));
    for strike in strikes {
        let broken = strike.broken.iter();
        wrong.extend(broken.map(|why| format!("{}: {why}", strike.what)));
    }
    if !wrong.is_empty() {
        return Verdict::Violation(wrong);
    }
    let missing = missing(history, strikes, measure);
    if missing.is_empty() {
        Verdict::Pass
    } else {
        Verdict::Unknown(missing)
    }
}

fn gaps(history: &History, measure: &Measure) -> Vec<String> {
    let found = crate::gaps::gaps(
        history,
        &crate::gaps::GapBound {
            increment: 1,
            step: measure.step,
            unclean_changes: measure.unclean_changes,
            fence_skips: measure.fence_skips,
            attempts_max: ATTEMPTS_MAX,
            slow_ns: SLOW_NS,
        },
        measure.own_section,
    );
    let too_many = found
        .into_iter()
        .filter(|(_, gap)| gap.missing > gap.allowed);
    too_many
        .map(|(key, gap)| {
            format!(
                "key {key}: {} numbers were skipped; the promise allows {} ({} unclean leader \
                 changes at most, step {}, {} numbers whose fence failed, and what failed calls may \
                 have burnt)",
                gap.missing,
                gap.allowed,
                measure.unclean_changes,
                measure.step,
                measure.fence_skips
            )
        })
        .collect()
}

/// Every final read must have been answered, and lie above all that was acknowledged before.
fn final_reads(history: &History, finals: &[Op]) -> Vec<String> {
    let mut wrong = Vec::new();
    let read: HashSet<&str> = finals.iter().map(|last| last.key.as_str()).collect();
    let mut answered: HashMap<&str, Vec<&Op>> = HashMap::new();
    for op in history
        .answered()
        .filter(|op| read.contains(op.key.as_str()))
    {
        answered.entry(&op.key).or_default().push(op);
    }
    for last in finals {
        if !last.is_ok() {
            let (key, node) = (&last.key, last.node);
            wrong.push(format!("final read of {key} at node {node}: {}", last.note));
            continue;
        }
        let of_key = answered.get(last.key.as_str()).into_iter().flatten();
        let before = of_key.filter(|op| op.returned() < last.invoked_ns && op.last > last.last);
        if let Some(above) = before.max_by_key(|op| op.last) {
            wrong.push(format!(
                "final read of {} at node {} answered {}, though {} had been acknowledged",
                last.key, last.node, last.last, above.last
            ));
        }
    }
    wrong
}

/// What did not happen that must have, for the run to say anything.
fn missing(history: &History, strikes: &[Strike], measure: &Measure) -> Vec<String> {
    let mut missing = Vec::new();
    let answered = history.answered().count() as u64;
    if answered < measure.ops_min {
        missing.push(format!(
            "{answered} operations were answered; at least {} are worth judging",
            measure.ops_min
        ));
    }
    let keys = history.keys() as u64;
    if keys < measure.keys_min {
        missing.push(format!(
            "{keys} keys were answered for; at least {} are worth judging",
            measure.keys_min
        ));
    }
    if measure.changes < measure.changes_min {
        missing.push(format!(
            "{} leader changes were seen; at least {} are worth judging",
            measure.changes, measure.changes_min
        ));
    }
    let struck: BTreeSet<Nemesis> = strikes.iter().map(|strike| strike.nemesis).collect();
    if struck.is_empty() && measure.nemesis != Nemesis::None {
        missing.push(format!("{:?} never happened", measure.nemesis));
    }
    for nemesis in struck {
        let mut of_it = strikes.iter().filter(|strike| strike.nemesis == nemesis);
        if !of_it.any(|strike| strike.bit) {
            missing.push(format!("{nemesis:?} never bit"));
        }
    }
    let allocated = history
        .answered()
        .any(|op| matches!(op.action, Action::Next { .. }));
    if !allocated {
        missing.push("no number was handed out".to_owned());
    }
    missing
}

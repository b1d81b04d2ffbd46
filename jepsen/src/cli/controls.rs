//! `ratchet-jepsen controls`: a run for every planted bug.

use std::{collections::BTreeSet, io, path::PathBuf, process::ExitCode, time::Instant};

use clap::Args;
use ratchet_jepsen::{finding::Finding, nemesis::Nemesis, verdict::VerdictKind};
use serde::Deserialize;
use serde_json::Value;

use super::{
    child::{output, run},
    exit::failed,
    names::value,
    side_by_side::{Part, SideBySide, do_each},
};

/// A run for every planted bug.
#[derive(Args)]
pub struct Controls {
    /// The program under test, built with debug assertions: another one can have no planted bug. By default the one beside
    /// this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Run only these controls.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// All connections are over TLS, and callers show a certificate and a token. The ancestor and the authors' formats stay as
    /// they are.
    #[arg(long)]
    secure: bool,
    /// How often each control is tried at most, each time with another seed.
    #[arg(long, default_value_t = 6)]
    tries: u64,
    #[command(flatten)]
    side_by_side: SideBySide,
    /// Where the reports go, one directory for each control.
    #[arg(long, default_value = "jepsen-report/controls")]
    out: PathBuf,
}

/// Holes and accounts are judged when a run is over.
const SHOWS_AT_THE_END: &str = "--seconds=10";

/// A planted bug, the run that catches it, and the finding that the run must have. A violation of another kind may have
/// another cause.
struct Control {
    bug: &'static str,
    finds: Finding,
    nemesis: Nemesis,
    /// The other arguments of the run.
    arguments: &'static [&'static str],
}

/// Controls that take long come first: beside the last control that runs there is nothing left to run.
const CONTROLS: &[Control] = &[
    Control {
        bug: "slow-disk-ends-term",
        finds: Finding::Leadership,
        nemesis: Nemesis::DisksSlow,
        arguments: &[],
    },
    Control {
        bug: "names-not-synced",
        finds: Finding::Node,
        nemesis: Nemesis::DiskNames,
        arguments: &[],
    },
    Control {
        bug: "hung-disk-keeps-term",
        finds: Finding::Leadership,
        nemesis: Nemesis::DiskHangs,
        arguments: &[],
    },
    Control {
        bug: "heartbeats-wait-for-disk",
        finds: Finding::Silence,
        nemesis: Nemesis::DisksSlow,
        arguments: &[],
    },
    Control {
        bug: "no-fence",
        finds: Finding::Order,
        nemesis: Nemesis::PauseLeader,
        arguments: &["--workload=hot-key"],
    },
    Control {
        bug: "fence-before-taking",
        finds: Finding::Order,
        nemesis: Nemesis::PauseLeader,
        arguments: &["--workload=hot-key"],
    },
    Control {
        bug: "lease-not-shortened",
        finds: Finding::Order,
        nemesis: Nemesis::CutInSteps,
        arguments: &["--workload=hot-key"],
    },
    Control {
        bug: "no-vote-refusal",
        finds: Finding::Order,
        nemesis: Nemesis::RestartInLease,
        arguments: &["--workload=reads"],
    },
    Control {
        bug: "chunk-from-local-read",
        finds: Finding::Order,
        nemesis: Nemesis::KillLeader,
        arguments: &["--workload=hot-key"],
    },
    Control {
        bug: "epoch-not-counted",
        finds: Finding::Order,
        nemesis: Nemesis::KillLeader,
        arguments: &["--workload=many-keys", "--keys=2000"],
    },
    Control {
        bug: "lease-from-pipelined-acknowledgements",
        finds: Finding::Order,
        nemesis: Nemesis::LateAnswers,
        arguments: &["--workload=hot-key"],
    },
    Control {
        bug: "open-during-transfer",
        finds: Finding::Order,
        nemesis: Nemesis::TransferSlow,
        arguments: &["--workload=hot-key"],
    },
    Control {
        bug: "hand-off-before-empty",
        finds: Finding::Order,
        nemesis: Nemesis::Transfer,
        arguments: &["--workload=hot-key"],
    },
    Control {
        bug: "stranger-takes-over",
        finds: Finding::Order,
        nemesis: Nemesis::Transfer,
        arguments: &["--workload=reads"],
    },
    Control {
        bug: "page-changes-not-sent",
        finds: Finding::Order,
        nemesis: Nemesis::Transfer,
        arguments: &["--workload=sections"],
    },
    Control {
        bug: "name-changes-not-sent",
        finds: Finding::Order,
        nemesis: Nemesis::Transfer,
        arguments: &["--workload=names"],
    },
    Control {
        bug: "current-of-page-at-floor",
        finds: Finding::Order,
        nemesis: Nemesis::None,
        arguments: &["--workload=reads"],
    },
    Control {
        bug: "ceiling-missing-from-snapshot",
        finds: Finding::Order,
        nemesis: Nemesis::SnapshotStorm,
        arguments: &[],
    },
    Control {
        bug: "raise-before-commit",
        finds: Finding::Order,
        nemesis: Nemesis::KillLeader,
        arguments: &["--workload=floors"],
    },
    Control {
        bug: "write-not-synced",
        finds: Finding::Order,
        nemesis: Nemesis::PowerCut,
        arguments: &[],
    },
    Control {
        bug: "gapless-answered-before-commit",
        finds: Finding::Gapless,
        nemesis: Nemesis::PauseLeader,
        arguments: &["--workload=hot-key"],
    },
    Control {
        bug: "request-id-forgotten",
        finds: Finding::Gapless,
        nemesis: Nemesis::None,
        arguments: &["--workload=hot-key"],
    },
    Control {
        bug: "retry-window-ignored",
        finds: Finding::Gapless,
        nemesis: Nemesis::KillLeader,
        arguments: &["--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "late-copy-taken",
        finds: Finding::Gapless,
        nemesis: Nemesis::PartitionLeader,
        arguments: &["--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "lost-call-asked-again",
        finds: Finding::Gapless,
        nemesis: Nemesis::KillLeader,
        arguments: &["--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "gapless-tombstone-forgets",
        finds: Finding::Gapless,
        nemesis: Nemesis::None,
        arguments: &["--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "step-in-memory-stays",
        // The node compares the record in memory with that in the table, and stops before a caller sees anything.
        finds: Finding::Panic,
        nemesis: Nemesis::KillLeader,
        arguments: &["--workload=hot-key"],
    },
    Control {
        bug: "release-skips-rest",
        finds: Finding::Gap,
        nemesis: Nemesis::None,
        arguments: &["--workload=many-keys", "--key-idle-ms=100", SHOWS_AT_THE_END],
    },
    Control {
        bug: "export-tells-floor",
        finds: Finding::Export,
        nemesis: Nemesis::None,
        arguments: &["--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "skips-not-accounted",
        finds: Finding::Accounting,
        nemesis: Nemesis::KillLeader,
        arguments: &["--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "term-opens-late",
        finds: Finding::Silence,
        nemesis: Nemesis::KillLeader,
        arguments: &["--workload=hot-key"],
    },
    Control {
        bug: "worker-reused-before-ceiling",
        finds: Finding::Ids,
        nemesis: Nemesis::None,
        arguments: &["--workload=ids"],
    },
    Control {
        bug: "ceiling-not-waited-for",
        finds: Finding::Ids,
        nemesis: Nemesis::None,
        arguments: &["--workload=ids"],
    },
    Control {
        bug: "worker-changed-within-its-time",
        finds: Finding::Ids,
        nemesis: Nemesis::None,
        arguments: &["--workload=ids"],
    },
    Control {
        bug: "counter-laps",
        finds: Finding::Ids,
        nemesis: Nemesis::None,
        arguments: &["--workload=ids"],
    },
];

impl Control {
    /// Whether nothing else may run beside it. A busy machine causes silence, too.
    fn needs_machine(&self) -> bool {
        self.nemesis.needs_machine() || self.finds == Finding::Silence
    }
}

impl Controls {
    /// Runs all controls.
    pub fn main(self) -> ExitCode {
        match self.table() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(1),
            Err(error) => failed(error),
        }
    }

    /// Whether all were caught.
    fn table(self) -> io::Result<bool> {
        println!("| control | run | caught after, s | all, s |");
        println!("| --- | --- | --- | --- |");
        let binary = self.binary.as_ref().map(|binary| format!("--binary={}", binary.display()));
        let caught = do_each(CONTROLS, self.side_by_side, Control::needs_machine, |control| {
            let bug = format!("--bug={}", control.bug);
            let secure = self.secure.then(|| "--secure".to_owned());
            let program: Vec<String> =
                [bug].into_iter().chain(binary.clone()).chain(secure).collect();
            let nemesis = format!("--nemesis={}", value(control.nemesis));
            let arguments: Vec<&str> =
                [nemesis.as_str()].into_iter().chain(control.arguments.iter().copied()).collect();
            self.run_row((control.bug, control.finds), &program, &arguments)
        })?;
        let mut all = caught.into_iter().all(|caught| caught);
        if self.side_by_side.part == Part::Alone {
            return Ok(all);
        }
        let ancestor = ["--nemesis=none", "--workload=hot-key"];
        let product = ["--product=max-wins".to_owned()];
        all &= self.run_row(("max-wins", Finding::Order), &product, &ancestor)?;
        all &= self.row(("authors-formats", Finding::Ids), "authors-formats", &[], &[])?;
        Ok(all)
    }

    /// The row of a control that is a run of a program under faults.
    fn run_row(
        &self, row: (&str, Finding), program: &[String], arguments: &[&str],
    ) -> io::Result<bool> {
        let mut hidden = program.to_vec();
        hidden.push("--until-violation".to_owned());
        if !arguments.iter().any(|argument| argument.starts_with("--seconds=")) {
            hidden.push("--seconds=30".to_owned());
        }
        self.row(row, "run", arguments, &hidden)
    }

    /// Whether a control was caught, by the finding that it must cause, or is not to be run. The row does not show the
    /// `hidden` arguments.
    fn row(
        &self, (name, finds): (&str, Finding), subcommand: &str, arguments: &[&str],
        hidden: &[String],
    ) -> io::Result<bool> {
        if !self.only.is_empty() && !self.only.iter().any(|only| only == name) {
            return Ok(true);
        }
        let began = Instant::now();
        let shown = match arguments {
            [] => subcommand.to_owned(),
            _ => arguments.join(" "),
        };
        for seed in 1..=self.tries {
            let arguments = arguments.iter().map(|argument| (*argument).to_owned());
            let mut arguments: Vec<String> = arguments.chain(hidden.iter().cloned()).collect();
            arguments.push(format!("--seed={seed}"));
            let out = self.out.join(name);
            let (verdict, summary) = run(subcommand, &arguments, &out)?;
            match verdict {
                VerdictKind::Violation if !has_found(&summary, finds) => {
                    eprintln!("{name}: seed {seed} found no {finds:?}:\n{}", output(&out));
                }
                VerdictKind::Violation => {
                    let took = began.elapsed().as_secs_f64();
                    // A violation that shows in the verdict only was caught at the end.
                    let caught = summary["caught_after_s"].as_f64().unwrap_or(took);
                    println!("| {name} | `{shown} --seed={seed}` | {caught:.1} | {took:.1} |");
                    return Ok(true);
                }
                VerdictKind::Pass | VerdictKind::Unknown => {}
                VerdictKind::HarnessError => {
                    let word = verdict.word();
                    println!("| {name} | `{shown}` | {word}, see {} | |", out.display());
                    eprintln!("{name}:\n{}", output(&out));
                    return Ok(false);
                }
            }
        }
        println!("| {name} | `{shown}` | no {finds:?} FOUND in {} tries | |", self.tries);
        Ok(false)
    }
}

/// Whether the summary of a run names a finding.
fn has_found(summary: &Value, finding: Finding) -> bool {
    let findings = BTreeSet::<Finding>::deserialize(&summary["findings"]);
    findings.is_ok_and(|findings| findings.contains(&finding))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_control_is_caught_by_what_it_must_cause_alone() {
        let summary = json!({"verdict": "VIOLATION", "findings": ["order", "two-leaders"]});
        assert!(has_found(&summary, Finding::Order));
        assert!(has_found(&summary, Finding::TwoLeaders));
        assert!(!has_found(&summary, Finding::Silence));
        assert!(!has_found(&Value::Null, Finding::Order));
        assert!(!has_found(&json!({"findings": ["disorder"]}), Finding::Order));
    }
}

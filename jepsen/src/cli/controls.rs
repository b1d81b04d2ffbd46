//! `ratchet-jepsen controls`: a run for every planted bug.

use std::{collections::BTreeSet, io, path::PathBuf, process::ExitCode, time::Instant};

use clap::Args;
use ratchet_jepsen::{finding::Finding, verdict::VerdictKind};
use serde::Deserialize;
use serde_json::Value;

use super::{
    child::{output, run},
    exit::failed,
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
    /// Where the reports go, one directory for each control.
    #[arg(long, default_value = "jepsen-report/controls")]
    out: PathBuf,
}

/// Holes and books are judged when a run is over.
const SHOWS_AT_THE_END: &str = "--seconds=10";

/// A planted bug, the arguments of the run that catches it, and what must be found then. A violation of another kind may have
/// another cause.
struct Control {
    bug: &'static str,
    finds: Finding,
    arguments: &'static [&'static str],
}

const CONTROLS: &[Control] = &[
    Control {
        bug: "no-fence",
        finds: Finding::Order,
        arguments: &["--nemesis=pause-leader", "--workload=hot-key"],
    },
    Control {
        bug: "fence-before-taking",
        finds: Finding::Order,
        arguments: &["--nemesis=pause-leader", "--workload=hot-key"],
    },
    Control {
        bug: "lease-not-shortened",
        finds: Finding::Order,
        arguments: &["--nemesis=cut-in-steps", "--workload=hot-key"],
    },
    Control {
        bug: "no-vote-refusal",
        finds: Finding::Order,
        // It shows only if the restarted voter elects somebody within the rest of the lease: after one fault in ten, and
        // hardly ever under the load of the usual workload.
        arguments: &["--nemesis=restart-in-lease", "--workload=reads", "--seconds=60"],
    },
    Control {
        bug: "chunk-from-local-read",
        finds: Finding::Order,
        arguments: &["--nemesis=kill-leader", "--workload=hot-key"],
    },
    Control {
        bug: "lift-not-counted",
        finds: Finding::Order,
        arguments: &["--nemesis=kill-leader", "--workload=many-keys", "--keys=2000"],
    },
    Control {
        bug: "lease-from-pipelined-acknowledgements",
        finds: Finding::Order,
        arguments: &["--nemesis=late-answers", "--workload=hot-key"],
    },
    Control {
        bug: "open-during-transfer",
        finds: Finding::Order,
        arguments: &["--nemesis=transfer-slow", "--workload=hot-key"],
    },
    Control {
        bug: "bequest-before-empty",
        finds: Finding::Order,
        arguments: &["--nemesis=transfer", "--workload=hot-key"],
    },
    Control {
        bug: "stranger-inherits",
        finds: Finding::Order,
        arguments: &["--nemesis=transfer", "--workload=reads"],
    },
    Control {
        bug: "page-changes-not-sent",
        finds: Finding::Order,
        arguments: &["--nemesis=transfer", "--workload=sections"],
    },
    Control {
        bug: "name-changes-not-sent",
        finds: Finding::Order,
        arguments: &["--nemesis=transfer", "--workload=names"],
    },
    Control {
        bug: "current-of-page-at-floor",
        finds: Finding::Order,
        arguments: &["--nemesis=none", "--workload=reads"],
    },
    Control {
        bug: "ceiling-missing-from-snapshot",
        finds: Finding::Order,
        arguments: &["--nemesis=snapshot-storm"],
    },
    Control {
        bug: "raise-before-commit",
        finds: Finding::Order,
        arguments: &["--nemesis=kill-leader", "--workload=floors"],
    },
    Control { bug: "write-not-synced", finds: Finding::Order, arguments: &["--nemesis=power-cut"] },
    Control { bug: "names-not-synced", finds: Finding::Node, arguments: &["--nemesis=disk-names"] },
    Control {
        bug: "gapless-answered-before-commit",
        finds: Finding::Gapless,
        arguments: &["--nemesis=pause-leader", "--workload=hot-key"],
    },
    Control {
        bug: "request-id-forgotten",
        finds: Finding::Gapless,
        arguments: &["--nemesis=none", "--workload=hot-key"],
    },
    Control {
        bug: "retry-window-ignored",
        finds: Finding::Gapless,
        arguments: &["--nemesis=kill-leader", "--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "late-copy-taken",
        finds: Finding::Gapless,
        arguments: &["--nemesis=partition-leader", "--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "lost-call-asked-again",
        finds: Finding::Gapless,
        arguments: &["--nemesis=kill-leader", "--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "gapless-tombstone-forgets",
        finds: Finding::Gapless,
        arguments: &["--nemesis=none", "--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "step-in-memory-stays",
        finds: Finding::Order,
        arguments: &["--nemesis=kill-leader", "--workload=hot-key"],
    },
    Control {
        bug: "release-skips-rest",
        finds: Finding::Gap,
        arguments: &[
            "--nemesis=none",
            "--workload=many-keys",
            "--key-idle-ms=100",
            SHOWS_AT_THE_END,
        ],
    },
    Control {
        bug: "export-tells-floor",
        finds: Finding::Export,
        arguments: &["--nemesis=none", "--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "skips-not-booked",
        finds: Finding::Books,
        arguments: &["--nemesis=kill-leader", "--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "term-opens-late",
        finds: Finding::Silence,
        arguments: &["--nemesis=kill-leader", "--workload=hot-key"],
    },
    Control {
        bug: "worker-reused-before-ceiling",
        finds: Finding::Ids,
        arguments: &["--nemesis=none", "--workload=ids"],
    },
    Control {
        bug: "ceiling-not-waited-for",
        finds: Finding::Ids,
        arguments: &["--nemesis=none", "--workload=ids"],
    },
    Control {
        bug: "worker-changed-within-its-time",
        finds: Finding::Ids,
        arguments: &["--nemesis=none", "--workload=ids"],
    },
    Control {
        bug: "counter-laps",
        finds: Finding::Ids,
        arguments: &["--nemesis=none", "--workload=ids"],
    },
    Control {
        bug: "slow-disk-ends-term",
        finds: Finding::Leadership,
        arguments: &["--nemesis=disks-slow"],
    },
    Control {
        bug: "heartbeats-wait-for-disk",
        finds: Finding::Silence,
        arguments: &["--nemesis=disks-slow"],
    },
    Control {
        bug: "hung-disk-keeps-term",
        finds: Finding::Leadership,
        arguments: &["--nemesis=disk-hangs"],
    },
];

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
        let mut all = true;
        for control in CONTROLS {
            let bug = format!("--bug={}", control.bug);
            let secure = self.secure.then(|| "--secure".to_owned());
            let program: Vec<String> =
                [bug].into_iter().chain(binary.clone()).chain(secure).collect();
            let row = (control.bug, control.finds);
            all &= self.run_row(row, &program, control.arguments)?;
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

    /// Whether a control was caught, by what it must cause, or is not to be run. The row does not show the `hidden` arguments.
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

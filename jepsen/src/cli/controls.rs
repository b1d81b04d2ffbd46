//! `ratchet-jepsen controls`: a run for every planted bug.

use std::{io, path::PathBuf, process::ExitCode, time::Instant};

use clap::Args;
use ratchet_jepsen::verdict::VerdictKind;

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
    /// How often each control is tried at most, each time with another seed.
    #[arg(long, default_value_t = 6)]
    tries: u64,
    /// Where the reports go, one directory for each control.
    #[arg(long, default_value = "jepsen-report/controls")]
    out: PathBuf,
}

/// Holes and books are judged when a run is over.
const SHOWS_AT_THE_END: &str = "--seconds=10";

/// A planted bug, and the arguments of the run that catches it.
struct Control {
    bug: &'static str,
    arguments: &'static [&'static str],
}

const CONTROLS: &[Control] = &[
    Control { bug: "no-fence", arguments: &["--nemesis=pause-leader", "--workload=hot-key"] },
    Control {
        bug: "fence-before-taking",
        arguments: &["--nemesis=pause-leader", "--workload=hot-key"],
    },
    Control {
        bug: "lease-not-shortened",
        arguments: &["--nemesis=cut-in-steps", "--workload=hot-key"],
    },
    Control {
        bug: "no-vote-refusal",
        // It shows only if the restarted voter elects somebody within the rest of the lease: after one fault in ten, and
        // hardly ever under the load of the usual workload.
        arguments: &["--nemesis=restart-in-lease", "--workload=reads", "--seconds=60"],
    },
    Control {
        bug: "chunk-from-local-read",
        arguments: &["--nemesis=kill-leader", "--workload=hot-key"],
    },
    Control {
        bug: "lift-not-counted",
        arguments: &["--nemesis=kill-leader", "--workload=many-keys", "--keys=2000"],
    },
    Control {
        bug: "lease-from-pipelined-acknowledgements",
        arguments: &["--nemesis=late-answers", "--workload=hot-key"],
    },
    Control {
        bug: "open-during-transfer",
        arguments: &["--nemesis=transfer-slow", "--workload=hot-key"],
    },
    Control {
        bug: "bequest-before-empty",
        arguments: &["--nemesis=transfer", "--workload=hot-key"],
    },
    Control { bug: "stranger-inherits", arguments: &["--nemesis=transfer", "--workload=reads"] },
    Control {
        bug: "page-changes-not-sent",
        arguments: &["--nemesis=transfer", "--workload=sections"],
    },
    Control {
        bug: "name-changes-not-sent",
        arguments: &["--nemesis=transfer", "--workload=names"],
    },
    Control { bug: "current-of-page-at-floor", arguments: &["--nemesis=none", "--workload=reads"] },
    Control { bug: "ceiling-missing-from-snapshot", arguments: &["--nemesis=snapshot-storm"] },
    Control {
        bug: "raise-before-commit",
        arguments: &["--nemesis=kill-leader", "--workload=floors"],
    },
    Control { bug: "write-not-synced", arguments: &["--nemesis=power-cut"] },
    Control { bug: "names-not-synced", arguments: &["--nemesis=disk-names"] },
    Control {
        bug: "gapless-answered-before-commit",
        arguments: &["--nemesis=pause-leader", "--workload=hot-key"],
    },
    Control { bug: "request-id-forgotten", arguments: &["--nemesis=none", "--workload=hot-key"] },
    Control {
        bug: "retry-window-ignored",
        arguments: &["--nemesis=kill-leader", "--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "late-copy-taken",
        arguments: &["--nemesis=partition-leader", "--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "lost-call-asked-again",
        arguments: &["--nemesis=kill-leader", "--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "gapless-tombstone-forgets",
        arguments: &["--nemesis=none", "--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "step-in-memory-stays",
        arguments: &["--nemesis=kill-leader", "--workload=hot-key"],
    },
    Control {
        bug: "release-skips-rest",
        arguments: &[
            "--nemesis=none",
            "--workload=many-keys",
            "--key-idle-ms=100",
            SHOWS_AT_THE_END,
        ],
    },
    Control {
        bug: "export-tells-floor",
        arguments: &["--nemesis=none", "--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control {
        bug: "skips-not-booked",
        arguments: &["--nemesis=kill-leader", "--workload=hot-key", SHOWS_AT_THE_END],
    },
    Control { bug: "term-opens-late", arguments: &["--nemesis=kill-leader", "--workload=hot-key"] },
    Control {
        bug: "worker-reused-before-ceiling",
        arguments: &["--nemesis=none", "--workload=ids"],
    },
    Control { bug: "ceiling-not-waited-for", arguments: &["--nemesis=none", "--workload=ids"] },
    Control {
        bug: "worker-changed-within-its-time",
        arguments: &["--nemesis=none", "--workload=ids"],
    },
    Control { bug: "counter-laps", arguments: &["--nemesis=none", "--workload=ids"] },
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
            let program: Vec<String> = [bug].into_iter().chain(binary.clone()).collect();
            all &= self.run_row(control.bug, &program, control.arguments)?;
        }
        let ancestor = ["--nemesis=none", "--workload=hot-key"];
        all &= self.run_row("max-wins", &["--product=max-wins".to_owned()], &ancestor)?;
        all &= self.row("authors-formats", "authors-formats", &[], &[])?;
        Ok(all)
    }

    /// The row of a control that is a run of a program under faults.
    fn run_row(&self, name: &str, program: &[String], arguments: &[&str]) -> io::Result<bool> {
        let mut hidden = program.to_vec();
        hidden.push("--until-violation".to_owned());
        if !arguments.iter().any(|argument| argument.starts_with("--seconds=")) {
            hidden.push("--seconds=30".to_owned());
        }
        self.row(name, "run", arguments, &hidden)
    }

    /// Whether a control was caught, or is not to be run. The row does not show the `hidden` arguments.
    fn row(
        &self, name: &str, subcommand: &str, arguments: &[&str], hidden: &[String],
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
        println!("| {name} | `{shown}` | NOT CAUGHT in {} tries | |", self.tries);
        Ok(false)
    }
}

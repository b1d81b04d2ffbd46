//! `ratchet-jepsen controls`.

use std::{env, io, path::PathBuf, process::ExitCode, time::Instant};

use super::{
    child::{UNKNOWN, account, run, word},
    exit::failed,
};
use clap::Args;

/// A run for every planted bug.
#[derive(Args)]
pub struct Controls {
    /// The program with planted bugs; `ratchet-planted` beside this program where absent.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Only these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// How often each may be tried, each time with another seed.
    #[arg(long, default_value_t = 3)]
    tries: u64,
    /// Where the reports go, one directory each.
    #[arg(long, default_value = "jepsen-report/controls")]
    out: PathBuf,
}

/// A bug, and the run that catches it.
struct Control {
    bug: &'static str,
    arguments: &'static [&'static str],
}

const CONTROLS: &[Control] = &[
    Control {
        bug: "no-fence",
        arguments: &["--nemesis=pause-leader", "--workload=hot-key"],
    },
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
        arguments: &["--nemesis=restart-in-lease", "--workload=hot-key"],
    },
    Control {
        bug: "chunk-from-local-read",
        arguments: &["--nemesis=kill-leader", "--workload=hot-key"],
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
        bug: "ceiling-missing-from-snapshot",
        arguments: &["--nemesis=snapshot-storm"],
    },
    Control {
        bug: "write-not-synced",
        arguments: &["--nemesis=power-cut"],
    },
    Control {
        bug: "names-not-synced",
        arguments: &["--nemesis=disk-names"],
    },
];

impl Controls {
    /// Runs them all.
    pub fn main(self) -> ExitCode {
        match self.table() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(1),
            Err(error) => failed(error),
        }
    }

    fn table(self) -> io::Result<bool> {
        println!("| control | run | caught after, s | all, s |");
        println!("| --- | --- | --- | --- |");
        let planted = env::current_exe()?.with_file_name("ratchet-planted");
        let binary = self.binary.clone().unwrap_or(planted);
        let binary = format!("--binary={}", binary.display());
        let mut all = true;
        for control in CONTROLS {
            let named = [format!("--bug={}", control.bug), binary.clone()];
            all &= self.row(control.bug, &named, control.arguments)?;
        }
        let ancestor = ["--nemesis=none".to_owned(), "--workload=hot-key".to_owned()];
        all &= self.row("max-wins", &["--product=max-wins".to_owned()], &ancestor)?;
        Ok(all)
    }

    fn row(&self, name: &str, named: &[String], how: &[impl AsRef<str>]) -> io::Result<bool> {
        if !self.only.is_empty() && !self.only.iter().any(|only| only == name) {
            return Ok(true);
        }
        let began = Instant::now();
        let how: Vec<String> = how.iter().map(|word| word.as_ref().to_owned()).collect();
        for seed in 1..=self.tries {
            let mut arguments = how.clone();
            arguments.extend_from_slice(named);
            arguments.extend([format!("--seed={seed}"), "--seconds=30".to_owned()]);
            arguments.push("--until-violation".to_owned());
            let (code, summary) = run(&arguments, &self.out.join(name))?;
            if code == 1 {
                let how = how.join(" ");
                let took = began.elapsed().as_secs_f64();
                // What broke the promise only at the end was caught then.
                let caught = summary["caught_after_s"].as_f64().unwrap_or(took);
                println!("| {name} | `{how} --seed={seed}` | {caught:.1} | {took:.1} |");
                return Ok(true);
            }
            if code != 0 && code != UNKNOWN {
                let out = self.out.join(name);
                println!(
                    "| {name} | `{}` | {}, see {} | |",
                    how.join(" "),
                    word(code),
                    out.display()
                );
                eprintln!("{name}:\n{}", account(&out));
                return Ok(false);
            }
        }
        println!(
            "| {name} | `{}` | NOT CAUGHT in {} tries | |",
            how.join(" "),
            self.tries
        );
        Ok(false)
    }
}

//! `ratchet-jepsen matrix` and `controls`: many runs, each in a process and namespaces of its own.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use clap::{Args, ValueEnum};
use ratchet_jepsen::{cluster::Fence, nemesis::Nemesis, workload::Workload};
use serde_json::Value;

/// A run of every nemesis.
#[derive(Args)]
pub struct Matrix {
    /// For how long the faults of each run go on.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// For how long those of the composed run do.
    #[arg(long, default_value_t = 300)]
    composed_seconds: u64,
    /// What all chance of the harness comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Nemesis>,
    /// The program under test; the one beside this program where absent.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Where the reports go, one directory each.
    #[arg(long, default_value = "jepsen-report")]
    out: PathBuf,
}

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

/// One run's arguments, and where it writes.
fn run(arguments: &[String], out: &Path) -> io::Result<(u8, Value)> {
    fs::create_dir_all(out)?;
    let log = fs::File::create(out.join("progress.log"))?;
    let status = Command::new(env::current_exe()?)
        .arg("run")
        .args(arguments)
        .arg(format!("--out={}", out.display()))
        .stdin(Stdio::null())
        .stdout(fs::File::create(out.join("verdict.txt"))?)
        .stderr(log)
        .status()?;
    let summary = fs::read(out.join("summary.json")).ok();
    let summary = summary.and_then(|text| serde_json::from_slice(&text).ok());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok((code.unwrap_or(u8::MAX), summary.unwrap_or_default()))
}

const UNKNOWN: u8 = 3;
/// How many keys a run has that is to show what many keys do.
const MANY_KEYS: u64 = 200_000;

fn word(code: u8) -> &'static str {
    match code {
        0 => "pass",
        1 => "VIOLATION",
        UNKNOWN => "unknown",
        _ => "harness error",
    }
}

fn cell(summary: &Value, field: &str) -> String {
    match &summary[field] {
        Value::Null => "-".to_owned(),
        value => value.to_string(),
    }
}

impl Matrix {
    /// Runs them all.
    pub fn main(self) -> ExitCode {
        match self.table() {
            Ok(code) => ExitCode::from(code),
            Err(error) => super::failed(error),
        }
    }

    fn table(self) -> io::Result<u8> {
        println!(
            "| nemesis | fence | answered | leader changes | faults (bit) | longest outage, ms | verdict |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- |");
        let mut worst = 0;
        for nemesis in Nemesis::value_variants() {
            if !self.only.is_empty() && !self.only.contains(nemesis) {
                continue;
            }
            // The clocks are part of one fence's argument and of none of the other's; and under the
            // other, all answers wait.
            let fences = match nemesis {
                Nemesis::ClockRate
                | Nemesis::PeersCut
                | Nemesis::PauseLeader
                | Nemesis::SlowReader => &[Fence::Lease, Fence::Quorum][..],
                _ => &[Fence::Lease][..],
            };
            for fence in fences {
                let code = self.row(*nemesis, *fence, None)?;
                worst = worse(worst, code);
            }
            if *nemesis == Nemesis::KillLeader {
                for workload in [Workload::ManyKeys, Workload::Skewed] {
                    let code = self.row(*nemesis, Fence::Lease, Some(workload))?;
                    worst = worse(worst, code);
                }
            }
        }
        Ok(worst)
    }

    /// One run, of [`MANY_KEYS`] keys where a workload is named.
    fn row(&self, nemesis: Nemesis, fence: Fence, many: Option<Workload>) -> io::Result<u8> {
        let (name, fence) = (value(nemesis), value(fence));
        let (shown, dir) = match many {
            None => (name.clone(), format!("{name}-{fence}")),
            Some(workload) => {
                let workload = value(workload);
                (
                    format!("{name}, {MANY_KEYS} keys, {workload}"),
                    format!("{name}-{fence}-{workload}"),
                )
            }
        };
        let seconds = match nemesis {
            Nemesis::Composed => self.composed_seconds,
            _ => self.seconds,
        };
        let out = self.out.join(dir);
        let arguments = |seed: u64, seconds: u64| {
            let mut arguments = vec![
                format!("--nemesis={name}"),
                format!("--fence={fence}"),
                format!("--seconds={seconds}"),
                format!("--seed={seed}"),
            ];
            if nemesis == Nemesis::Composed && seconds >= 300 {
                arguments.extend(["--ops-min=100000".to_owned(), "--changes-min=30".to_owned()]);
            }
            if let Some(workload) = many {
                let workload = value(workload);
                arguments.push(format!("--workload={workload}"));
                arguments.push(format!("--keys={MANY_KEYS}"));
            }
            let binary = self.binary.iter();
            arguments.extend(binary.map(|binary| format!("--binary={}", binary.display())));
            arguments
        };
        let (mut code, mut summary) = run(&arguments(self.seed, seconds), &out)?;
        if code == UNKNOWN {
            // Too little happened: once more, with other faults, for twice as long.
            (code, summary) = run(&arguments(self.seed + 1, 2 * seconds), &out)?;
        }
        let of = |field| cell(&summary, field);
        println!(
            "| {shown} | {fence} | {} | {} | {} ({}) | {} | {} |",
            of("answered"),
            of("leader_changes"),
            of("strikes"),
            of("bit"),
            of("longest_outage_ms"),
            word(code)
        );
        if code != 0 {
            // Where the report is thrown away, this is all that is left.
            eprintln!("{shown}, {fence}:\n{}", account(&out));
        }
        Ok(code)
    }
}

/// What a run said: its verdict, and its progress with the errors of the harness.
fn account(out: &Path) -> String {
    let files = ["verdict.txt", "progress.log"].map(|name| {
        let path = out.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| format!("{}: {error}", path.display()))
    });
    files.concat()
}

/// A violation is worse than a harness error, which is worse than not knowing.
fn worse(one: u8, other: u8) -> u8 {
    let rank = |code: u8| match code {
        0 => 0,
        UNKNOWN => 1,
        1 => 3,
        _ => 2,
    };
    if rank(other) > rank(one) { other } else { one }
}

fn value(variant: impl ValueEnum) -> String {
    let possible = variant.to_possible_value();
    possible.map_or_else(String::new, |possible| possible.get_name().to_owned())
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
            Err(error) => super::failed(error),
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

//! `ratchet-jepsen matrix`.

use std::{io, path::PathBuf, process::ExitCode};

use super::{
    child::{UNKNOWN, account, run, word},
    exit::failed,
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

/// How many keys a run has that is to show what many keys do.
const MANY_KEYS: u64 = 200_000;

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
            Err(error) => failed(error),
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

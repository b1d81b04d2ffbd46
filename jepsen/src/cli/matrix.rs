//! `ratchet-jepsen matrix`: a run of every nemesis.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};
use ratchet_jepsen::{cluster::Fence, nemesis::Nemesis, verdict::VerdictKind, workload::Workload};
use serde_json::Value;

use super::{
    child::{output, run},
    exit::failed,
    names::value,
    side_by_side::{SideBySide, do_each},
};

/// How many keys the runs with many keys have.
const MANY_KEYS: u64 = 200_000;
/// The keys of a workload under a limit: enough of them for some to be evicted in a short run.
const LIMITED_KEYS: u64 = 20_000;
/// The nemeses that run with many keys, too: the cost of a leader change depends on their number, and may skip nothing if it
/// was graceful.
const MANY_KEYS_TOO: [Nemesis; 3] = [Nemesis::KillLeader, Nemesis::Transfer, Nemesis::Rolling];
/// The nemeses that run under both fences: clocks are part of the argument of one fence only, and under the
/// other fence all answers wait for a majority.
const BOTH_FENCES: [Nemesis; 4] =
    [Nemesis::ClockRate, Nemesis::PeersCut, Nemesis::PauseLeader, Nemesis::SlowReader];
/// The nemeses that run with ids, too: makers that go, clocks that jump, and makers that reach no leader.
const WITH_IDS: [Nemesis; 4] =
    [Nemesis::KillLeader, Nemesis::PartitionHalves, Nemesis::WallClock, Nemesis::WrongClocks];
/// A composed run that takes this long must answer 100 000 operations and change the leader 30 times.
const LONG_SECONDS: u64 = 300;

/// A run of every nemesis.
#[derive(Args)]
pub struct Matrix {
    /// For how long each run injects faults.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// For how long the composed run injects faults.
    #[arg(long, default_value_t = 300)]
    composed_seconds: u64,
    /// The seed of all random choices of the harness.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only these nemeses.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Nemesis>,
    /// All connections are over TLS, and callers show a certificate and a token.
    #[arg(long)]
    secure: bool,
    #[command(flatten)]
    side_by_side: SideBySide,
    /// The program under test; by default the one beside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Where the reports go, one directory for each run.
    #[arg(long, default_value = "jepsen-report")]
    out: PathBuf,
}

/// One run of the matrix.
struct Row {
    nemesis: Nemesis,
    fence: Fence,
    /// Instead of the usual one. All but `ids` have [`MANY_KEYS`] keys, or [`LIMITED_KEYS`] under a limit.
    workload: Option<Workload>,
    /// The limit of the leader's memory under which keys come and go.
    limit: Option<&'static str>,
}

impl Row {
    /// The nemesis as the table shows it.
    fn name(&self) -> String {
        let nemesis = value(self.nemesis);
        if let Some(limit) = self.limit {
            let workload = self.workload.map(|workload| format!(", {}", value(workload)));
            return format!("{nemesis}, {limit}{}", workload.unwrap_or_default());
        }
        match self.workload {
            None => nemesis,
            Some(Workload::Ids) => format!("{nemesis}, {}", value(Workload::Ids)),
            Some(workload) => format!("{nemesis}, {MANY_KEYS} keys, {}", value(workload)),
        }
    }

    /// Whether nothing else may run beside it. With very many keys a run uses all of the processor, and numbers must flow again
    /// within a second all the same.
    fn needs_machine(&self) -> bool {
        self.nemesis.needs_machine() || self.keys() == Some(MANY_KEYS)
    }

    /// How many keys it has, unless as many as usual.
    fn keys(&self) -> Option<u64> {
        match self.workload {
            None | Some(Workload::Ids) => None,
            Some(_) if self.limit.is_some() => Some(LIMITED_KEYS),
            Some(_) => Some(MANY_KEYS),
        }
    }

    fn dir(&self) -> String {
        let dir = format!("{}-{}", value(self.nemesis), value(self.fence));
        let dir = self.limit.map_or(dir.clone(), |limit| format!("{dir}-{limit}"));
        match self.workload {
            None => dir,
            Some(workload) => format!("{dir}-{}", value(workload)),
        }
    }

    fn arguments(&self, seed: u64, seconds: u64, binary: Option<&Path>) -> Vec<String> {
        let mut arguments = vec![
            format!("--nemesis={}", value(self.nemesis)),
            format!("--fence={}", value(self.fence)),
            format!("--seconds={seconds}"),
            format!("--seed={seed}"),
        ];
        if self.nemesis == Nemesis::Composed && seconds >= LONG_SECONDS {
            arguments.extend(["--ops-min=100000".to_owned(), "--changes-min=30".to_owned()]);
        }
        if let Some(workload) = self.workload {
            arguments.push(format!("--workload={}", value(workload)));
        }
        arguments.extend(self.keys().map(|keys| format!("--keys={keys}")));
        arguments.extend(self.limit.map(|limit| format!("--{limit}")));
        arguments.extend(binary.map(|binary| format!("--binary={}", binary.display())));
        arguments
    }
}

impl Matrix {
    /// Runs all rows. The exit code is that of the worst verdict.
    pub fn main(self) -> ExitCode {
        match self.table() {
            Ok(worst) => worst.into(),
            Err(error) => failed(error),
        }
    }

    fn table(self) -> io::Result<VerdictKind> {
        println!(
            "| nemesis | fence | answered | leader changes | faults (took effect) | longest outage, ms | \
             verdict |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- |");
        let rows = self.rows();
        let verdicts = do_each(&rows, self.side_by_side, Row::needs_machine, |row| self.run(row))?;
        Ok(verdicts.into_iter().max().unwrap_or(VerdictKind::Pass))
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for nemesis in Nemesis::value_variants().iter().copied() {
            if !self.only.is_empty() && !self.only.contains(&nemesis) {
                continue;
            }
            // It needs a manifest: jepsen/kubernetes runs it.
            if nemesis == Nemesis::Pods {
                continue;
            }
            let mut add = |fence, workload| {
                rows.push(Row { nemesis, fence, workload, limit: None });
            };
            add(Fence::Lease, None);
            if BOTH_FENCES.contains(&nemesis) {
                add(Fence::Quorum, None);
            }
            if MANY_KEYS_TOO.contains(&nemesis) {
                add(Fence::Lease, Some(Workload::ManyKeys));
            }
            if WITH_IDS.contains(&nemesis) {
                add(Fence::Lease, Some(Workload::Ids));
            }
            if nemesis == Nemesis::KillLeader {
                add(Fence::Lease, Some(Workload::Skewed));
                add(Fence::Lease, Some(Workload::Floors));
            }
            rows.extend(limited(nemesis));
        }
        // The longest comes first: beside the last one that runs there is nothing left to run.
        rows.sort_by_key(|row| row.nemesis != Nemesis::Composed);
        rows
    }

    fn run(&self, row: &Row) -> io::Result<VerdictKind> {
        let seconds =
            if row.nemesis == Nemesis::Composed { self.composed_seconds } else { self.seconds };
        // Secure runs have other names, so that figures are never mixed.
        let (dir, label) = if self.secure { ("-secure", ", secure") } else { ("", "") };
        let out = self.out.join(format!("{}{dir}", row.dir()));
        let name = format!("{}{label}", row.name());
        let try_once = |seed: u64, seconds: u64| {
            let mut arguments = row.arguments(seed, seconds, self.binary.as_deref());
            arguments.extend(self.secure.then(|| "--secure".to_owned()));
            run("run", &arguments, &out)
        };
        let (mut verdict, mut summary) = try_once(self.seed, seconds)?;
        if verdict == VerdictKind::Unknown {
            // Too little happened. Try once more, with other faults and for twice as long.
            (verdict, summary) = try_once(self.seed + 1, 2 * seconds)?;
        }
        let cell = |field: &str| cell(&summary, field);
        println!(
            "| {name} | {} | {} | {} | {} ({}) | {} | {} |",
            value(row.fence),
            cell("answered"),
            cell("leader_changes"),
            cell("faults"),
            cell("took_effect"),
            cell("longest_outage_ms"),
            verdict.word()
        );
        if verdict != VerdictKind::Pass {
            // Where the reports are thrown away, this is all that is left.
            eprintln!("{name}, {}:\n{}", value(row.fence), output(&out));
        }
        Ok(verdict)
    }
}

/// The runs of a nemesis under limits of the leader's memory. Keys are evicted once nobody asked for them for 50 ms, or at
/// once.
fn limited(nemesis: Nemesis) -> impl Iterator<Item = Row> {
    let limits: &[(Option<Workload>, &'static str)] = match nemesis {
        Nemesis::KillLeader => {
            &[(None, "key-idle-ms=50"), (Some(Workload::ManyKeys), "memory-max-mb=0")]
        }
        Nemesis::Transfer => &[(Some(Workload::Sections), "key-idle-ms=50")],
        _ => &[],
    };
    let row = move |&(workload, limit)| Row {
        nemesis,
        fence: Fence::Lease,
        workload,
        limit: Some(limit),
    };
    limits.iter().map(row)
}

fn cell(summary: &Value, field: &str) -> String {
    match &summary[field] {
        Value::Null => "-".to_owned(),
        value => value.to_string(),
    }
}

//! `ratchet-bench`: how fast a cluster hands out numbers, beside something else if asked for.
//!
//! Invariant: both sides of a comparison are driven by the same code, in alternating rounds of one run.

mod caller;
mod child;
mod cluster;
mod echo;
mod failed;
mod load;
mod peers;
mod plot;
mod report;
mod stream;
mod target;

use std::{
    io::{ErrorKind, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum};

use child::Directory;
use load::{Load, Measured};
use report::{Report, Side};
use target::Target;

pub use failed::Failed;

/// The namespace whose keys are used.
const NAMESPACE: &str = "bench";

#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure throughput and latency, beside something else if asked for
    Run(Box<Bench>),
    /// The empty handler to compare with: serves, and prints where
    #[command(hide = true)]
    Echo,
}

#[tokio::main]
async fn main() -> ExitCode {
    let (json, done) = match Cli::parse().command {
        Command::Run(bench) => (bench.json, bench.run().await),
        Command::Echo => (false, echo::serve().await),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => failed.report(json),
    }
}

/// Which fence the nodes of a cluster that is started use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fence {
    /// The leader's lease
    Lease,
    /// A quorum, before each answer
    Quorum,
}

impl Fence {
    /// As the node's command line spells it.
    pub fn name(self) -> &'static str {
        match self {
            Fence::Lease => "lease",
            Fence::Quorum => "quorum",
        }
    }
}

/// By which way numbers are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Door {
    /// One gRPC call for each number
    Unary,
    /// One bidirectional gRPC stream for each connection
    Stream,
    /// The client library
    Client,
}

/// Which node is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// The leader
    Leader,
    /// One that forwards
    Follower,
}

/// What the cluster is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Against {
    /// A gRPC server with a handler that does nothing
    Echo,
    /// redis-server, INCR, nothing on disk
    Redis,
    /// A three-node etcd, a put for each number
    Etcd,
    /// A three-node tsoracle, a call for each number
    #[value(name = "tsoracle")]
    TsOracle,
    /// The same cluster, asked at a follower
    Follower,
    /// Another cluster, whose leader asks a quorum before each answer
    Quorum,
}

/// `ratchet-bench run`.
#[derive(Debug, Args)]
pub struct Bench {
    /// The servers of a running cluster, "host:port", several separated by commas; without any, a
    /// cluster is started for the run. Keys of the namespace "bench" are used
    #[arg(long, value_delimiter = ',')]
    server: Vec<String>,
    /// How numbers are asked for
    #[arg(long, value_enum, default_value_t = Door::Unary)]
    door: Door,
    /// What to compare with, in alternating rounds
    #[arg(long, value_enum)]
    against: Option<Against>,
    /// How the other side is asked [default: as the cluster]
    #[arg(long, value_enum, requires = "against")]
    against_door: Option<Door>,
    /// How many seconds are measured in all
    #[arg(long, default_value_t = 20.0, value_parser = seconds)]
    seconds: f64,
    /// How many rounds the seconds are shared out to, for each side [default: 5, or 1 without --against]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: Option<u32>,
    /// How many connections (doors unary and stream)
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// How many requests are under way on each connection
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    in_flight: u32,
    /// How many tasks ask through one client (door client), each for one number after the other
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tasks: u32,
    /// How many keys each message of a stream asks for
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// How many keys there are, to be chosen from at random
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    keys: u64,
    /// Open loop: so many requests a second in all, whatever the answers do; latency counts from when a
    /// request was due
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    rate: Option<u64>,
    /// Which node is asked
    #[arg(long, value_enum, default_value_t = Via::Leader)]
    via: Via,
    /// How many nodes the cluster is started with
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=7),
          conflicts_with = "server")]
    nodes: u64,
    /// What the started cluster's answers pass
    #[arg(long, value_enum, default_value_t = Fence::Lease, conflicts_with = "server")]
    fence: Fence,
    /// The step of the keys, in a started cluster
    #[arg(long, default_value_t = 10_000, conflicts_with = "server")]
    step: u64,
    /// Which keys are drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Plot latency over time into this file, as SVG
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    /// The node's program, for clusters that are started; `ratchet` beside this one where absent
    #[arg(long)]
    binary: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.5..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!(
            "{text} is not a number of seconds from 0.5 to 86400"
        )),
    }
}

impl Bench {
    async fn run(self) -> Result<(), Failed> {
        let mut interrupt =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())
                .map_err(|error| Failed::other(format!("cannot watch for SIGINT: {error}")))?;
        let json = self.json;
        let report = tokio::select! {
            report = self.measure() => report?,
            _ = interrupt.recv() => return Err(Failed::other("interrupted".to_owned())),
        };
        let text = match json {
            true => report.to_json().to_string(),
            false => report.to_text(),
        };
        match writeln!(std::io::stdout(), "{text}") {
            // Nobody reads it.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|error| {
                Failed::other(format!("cannot write to standard output: {error}"))
            }),
        }
    }

    async fn measure(self) -> Result<Report, Failed> {
        if self.door != Door::Stream && self.batch > 1 {
            return Err(Failed::config(format!(
                "--batch {} is for --door stream; the other doors ask for one key at a time",
                self.batch
            )));
        }
        if !self.server.is_empty() && self.against == Some(Against::Quorum) {
            return Err(Failed::config(
                "--against quorum compares two clusters that are started for the run; leave --server out"
                    .to_owned(),
            ));
        }
        let directory = Directory::new()?;
        let ours = self.our_target(&directory).await?;
        let theirs = self.their_target(&directory, &ours).await?;
        let load = self.load();
        let rounds = self.rounds.unwrap_or(if theirs.is_some() { 5 } else { 1 });
        let sides = 1 + u32::from(theirs.is_some());
        let slice = Duration::from_secs_f64(self.seconds / f64::from(rounds * sides));
        let mut sides = vec![Side::new(&ours)];
        sides.extend(theirs.as_ref().map(Side::new));
        let targets: Vec<&Target> = [&ours].into_iter().chain(&theirs).collect();
        for round in 0..rounds {
            let mut order: Vec<usize> = (0..targets.len()).collect();
            // Who goes first takes turns, too.
            order.rotate_left(round as usize % targets.len());
            for side in order {
                let target = targets[side];
                let tell = |so_far: &Measured| progress(round, rounds, target, so_far);
                let measured = load::drive(target, &load, slice, tell).await?;
                sides[side].add(measured);
            }
        }
        let report = Report::new(&self, sides);
        if let Some(path) = &self.plot {
            plot::write(path, &report)?;
        }
        Ok(report)
    }

    fn load(&self) -> Load {
        Load {
            connections: self.connections as usize,
            in_flight: self.in_flight as usize,
            tasks: self.tasks as usize,
            batch: self.batch as usize,
            keys: self.keys,
            rate: self.rate,
            seed: self.seed,
        }
    }

    async fn start(
        &self,
        directory: &Directory,
        name: &'static str,
        fence: Fence,
    ) -> Result<Target, Failed> {
        let program = cluster::program(self.binary.as_deref())?;
        cluster::start(directory, &program, name, self.nodes, fence, self.step).await
    }

    async fn our_target(&self, directory: &Directory) -> Result<Target, Failed> {
        let mut target = if self.server.is_empty() {
            self.start(directory, "ratchet", self.fence).await?
        } else {
            cluster::running(&self.server).await?
        };
        target.choose(self.door, self.via)?;
        target.warm(self.keys).await?;
        Ok(target)
    }

    async fn their_target(
        &self,
        directory: &Directory,
        ours: &Target,
    ) -> Result<Option<Target>, Failed> {
        let Some(against) = self.against else {
            return Ok(None);
        };
        let door = self.against_door.unwrap_or(match (against, self.door) {
            // The client library takes an echo for a cluster that breaks its promise.
            (Against::Echo, Door::Client) => Door::Unary,
            (_, door) => door,
        });
        if against == Against::Echo && door == Door::Client {
            return Err(Failed::config(
                "the client library notices that an echo hands out no numbers; use --against-door unary"
                    .to_owned(),
            ));
        }
        let mut target = match against {
            Against::Echo => echo::start(directory).await?,
            Against::Redis => peers::redis(directory).await?,
            Against::Etcd => peers::etcd(directory).await?,
            Against::TsOracle => peers::tsoracle(directory).await?,
            Against::Follower => ours.without_processes("follower"),
            Against::Quorum => {
                let mut cluster = self.start(directory, "quorum", Fence::Quorum).await?;
                cluster.choose(door, self.via)?;
                cluster.warm(self.keys).await?;
                cluster
            }
        };
        match against {
            Against::Follower => target.choose(door, Via::Follower)?,
            Against::Echo => target.choose(door, Via::Leader)?,
            _ => {}
        }
        Ok(Some(target))
    }
}

/// Tells what a round came to so far, where somebody watches.
fn progress(round: u32, rounds: u32, target: &Target, measured: &Measured) {
    use std::io::IsTerminal;
    if std::io::stderr().is_terminal() {
        eprintln!(
            "round {}/{rounds}  {:>8}  {:>5.1} s  {:>12.0} numbers/s  p50 {:>9?}  p99 {:>9?}",
            round + 1,
            target.name,
            measured.elapsed.as_secs_f64(),
            measured.numbers_per_second(),
            Duration::from_nanos(measured.latencies.value_at_quantile(0.5)),
            Duration::from_nanos(measured.latencies.value_at_quantile(0.99)),
        );
    }
}

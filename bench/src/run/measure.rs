//! A run: starts the targets, drives them in rounds, and prints the report.

use std::{
    io::{ErrorKind, Write},
    time::Duration,
};

use super::{
    options::{Against, RunOptions},
    plot,
    report::{Report, Side},
};
use crate::{
    child::Directory,
    cluster, echo,
    error::Error,
    options::{Door, Fence, Via},
    peers,
    round::{self, RoundResult},
    target::Target,
};

impl RunOptions {
    /// Measures, and prints the report.
    ///
    /// # Errors
    /// If the options contradict each other, a server does not start or answer, a number is out of order,
    /// or the run is interrupted.
    pub async fn run(self) -> Result<(), Error> {
        let mut interrupt =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())
                .map_err(|error| Error::other(format!("cannot watch for SIGINT: {error}")))?;
        let json = self.json;
        let report = tokio::select! {
            report = self.measure() => report?,
            _ = interrupt.recv() => return Err(Error::other("interrupted".to_owned())),
        };
        let text = match json {
            true => report.to_json().to_string(),
            false => report.to_text(),
        };
        match writeln!(std::io::stdout(), "{text}") {
            // The reader of the report has gone.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written
                .map_err(|error| Error::other(format!("cannot write to standard output: {error}"))),
        }
    }

    async fn measure(self) -> Result<Report, Error> {
        if self.door != Door::Stream && self.batch > 1 {
            return Err(Error::config(format!(
                "--batch {} needs --door stream; the other doors ask for one key at a time",
                self.batch
            )));
        }
        if !self.server.is_empty() && self.against == Some(Against::Quorum) {
            return Err(Error::config(
                "--against quorum starts both clusters for the run; leave --server out".to_owned(),
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
            // The sides take turns at going first.
            order.rotate_left(round as usize % targets.len());
            for side in order {
                let target = targets[side];
                let tell = |so_far: &RoundResult| progress(round, rounds, target, so_far);
                let measured = round::drive(target, &load, slice, tell).await?;
                sides[side].add(measured);
            }
        }
        let report = Report::new(&self, sides);
        if let Some(path) = &self.plot {
            plot::write(path, &report)?;
        }
        Ok(report)
    }

    async fn start(
        &self,
        directory: &Directory,
        name: &'static str,
        fence: Fence,
    ) -> Result<Target, Error> {
        let program = cluster::program(self.binary.as_deref())?;
        cluster::start(directory, &program, name, self.nodes, fence, self.step).await
    }

    async fn our_target(&self, directory: &Directory) -> Result<Target, Error> {
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
    ) -> Result<Option<Target>, Error> {
        let Some(against) = self.against else {
            return Ok(None);
        };
        let door = self.against_door.unwrap_or(match (against, self.door) {
            // The client library checks that numbers grow, and an echo's do not.
            (Against::Echo, Door::Client) => Door::Unary,
            (_, door) => door,
        });
        if against == Against::Echo && door == Door::Client {
            return Err(Error::config(
                "an echo hands out no growing numbers, and the client library would report that; use --against-door unary"
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
            // These have one way to be asked, or have chosen above.
            Against::Redis | Against::Etcd | Against::TsOracle | Against::Quorum => {}
        }
        Ok(Some(target))
    }
}

/// Prints the result of a round so far, if standard error is a terminal.
fn progress(round: u32, rounds: u32, target: &Target, result: &RoundResult) {
    use std::io::IsTerminal;
    if std::io::stderr().is_terminal() {
        eprintln!(
            "round {}/{rounds}  {:>8}  {:>5.1} s  {:>12.0} numbers/s  p50 {:>9?}  p99 {:>9?}",
            round + 1,
            target.name,
            result.elapsed.as_secs_f64(),
            result.numbers_per_second(),
            Duration::from_nanos(result.latencies.value_at_quantile(0.5)),
            Duration::from_nanos(result.latencies.value_at_quantile(0.99)),
        );
    }
}

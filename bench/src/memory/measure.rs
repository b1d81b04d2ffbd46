//! Measures callers of active keys while many other keys are asked for once, with and without a bound on the leader's
//! memory, in alternating rounds.

use std::{ops::Range, time::Duration};

use tokio::time::Instant;

use super::{
    options::MemoryOptions,
    report::{Half, Report},
    restart,
};
use crate::{
    child::{Directory, resident_bytes},
    cluster,
    error::Error,
    load::Load,
    options::ClusterOptions,
    output::Printed,
    round,
    target::Target,
    warm,
};

/// No bound in practice, in 2^20 bytes.
const NO_BOUND: u64 = 1 << 20;
/// The nodes' other memory, in 2^20 bytes each: it is the keys' that is measured.
const CACHE_MB: u64 = 16;
/// How many keys a part of the scan has.
const PART_KEYS: u64 = 4_096;

impl MemoryOptions {
    /// Measures, and reports.
    ///
    /// # Errors
    /// If a node does not start or answer, the leader changes, or a number is out of order.
    pub async fn run(self) -> Result<Printed, Error> {
        let directory = Directory::new()?;
        let mut bounded = self.start(&directory, "bounded", self.memory_max_mb).await?;
        let unbounded = self.start(&directory, "unbounded", NO_BOUND).await?;
        let mut report = Report::new(&self);
        for nth in 0..self.rounds {
            let with = self.half(nth, &bounded).await?;
            let without = self.half(nth, &unbounded).await?;
            report.add_round(with, without);
        }
        drop(unbounded);
        report.restart = Some(restart::measure(&mut bounded, self.active + self.keys).await?);
        Ok(Printed { json: report.to_json(), text: report.to_text() })
    }

    async fn start(
        &self, directory: &Directory, name: &'static str, memory_max_mb: u64,
    ) -> Result<Target, Error> {
        let options = ClusterOptions {
            further: vec![
                format!("--memory-max-mb={memory_max_mb}"),
                "--key-idle-ms=0".to_owned(),
                format!("--block-cache-mb={CACHE_MB}"),
                format!("--recent-records-mb={CACHE_MB}"),
            ],
            ..self.cluster.clone()
        };
        let target = cluster::start(directory, name, self.nodes, &options).await?;
        warm::touch_all(&target, &self.load(), self.active).await?;
        Ok(target)
    }

    /// Drives the callers while the keys of this round are asked for once.
    async fn half(&self, nth: u32, target: &Target) -> Result<Half, Error> {
        let load = self.load();
        let time = Duration::from_secs_f64(self.seconds);
        let tell = |so_far: &_| round::tell(nth, self.rounds, target.name, so_far);
        let scanned = self.keys_of_round(nth);
        let scan = async {
            let started = Instant::now();
            ask_in(target, &load, scanned, time).await?;
            Ok::<_, Error>(started.elapsed())
        };
        // The active keys are asked for until the scan is over.
        let (driven, scan_time) =
            tokio::try_join!(round::drive(target, &load, time, tell), async {
                tokio::select! {
                    scanned = scan => scanned,
                    failed = self.keep_active(target, &load) => Err(failed),
                }
            })?;
        if cluster::leader(target).await? != target.leader {
            return Err(Error::other(format!(
                "the leader of {} changed; run it again, on a machine that is less busy",
                target.name
            )));
        }
        Ok(Half { load: driven, scan_time, memory: leader_memory(target)? })
    }

    /// The keys that are asked for once in round `nth`. They follow the active ones.
    fn keys_of_round(&self, nth: u32) -> Range<u64> {
        let end = |nth: u32| {
            let keys = u128::from(self.keys) * u128::from(nth) / u128::from(self.rounds);
            self.active + keys as u64
        };
        end(nth)..end(nth + 1)
    }

    /// Asks for each active key once in `active_seconds`, until that fails.
    async fn keep_active(&self, target: &Target, load: &Load) -> Error {
        let time = Duration::from_secs_f64(self.active_seconds);
        loop {
            if let Err(error) = ask_in(target, load, 0..self.active, time).await {
                return error;
            }
        }
    }
}

/// Asks for a number of each key, evenly over `time`, or as fast as that goes.
async fn ask_in(
    target: &Target, load: &Load, keys: Range<u64>, time: Duration,
) -> Result<(), Error> {
    let started = Instant::now();
    let count = keys.end - keys.start;
    let mut from = keys.start;
    while from < keys.end {
        let part = from..keys.end.min(from + PART_KEYS);
        let due = time.mul_f64((from - keys.start) as f64 / count as f64);
        tokio::time::sleep_until(started + due).await;
        from = part.end;
        warm::touch(target, load, part).await?;
    }
    Ok(())
}

/// How much of the leader's memory is in RAM, in bytes.
fn leader_memory(target: &Target) -> Result<u64, Error> {
    let mut servers = target.servers.iter();
    let leader = servers.find(|server| server.id == target.leader);
    let process = leader.and_then(|server| server.process.as_ref());
    let bytes = process.and_then(|process| resident_bytes(process.id()));
    bytes.ok_or_else(|| Error::other(format!("the leader of {} has ended", target.name)))
}

//! One round: drives a target with a load, and measures.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;

use crate::{
    error::Error,
    load::Load,
    recorder::histogram,
    target::Target,
    workers::{Failures, TICK, Workers},
};

/// How many ticks pass between two reports of progress.
const TICKS_TOLD: usize = 10;

/// The result of a round.
pub struct RoundResult {
    pub latencies: Histogram<u64>,
    pub numbers: u64,
    pub requests: u64,
    pub elapsed: Duration,
    pub failures: Failures,
    /// CPU nanoseconds of the leader, and of all servers; `None` if they run elsewhere.
    pub cpu: Option<(u64, u64)>,
    /// Latencies of each tenth of a second.
    pub ticks: Vec<Histogram<u64>>,
}

impl RoundResult {
    /// The throughput, in numbers a second.
    pub fn numbers_per_second(&self) -> f64 {
        self.numbers as f64 / self.elapsed.as_secs_f64()
    }
}

/// Prints the result of a round so far, if standard error is a terminal.
pub fn tell(round: u32, rounds: u32, name: &str, result: &RoundResult) {
    if std::io::stderr().is_terminal() {
        eprintln!(
            "round {}/{rounds}  {name:>8}  {:>5.1} s  {:>12.0}/s  p50 {:>9?}  p99 {:>9?}",
            round + 1,
            result.elapsed.as_secs_f64(),
            result.numbers_per_second(),
            Duration::from_nanos(result.latencies.value_at_quantile(0.5)),
            Duration::from_nanos(result.latencies.value_at_quantile(0.99)),
        );
    }
}

/// Drives `target` for `slice`. The first tenth, at most a second, is a warm-up that does not count.
/// Calls `progress` once a second.
///
/// # Errors
/// If the target cannot be reached, answers no request, hands out a number that does not grow, or falls
/// too far behind an open loop.
pub async fn drive(
    target: &Target, load: &Load, slice: Duration, mut progress: impl FnMut(&RoundResult),
) -> Result<RoundResult, Error> {
    let workers = Workers::start(target, load).await?;
    let warm_up = (slice / 10).min(Duration::from_secs(1));
    tokio::time::sleep(warm_up).await;
    drop(workers.records());
    let (started, cpu_before) = (Instant::now(), target.cpu());
    let mut result = RoundResult {
        latencies: histogram(),
        numbers: 0,
        requests: 0,
        elapsed: Duration::ZERO,
        failures: Failures::default(),
        cpu: None,
        ticks: Vec::new(),
    };
    let end = started + slice - warm_up;
    while Instant::now() < end && !workers.have_stopped() {
        tokio::time::sleep(TICK.min(end - Instant::now())).await;
        let records = workers.records();
        let _ = result.latencies.add(&records.latencies);
        result.elapsed = started.elapsed();
        result.numbers += records.numbers();
        result.requests = result.latencies.len();
        result.ticks.push(records.latencies);
        if result.ticks.len().is_multiple_of(TICKS_TOLD) {
            progress(&result);
        }
    }
    result.cpu = cpu_before
        .zip(target.cpu())
        .map(|((asked, all), now)| (now.0.saturating_sub(asked), now.1.saturating_sub(all)));
    let in_target = |error: Error| error.within(target.name);
    let stopped = workers.stop().await.map_err(in_target)?;
    result.failures = stopped.failures;
    let _ = result.latencies.add(&stopped.late);
    match &result.failures.first {
        Some(error) if result.requests == 0 => Err(in_target(Error::other(error.clone()))),
        None if result.requests == 0 => {
            Err(Error::other(format!("{} answered nothing", target.name)))
        }
        _ => Ok(result),
    }
}

//! One round: drives a target with a load, and measures.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use crate::{
    call_loop::{closed_loop, open_loop},
    caller::callers,
    error::Error,
    load::Load,
    options::Door,
    recorder::{Recorder, histogram},
    stream,
    target::{Protocol, Target},
};

/// How often the recorder is read.
const TICK: Duration = Duration::from_millis(100);
/// How many ticks pass between two reports of progress.
const TICKS_TOLD: usize = 10;

/// The result of a round.
pub struct RoundResult {
    pub latencies: Histogram<u64>,
    pub numbers: u64,
    pub requests: u64,
    pub elapsed: Duration,
    pub errors: u64,
    pub first_error: Option<String>,
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

/// Drives `target` for `slice`. The first tenth, at most a second, is a warm-up that does not count.
/// Calls `progress` once a second.
///
/// # Errors
/// If the target cannot be reached, answers no request, hands out a number that does not grow, or falls
/// too far behind an open loop.
pub async fn drive(
    target: &Target,
    load: &Load,
    slice: Duration,
    mut progress: impl FnMut(&RoundResult),
) -> Result<RoundResult, Error> {
    let recorder = Arc::new(Recorder::new(load, target.is_checked));
    let mut workers = start(target, &recorder).await?;
    let warm_up = (slice / 10).min(Duration::from_secs(1));
    tokio::time::sleep(warm_up).await;
    let mut spare = histogram();
    drop(recorder.drain(&mut spare));
    let (started, before, cpu_before) = (Instant::now(), recorder.count(), target.cpu());
    let mut result = RoundResult {
        latencies: histogram(),
        numbers: 0,
        requests: 0,
        elapsed: Duration::ZERO,
        errors: 0,
        first_error: None,
        cpu: None,
        ticks: Vec::new(),
    };
    let end = started + slice - warm_up;
    while Instant::now() < end && !recorder.stop.load(Relaxed) {
        tokio::time::sleep(TICK.min(end - Instant::now())).await;
        let tick = recorder.drain(&mut spare);
        let _ = result.latencies.add(&tick);
        result.ticks.push(tick);
        result.elapsed = started.elapsed();
        result.numbers = recorder.count() - before;
        result.requests = result.latencies.len();
        if result.ticks.len().is_multiple_of(TICKS_TOLD) {
            progress(&result);
        }
    }
    result.cpu = cpu_before
        .zip(target.cpu())
        .map(|((asked, all), now)| (now.0.saturating_sub(asked), now.1.saturating_sub(all)));
    recorder.stop.store(true, Relaxed);
    while let Some(done) = workers.join_next().await {
        done.map_err(|error| Error::other(format!("a worker died: {error}")))?;
    }
    let (errors, first) = recorder.errors.lock().clone();
    (result.errors, result.first_error) = (errors, first);
    if let Some(why) = recorder.aborted.lock().take() {
        return Err(Error::other(format!("{}: {why}", target.name)));
    }
    match &result.first_error {
        Some(error) if result.requests == 0 => {
            Err(Error::other(format!("{}: {error}", target.name)))
        }
        None if result.requests == 0 => {
            Err(Error::other(format!("{} answered nothing", target.name)))
        }
        _ => Ok(result),
    }
}

async fn start(target: &Target, recorder: &Arc<Recorder>) -> Result<JoinSet<()>, Error> {
    let load = &recorder.load;
    let mut workers = JoinSet::new();
    if target.protocol == Protocol::Ratchet(Door::Stream) {
        let channels = target.channels(load.connections).await?;
        stream::start(channels, recorder, &mut workers);
        return Ok(workers);
    }
    let callers = callers(target, load).await?;
    match load.rate {
        None => {
            for (place, caller) in callers.into_iter().enumerate() {
                workers.spawn(closed_loop(caller, place, recorder.clone()));
            }
        }
        Some(rate) => {
            let recorder = recorder.clone();
            let handle = tokio::runtime::Handle::current();
            // A thread of its own, since the timers of the runtime tick in milliseconds.
            workers.spawn_blocking(move || open_loop(&callers, rate, &recorder, &handle));
        }
    }
    Ok(workers)
}

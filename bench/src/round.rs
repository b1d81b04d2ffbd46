//! Drives a target for one round, and measures.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use crate::{
    call_loop::{closed_loop, open_loop},
    caller::callers,
    failed::Failed,
    load::Load,
    options::Door,
    recorder::{Run, histogram},
    stream,
    target::{Target, Way},
};

/// How often the recorders are read.
const TICK: Duration = Duration::from_millis(100);
/// Once in so many ticks those who watch are told.
const TICKS_TOLD: usize = 10;

/// What a round came to.
pub struct Measured {
    pub latencies: Histogram<u64>,
    pub numbers: u64,
    pub requests: u64,
    pub elapsed: Duration,
    pub errors: u64,
    pub first_error: Option<String>,
    /// CPU nanoseconds of the server that was asked, and of all.
    pub cpu: Option<(u64, u64)>,
    /// Latencies by tenths of seconds.
    pub ticks: Vec<Histogram<u64>>,
}

impl Measured {
    /// Numbers a second.
    pub fn numbers_per_second(&self) -> f64 {
        self.numbers as f64 / self.elapsed.as_secs_f64()
    }
}

/// Drives `target` for `slice`, a tenth of which is not counted, and tells `progress` once a second.
///
/// # Errors
/// Where it cannot be asked at all, or hands numbers out in disorder.
pub async fn drive(
    target: &Target,
    load: &Load,
    slice: Duration,
    mut progress: impl FnMut(&Measured),
) -> Result<Measured, Failed> {
    let run = Arc::new(Run::new(load, target.is_checked));
    let mut workers = start(target, &run).await?;
    let warm_up = (slice / 10).min(Duration::from_secs(1));
    tokio::time::sleep(warm_up).await;
    let mut spare = histogram();
    drop(run.drain(&mut spare));
    let (started, before, cpu_before) = (Instant::now(), run.count(), target.cpu());
    let mut measured = Measured {
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
    while Instant::now() < end && !run.stop.load(Relaxed) {
        tokio::time::sleep(TICK.min(end - Instant::now())).await;
        let tick = run.drain(&mut spare);
        let _ = measured.latencies.add(&tick);
        measured.ticks.push(tick);
        measured.elapsed = started.elapsed();
        measured.numbers = run.count() - before;
        measured.requests = measured.latencies.len();
        if measured.ticks.len().is_multiple_of(TICKS_TOLD) {
            progress(&measured);
        }
    }
    measured.cpu = cpu_before
        .zip(target.cpu())
        .map(|((asked, all), now)| (now.0.saturating_sub(asked), now.1.saturating_sub(all)));
    run.stop.store(true, Relaxed);
    while let Some(done) = workers.join_next().await {
        done.map_err(|error| Failed::other(format!("a worker died: {error}")))?;
    }
    let (errors, first) = run.errors.lock().clone();
    (measured.errors, measured.first_error) = (errors, first);
    if let Some(why) = run.worthless.lock().take() {
        return Err(Failed::other(format!("{}: {why}", target.name)));
    }
    match &measured.first_error {
        Some(error) if measured.requests == 0 => {
            Err(Failed::other(format!("{}: {error}", target.name)))
        }
        None if measured.requests == 0 => {
            Err(Failed::other(format!("{} answered nothing", target.name)))
        }
        _ => Ok(measured),
    }
}

async fn start(target: &Target, run: &Arc<Run>) -> Result<JoinSet<()>, Failed> {
    let load = &run.load;
    let mut workers = JoinSet::new();
    if target.way == Way::Door(Door::Stream) {
        let channels = target.channels(load.connections).await?;
        stream::start(channels, run, &mut workers);
        return Ok(workers);
    }
    let callers = callers(target, load).await?;
    match load.rate {
        None => {
            for (place, caller) in callers.into_iter().enumerate() {
                workers.spawn(closed_loop(caller, place, run.clone()));
            }
        }
        Some(rate) => {
            let run = run.clone();
            let handle = tokio::runtime::Handle::current();
            // A thread of its own, since the runtime's timers tick in milliseconds.
            workers.spawn_blocking(move || open_loop(&callers, rate, &run, &handle));
        }
    }
    Ok(workers)
}

//! Drives a target for one round, and measures.
//!
//! Invariant: in an open loop latency counts from the instant at which a request was due, so that what
//! could not be sent in time shows (Gil Tene's "coordinated omission").

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use tokio::task::JoinSet;

use super::{
    Door, Failed,
    caller::{Caller, callers},
    stream,
    target::{Target, Way},
};

/// More requests than this do not wait for their answers in an open loop.
const OUTSTANDING_MAX: usize = 100_000;
/// The pacer of an open loop looks at the clock this often.
pub const PACE: Duration = Duration::from_micros(200);
/// Latencies are kept in so many histograms: threads rarely meet.
const RECORDERS: usize = 16;
/// How often they are read.
const TICK: Duration = Duration::from_millis(100);
/// Once in so many ticks those who watch are told.
const TICKS_TOLD: usize = 10;

/// What is asked, and how.
#[derive(Debug, Clone)]
pub struct Load {
    pub connections: usize,
    pub in_flight: usize,
    pub tasks: usize,
    pub batch: usize,
    pub keys: u64,
    pub rate: Option<u64>,
    pub seed: u64,
}

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

/// What the workers of a round share.
pub struct Run {
    pub load: Load,
    pub stop: AtomicBool,
    recorders: Vec<Mutex<Histogram<u64>>>,
    numbers: Vec<AtomicU64>,
    errors: Mutex<(u64, Option<String>)>,
    /// What makes the whole run worthless.
    worthless: Mutex<Option<String>>,
    /// The greatest number known of each key; empty where numbers are not checked.
    floors: Vec<AtomicU64>,
}

fn histogram() -> Histogram<u64> {
    // Three digits, up to a minute.
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds that fit")
}

impl Run {
    fn new(load: &Load, is_checked: bool) -> Run {
        let keys = if is_checked { load.keys } else { 0 };
        Run {
            load: load.clone(),
            stop: AtomicBool::new(false),
            recorders: (0..RECORDERS).map(|_| Mutex::new(histogram())).collect(),
            numbers: (0..RECORDERS).map(|_| AtomicU64::new(0)).collect(),
            errors: Mutex::default(),
            worthless: Mutex::default(),
            floors: (0..keys).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Notes that a worker was answered with `numbers` numbers.
    pub fn record(&self, worker: usize, since: Instant, numbers: u64) {
        let nanos = since.elapsed().as_nanos() as u64;
        self.recorders[worker % RECORDERS]
            .lock()
            .saturating_record(nanos);
        self.numbers[worker % RECORDERS].fetch_add(numbers, Relaxed);
    }

    /// Notes that a worker was not answered.
    pub fn fail(&self, why: String) {
        let mut errors = self.errors.lock();
        errors.0 += 1;
        errors.1.get_or_insert(why);
    }

    /// Ends the run, which has become worthless.
    fn abort(&self, why: String) {
        self.worthless.lock().get_or_insert(why);
        self.stop.store(true, Relaxed);
    }

    /// The greatest number known of a key.
    pub fn floor(&self, key: u64) -> u64 {
        let floor = self.floors.get(key as usize);
        floor.map_or(0, |floor| floor.load(Relaxed))
    }

    /// Checks a number against what was known before it was asked for.
    pub fn check(&self, key: u64, floor: u64, number: u64) {
        let Some(known) = self.floors.get(key as usize) else {
            return;
        };
        known.fetch_max(number, Relaxed);
        if number <= floor {
            self.abort(format!("DISORDER: key {key} got {number} after {floor}"));
        }
    }

    /// Reads the recorders, and clears them.
    fn drain(&self, spare: &mut Histogram<u64>) -> Histogram<u64> {
        let mut all = histogram();
        for recorder in &self.recorders {
            spare.clear();
            std::mem::swap(&mut *recorder.lock(), spare);
            // Of the same bounds.
            let _ = all.add(&*spare);
        }
        all
    }

    fn count(&self) -> u64 {
        self.numbers
            .iter()
            .map(|numbers| numbers.load(Relaxed))
            .sum()
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

async fn call(caller: &mut Caller, key: u64, worker: usize, since: Instant, run: &Run) {
    let floor = run.floor(key);
    match caller.call(key).await {
        Ok(number) => {
            run.check(key, floor, number);
            run.record(worker, since, 1);
        }
        Err(why) => run.fail(why),
    }
}

async fn closed_loop(mut caller: Caller, worker: usize, run: Arc<Run>) {
    let mut rng = SmallRng::seed_from_u64(run.load.seed.wrapping_add(worker as u64));
    while !run.stop.load(Relaxed) {
        let key = rng.random_range(0..run.load.keys);
        call(&mut caller, key, worker, Instant::now(), &run).await;
    }
}

/// When the request number `n` is due, at `rate` requests a second.
fn due(started: Instant, n: u64, rate: u64) -> Instant {
    let nanos = u128::from(n) * 1_000_000_000 / u128::from(rate);
    started + Duration::from_nanos(nanos as u64)
}

fn open_loop(callers: &[Caller], rate: u64, run: &Arc<Run>, handle: &tokio::runtime::Handle) {
    let mut rng = SmallRng::seed_from_u64(run.load.seed);
    let (started, outstanding) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let mut sent = 0;
    while !run.stop.load(Relaxed) {
        let now = Instant::now();
        while due(started, sent, rate) <= now {
            let worker = sent as usize % callers.len();
            let (mut caller, since) = (callers[worker].clone(), due(started, sent, rate));
            let key = rng.random_range(0..run.load.keys);
            let (run, answered) = (run.clone(), outstanding.clone());
            outstanding.fetch_add(1, Relaxed);
            handle.spawn(async move {
                call(&mut caller, key, worker, since, &run).await;
                answered.fetch_sub(1, Relaxed);
            });
            sent += 1;
        }
        if outstanding.load(Relaxed) > OUTSTANDING_MAX {
            run.abort(format!(
                "{OUTSTANDING_MAX} requests wait for an answer: {rate} a second are more than can be \
                 served; lower --rate"
            ));
            return;
        }
        std::thread::sleep(PACE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_evenly_and_without_rounding_drift() {
        let started = Instant::now();
        let at = |n| due(started, n, 3) - started;
        assert_eq!(at(0), Duration::ZERO);
        assert_eq!(at(1), Duration::from_nanos(333_333_333));
        assert_eq!(at(3_000_000_000), Duration::from_secs(1_000_000_000));
    }

    #[test]
    fn a_number_that_does_not_grow_is_an_error() {
        let load = Load {
            connections: 1,
            in_flight: 1,
            tasks: 1,
            batch: 1,
            keys: 2,
            rate: None,
            seed: 1,
        };
        let run = Run::new(&load, true);
        run.check(1, run.floor(1), 7);
        run.check(1, 0, 5);
        assert_eq!(*run.worthless.lock(), None, "asked for before 7 was known");
        run.check(1, run.floor(1), 7);
        let worthless = run.worthless.lock().clone();
        assert_eq!(worthless.as_deref(), Some("DISORDER: key 1 got 7 after 7"));
        assert!(run.stop.load(Relaxed));
    }
}

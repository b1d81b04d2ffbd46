//! What the workers of a round share: latencies, counts, and the check that numbers grow.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::load::Load;

/// Latencies are kept in so many histograms: threads rarely meet.
const RECORDERS: usize = 16;

/// What the workers of a round share.
pub struct Run {
    pub load: Load,
    pub stop: AtomicBool,
    recorders: Vec<Mutex<Histogram<u64>>>,
    numbers: Vec<AtomicU64>,
    pub errors: Mutex<(u64, Option<String>)>,
    /// What makes the whole run worthless.
    pub worthless: Mutex<Option<String>>,
    /// The greatest number known of each key; empty where numbers are not checked.
    floors: Vec<AtomicU64>,
}

/// An empty histogram of latencies.
pub fn histogram() -> Histogram<u64> {
    // Three digits, up to a minute.
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds that fit")
}

impl Run {
    /// For one round.
    pub fn new(load: &Load, is_checked: bool) -> Run {
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
    pub fn abort(&self, why: String) {
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
    pub fn drain(&self, spare: &mut Histogram<u64>) -> Histogram<u64> {
        let mut all = histogram();
        for recorder in &self.recorders {
            spare.clear();
            std::mem::swap(&mut *recorder.lock(), spare);
            // Of the same bounds.
            let _ = all.add(&*spare);
        }
        all
    }

    /// How many numbers were answered so far.
    pub fn count(&self) -> u64 {
        self.numbers
            .iter()
            .map(|numbers| numbers.load(Relaxed))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

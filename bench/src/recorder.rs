//! Records the observations of the workers of a round: latencies, counts, errors, and whether numbers grow.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::load::{Load, Overload, WAITING_MAX};

/// Latencies are kept in this many histograms, so that workers rarely wait for a lock.
const STRIPES: usize = 16;

/// The record of a round, shared by its workers.
pub struct Recorder {
    /// The load of the workers.
    pub load: Load,
    /// True once the workers are to stop.
    pub stop: AtomicBool,
    /// When the round began.
    pub started: Instant,
    stripes: Vec<Mutex<Records>>,
    /// The number of failed requests, and the first error.
    pub errors: Mutex<(u64, Option<String>)>,
    /// Why the run was aborted.
    pub aborted: Mutex<Option<String>>,
    /// The greatest number received of each key; empty if numbers are not checked.
    floors: Vec<AtomicU64>,
}

/// The records since the last look.
pub struct Records {
    /// The latency of each request that was answered.
    pub latencies: Histogram<u64>,
    /// When numbers were received. In no order, and a millisecond may come several times.
    pub receipts: Vec<Receipt>,
}

/// The numbers that were received within one millisecond.
#[derive(Debug, Clone, Copy)]
pub struct Receipt {
    /// The millisecond, since the round began.
    pub ms: u64,
    /// How many numbers.
    pub numbers: u64,
}

impl Records {
    /// No records.
    pub fn new() -> Records {
        Records { latencies: histogram(), receipts: Vec::new() }
    }

    /// How many numbers were received.
    pub fn numbers(&self) -> u64 {
        self.receipts.iter().map(|receipt| receipt.numbers).sum()
    }
}

/// An empty histogram of latencies.
pub fn histogram() -> Histogram<u64> {
    // The histogram has three significant digits, up to a minute.
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds that fit")
}

impl Recorder {
    /// An empty record. `is_checked`: numbers must grow.
    pub fn new(load: &Load, is_checked: bool) -> Recorder {
        let keys = if is_checked { load.keys } else { 0 };
        Recorder {
            load: load.clone(),
            stop: AtomicBool::new(false),
            started: Instant::now(),
            stripes: (0..STRIPES).map(|_| Mutex::new(Records::new())).collect(),
            errors: Mutex::default(),
            aborted: Mutex::default(),
            floors: (0..keys).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Records an answer with `numbers` numbers. Latency counts from `since`.
    pub fn record(&self, worker: usize, since: Instant, numbers: u64) {
        let now = Instant::now();
        let nanos = now.saturating_duration_since(since).as_nanos() as u64;
        let ms = (now - self.started).as_millis() as u64;
        let mut records = self.stripes[worker % STRIPES].lock();
        records.latencies.saturating_record(nanos);
        match records.receipts.last_mut() {
            Some(last) if last.ms == ms => last.numbers += numbers,
            _ => records.receipts.push(Receipt { ms, numbers }),
        }
    }

    /// Records that a request of an open loop has had no answer until now. `since`: when it was due. Otherwise the latencies of
    /// the requests that waited longest would be missing.
    pub fn unanswered(&self, worker: usize, since: Instant) {
        let nanos = Instant::now().saturating_duration_since(since).as_nanos() as u64;
        self.stripes[worker % STRIPES].lock().latencies.saturating_record(nanos);
    }

    /// Aborts the run, if its load says so: an open loop has so many requests waiting that its rate cannot be measured.
    pub fn overloaded(&self, rate: u64) {
        if self.load.overload == Overload::Abort {
            self.abort(format!(
                "{WAITING_MAX} requests wait for an answer: the server cannot serve {rate} a second; lower --rate"
            ));
        }
    }

    /// Records a failed request.
    pub fn fail(&self, why: String) {
        let mut errors = self.errors.lock();
        errors.0 += 1;
        errors.1.get_or_insert(why);
    }

    /// Aborts the run.
    pub fn abort(&self, why: String) {
        self.aborted.lock().get_or_insert(why);
        self.stop.store(true, Relaxed);
    }

    /// The greatest number received of a key, to be read before a request is sent.
    pub fn floor(&self, key: u64) -> u64 {
        let floor = self.floors.get(key as usize);
        floor.map_or(0, |floor| floor.load(Relaxed))
    }

    /// Checks that a number is greater than `floor`, which was read before the request was sent. Aborts the
    /// run if not.
    pub fn check(&self, key: u64, floor: u64, number: u64) {
        let Some(known) = self.floors.get(key as usize) else {
            return;
        };
        known.fetch_max(number, Relaxed);
        if number <= floor {
            self.abort(format!("DISORDER: key {key} got {number} after {floor}"));
        }
    }

    /// Takes the records since the last time. `spare`, of no records, saves allocations.
    pub fn drain(&self, spare: &mut Records) -> Records {
        let mut all = Records::new();
        for stripe in &self.stripes {
            std::mem::swap(&mut *stripe.lock(), spare);
            // It cannot fail: all histograms have the same bounds.
            let _ = all.latencies.add(&spare.latencies);
            all.receipts.append(&mut spare.receipts);
            spare.latencies.clear();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_not_above_one_received_before_the_request_aborts_the_run() {
        let load = Load {
            connections: 1,
            in_flight: 1,
            tasks: 1,
            batch: 1,
            keys: 2,
            key_stride: 1,
            rate: None,
            overload: Overload::Abort,
            seed: 1,
        };
        let recorder = Recorder::new(&load, true);
        recorder.check(1, recorder.floor(1), 7);
        recorder.check(1, 0, 5);
        assert_eq!(*recorder.aborted.lock(), None, "requested before 7 was received");
        recorder.check(1, recorder.floor(1), 7);
        let aborted = recorder.aborted.lock().clone();
        assert_eq!(aborted.as_deref(), Some("DISORDER: key 1 got 7 after 7"));
        assert!(recorder.stop.load(Relaxed));
    }
}

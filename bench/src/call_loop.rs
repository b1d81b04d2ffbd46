//! Drives callers that ask for one number at a time, in a closed or an open loop.
//!
//! Invariant: in an open loop latency counts from the instant at which a request was due, whether or not it
//! could be sent then. Otherwise the worst latencies would be missing (Gil Tene's "coordinated omission").

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rand::{RngExt, SeedableRng, rngs::SmallRng};

use crate::{
    caller::Caller,
    load::{PACER_INTERVAL, PAUSE_AFTER_FAILURE, WAITING_MAX},
    recorder::Recorder,
};

/// How long to wait for the last answers of an open loop.
const LAST_ANSWERS_MAX: Duration = Duration::from_secs(10);

/// Asks for one number, and records the outcome. False if the request failed.
async fn call(
    caller: &mut Caller, key: u64, worker: usize, since: Instant, recorder: &Recorder,
) -> bool {
    let floor = recorder.floor(key);
    let answer = caller.call(recorder.load.id(key)).await;
    match answer {
        Ok(number) => {
            recorder.check(key, floor, number);
            recorder.record(worker, since, 1);
            true
        }
        Err(why) => {
            recorder.fail(why);
            false
        }
    }
}

/// A caller that asks again as soon as it is answered, and a little later after a failure.
pub async fn closed_loop(mut caller: Caller, worker: usize, recorder: Arc<Recorder>) {
    let mut rng = SmallRng::seed_from_u64(recorder.load.seed.wrapping_add(worker as u64));
    while !recorder.stop.load(Relaxed) {
        let key = rng.random_range(0..recorder.load.keys);
        if !call(&mut caller, key, worker, Instant::now(), &recorder).await {
            tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
        }
    }
}

/// When request number `n` is due, at `rate` requests a second.
fn due(started: Instant, n: u64, rate: u64) -> Instant {
    let nanos = u128::from(n) * 1_000_000_000 / u128::from(rate);
    started + Duration::from_nanos(nanos as u64)
}

/// Sends `rate` requests a second, however slow the answers are. Blocks its thread.
pub fn open_loop(
    callers: &[Caller], rate: u64, recorder: &Arc<Recorder>, handle: &tokio::runtime::Handle,
) {
    let mut rng = SmallRng::seed_from_u64(recorder.load.seed);
    let (started, in_flight) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let mut sent = 0;
    while !recorder.stop.load(Relaxed) {
        let now = Instant::now();
        while due(started, sent, rate) <= now {
            if in_flight.load(Relaxed) >= WAITING_MAX {
                recorder.overloaded(rate);
                break;
            }
            let worker = sent as usize % callers.len();
            let (mut caller, since) = (callers[worker].clone(), due(started, sent, rate));
            let key = rng.random_range(0..recorder.load.keys);
            let (recorder, answered) = (recorder.clone(), in_flight.clone());
            in_flight.fetch_add(1, Relaxed);
            handle.spawn(async move {
                let _ = call(&mut caller, key, worker, since, &recorder).await;
                answered.fetch_sub(1, Relaxed);
            });
            sent += 1;
        }
        std::thread::sleep(PACER_INTERVAL);
    }
    let ended = Instant::now();
    for overdue in (sent..).map(|n| due(started, n, rate)).take_while(|due| *due <= ended) {
        recorder.unanswered(0, overdue);
    }
    while in_flight.load(Relaxed) > 0 && ended.elapsed() < LAST_ANSWERS_MAX {
        std::thread::sleep(PACER_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_an_open_loop_are_due_evenly_without_rounding_drift() {
        let started = Instant::now();
        let at = |n| due(started, n, 3) - started;
        assert_eq!(at(0), Duration::ZERO);
        assert_eq!(at(1), Duration::from_nanos(333_333_333));
        assert_eq!(at(3_000_000_000), Duration::from_secs(1_000_000_000));
    }
}

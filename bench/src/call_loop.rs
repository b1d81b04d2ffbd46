//! Asks for one number at a time: in a closed loop, or in an open one.
//!
//! Invariant: in an open loop latency counts from the instant at which a request was due, so that what
//! could not be sent in time shows (Gil Tene's "coordinated omission").

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rand::{RngExt, SeedableRng, rngs::SmallRng};

use crate::{caller::Caller, load::PACE, recorder::Run};

/// More requests than this do not wait for their answers in an open loop.
const OUTSTANDING_MAX: usize = 100_000;

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

/// Each of `callers` asks again as soon as it is answered.
pub async fn closed_loop(mut caller: Caller, worker: usize, run: Arc<Run>) {
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

pub fn open_loop(callers: &[Caller], rate: u64, run: &Arc<Run>, handle: &tokio::runtime::Handle) {
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
}

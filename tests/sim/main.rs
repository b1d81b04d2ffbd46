//! The simulator: a whole cluster in one thread, on simulated time, network and disks, under one
//! seed that decides everything.
//!
//! * `cargo test --test sim` runs 200 seeds on all cores and prints how many a minute.
//! * `RATCHET_SIM_SEED=7 cargo test --test sim -- one_seed --nocapture` replays one, with its trace;
//!   `RATCHET_SIM_NOTES=1` adds every message, `RUST_LOG=ratchet=info` the nodes' logs.
//! * `cargo test --test sim -- --ignored forever --nocapture` goes on until it is stopped, or a seed
//!   fails.
//! * `RATCHET_SIM_SEEDS=1000` sets how many seeds are run, `RATCHET_SIM_FIRST=5000` the first one.
//! * `RATCHET_SIM_KEYS=1000000 cargo test --test sim -- many_keys --nocapture` runs two seeds with a million keys;
//!   `RATCHET_SIM_SEED` chooses one.
//!
//! The product is the real one, down to RocksDB. The simulated parts come in through its seams: the clock that
//! leases are counted on, the transport, the time that an fsync takes, and randomness. Every node is a turmoil
//! host: a crash drops its whole runtime.

mod accounts;
mod admin;
mod answers;
mod clock;
mod cluster;
mod counting;
mod crowd;
mod delayed_faults;
mod disk;
mod fault;
mod faults;
mod gapless;
mod given_up;
mod key_ids;
mod many_keys;
mod network;
mod observed;
#[path = "../common/power.rs"]
mod power;
mod slow_disks;
mod trace;
mod transport;
mod workers;
mod workload;
mod wrong_clock;

mod run;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use observed::Report;
use run::run;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a number"))
}

/// How many seeds `cargo test` runs.
const SEEDS: u64 = 200;

/// A run that takes longer, in real time, counts as hanging. Simulated time cannot tell: it stands still
/// in a loop that never waits.
const RUN_MAX: Duration = Duration::from_secs(600);

/// How many runs with a wrong wall clock `cargo test` has.
const WRONG_CLOCK_SEEDS: u64 = 12;

/// How many runs `cargo test` has of each way in which a leader gives its term up.
const GIVEN_UP_SEEDS: u64 = 3;

/// How many runs with slow disks `cargo test` has: as many with each fault.
const SLOW_DISKS_SEEDS: u64 = 8;

/// How many keys a run with very many keys has, and how many such runs `cargo test` has.
const MANY_KEYS: u64 = 300_000;
const MANY_KEYS_SEEDS: u64 = 2;

/// Runs one seed on a fresh thread, so that no thread-local state of another run affects it.
fn in_time(seed: u64, loud: bool) -> Result<Report, String> {
    on_fresh_thread(seed, RUN_MAX, "one_seed", move || run(seed, loud))
}

/// Has `run` run one seed on a fresh thread, for at most `limit`. `test` replays it.
fn on_fresh_thread(
    seed: u64, limit: Duration, test: &str,
    run: impl FnOnce() -> Result<Report, String> + Send + 'static,
) -> Result<Report, String> {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || done.send(run()));
    wait.recv_timeout(limit).unwrap_or_else(|_| {
        Err(format!(
            "seed {seed} hangs, or the simulator itself panicked; see it with: \
             RATCHET_SIM_SEED={seed} cargo test --test sim -- {test} --nocapture"
        ))
    })
}

/// Runs seeds on all cores, from `first` on, while `more` is true; panics with the first failure.
fn run_seeds(first: u64, more: impl Fn(u64) -> bool + Sync, each: impl Fn(u64, &Report) + Sync) {
    let next = AtomicU64::new(first);
    let failure: Mutex<Option<String>> = Mutex::new(None);
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !more(seed) || failure.lock().expect("a lock").is_some() {
                        return;
                    }
                    match in_time(seed, false) {
                        Ok(report) => each(seed, &report),
                        Err(why) => {
                            failure.lock().expect("a lock").get_or_insert(why);
                        }
                    }
                }
            });
        }
    });
    if let Some(why) = failure.into_inner().expect("a lock") {
        panic!("{why}");
    }
}

#[test]
fn many_seeds() {
    let first = number("RATCHET_SIM_FIRST").unwrap_or(1);
    let seeds = number("RATCHET_SIM_SEEDS").unwrap_or(SEEDS);
    let started = Instant::now();
    let total: Mutex<BTreeMap<&'static str, u64>> = Mutex::default();
    run_seeds(
        first,
        |seed| seed < first + seeds,
        |_, report| {
            let mut total = total.lock().expect("a lock");
            for (kind, count) in &report.counts {
                *total.entry(kind).or_default() += count;
            }
        },
    );
    let seconds = started.elapsed().as_secs_f64();
    let total = total.into_inner().expect("a lock");
    println!(
        "{seeds} seeds in {seconds:.0} s, {:.0} a minute: {total:?}",
        seeds as f64 * 60.0 / seconds
    );
    for kind in [
        "founded",
        "answer",
        "leader",
        "crash",
        "crash that lost writes",
        "memory",
        "hand_off",
        "epoch",
        "shared section evicted",
        "section raised",
        "handover to hit",
        "namespace deleted",
        "namespace changed",
        "answer for many keys",
        "last numbers",
        "worker leased",
        "ids of a key",
        "ids with a date",
        "message twice",
        "message lost",
    ] {
        let count = total.get(kind).copied().unwrap_or_default();
        assert!(count >= seeds / 4, "{seeds} seeds saw {kind:?} {count} times");
    }
}

#[test]
fn a_wrong_clock() {
    let one = number("RATCHET_SIM_SEED");
    let seeds = match one {
        Some(seed) => vec![seed],
        None => Vec::from_iter(1..=WRONG_CLOCK_SEEDS),
    };
    for seed in seeds {
        let run = move || wrong_clock::run(seed, one.is_some());
        if let Err(why) = on_fresh_thread(seed, RUN_MAX, "a_wrong_clock", run) {
            panic!("{why}");
        }
    }
}

#[test]
fn slow_disks_hold_up_no_warm_key_and_change_the_leader_only_if_that_helps() {
    let one = number("RATCHET_SIM_SEED");
    let seeds = match one {
        Some(seed) => vec![seed],
        None => Vec::from_iter(1..=SLOW_DISKS_SEEDS),
    };
    for seed in seeds {
        let run = move || slow_disks::run(seed, one.is_some());
        if let Err(why) = on_fresh_thread(seed, RUN_MAX, "slow_disks", run) {
            panic!("{why}");
        }
    }
}

#[test]
fn a_term_that_is_given_up() {
    let one = number("RATCHET_SIM_SEED");
    let seeds = match one {
        Some(seed) => vec![seed],
        None => Vec::from_iter(1..=GIVEN_UP_SEEDS),
    };
    for seed in seeds {
        for way in given_up::WAYS {
            let started = Instant::now();
            let run = move || given_up::run(way, seed, one.is_some());
            if let Err(why) = on_fresh_thread(seed, RUN_MAX, "a_term_that_is_given_up", run) {
                panic!("{why}");
            }
            println!("seed {seed}, {way:?}: {:.1} s", started.elapsed().as_secs_f64());
        }
    }
}

#[test]
fn one_seed() {
    let seed = number("RATCHET_SIM_SEED");
    match in_time(seed.unwrap_or(1), seed.is_some()) {
        Ok(report) => println!("{report:#?}"),
        Err(why) => panic!("{why}"),
    }
}

#[test]
fn many_keys() {
    let one = number("RATCHET_SIM_SEED");
    let keys = number("RATCHET_SIM_KEYS").unwrap_or(MANY_KEYS);
    let keys = u32::try_from(keys).expect("fewer keys");
    let seeds = match one {
        Some(seed) => vec![seed],
        None => Vec::from_iter(1..=MANY_KEYS_SEEDS),
    };
    for seed in seeds {
        let started = Instant::now();
        let run = move || many_keys::run(seed, keys, one.is_some());
        match on_fresh_thread(seed, RUN_MAX, "many_keys", run) {
            Ok(report) => println!(
                "seed {seed} with {keys} keys in {:.0} s: {:?}",
                started.elapsed().as_secs_f64(),
                report.counts
            ),
            Err(why) => panic!("{why}"),
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 1..=10 {
        let once = || in_time(seed, false).expect("no failure");
        let (first, second) = (once(), once());
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
#[ignore = "runs until it is stopped: cargo test --test sim -- --ignored forever --nocapture"]
fn forever() {
    // Begins with another seed each time, unless one is given.
    let since_epoch = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    let first = number("RATCHET_SIM_FIRST").unwrap_or(since_epoch.as_secs() * 1_000);
    let (started, done) = (Instant::now(), AtomicU64::new(0));
    run_seeds(
        first,
        |_| true,
        |seed, _| {
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done % 100 == 0 {
                let minutes = started.elapsed().as_secs_f64() / 60.0;
                println!("{done} seeds, up to {seed}, {:.0} a minute", done as f64 / minutes);
            }
        },
    );
}

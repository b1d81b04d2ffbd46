//! The costs of the ways to a number, in instructions. Seconds differ from run to run on a busy machine; these counts hardly
//! do, so a change that makes a way dearer is seen at once.
//!
//! `bench/instructions` builds this program, runs it under valgrind's callgrind, and compares the counts with those in
//! `bench/instructions.txt`. Callgrind counts the instructions inside the functions of [`ways`] whose names begin with
//! `counted_`, and nothing else.
//!
//! A whole cluster of three nodes is in this process, on one thread: the product from its handlers down to RocksDB. The time
//! stands still while anybody has something to do, the network is in memory, and a seed decides all random choices. So each
//! run does the same.

mod cluster;
mod ways;

use std::process::ExitCode;

use cluster::Cluster;
use ratchet::node::Config;

/// How many calls of each way are counted.
const CALLS: u64 = 1_000;

fn main() -> ExitCode {
    // --plant N: N percent more calls are made than are said, to show that `bench/instructions` notices.
    let more = match std::env::args().skip_while(|word| word != "--plant").nth(1) {
        None => 0,
        Some(word) => match word.parse::<u64>() {
            Ok(percent) => percent,
            Err(error) => {
                eprintln!("--plant takes a whole number of percent, not {word:?}: {error}");
                return ExitCode::from(2);
            }
        },
    };
    let calls = CALLS + CALLS * more / 100;
    ratchet::random::seed_this_thread(1);
    println!("calls {CALLS}, of many keys {}", ways::calls_of_many_keys(CALLS));
    let mut cluster = Cluster::start(|_| {});
    ways::count_all(&mut cluster, calls);
    drop(cluster);
    // The counts above are of nodes whose traces are off.
    ways::count_unsampled(&Cluster::start(|config| trace(config, "0")), calls);
    ways::count_traced(&Cluster::start(|config| trace(config, "1")), calls);
    ExitCode::SUCCESS
}

/// Has a node trace this part of the calls. Nobody sends the spans: the room for waiting spans is enough for all.
fn trace(config: &mut Config, sample: &str) {
    config.otlp_endpoint = Some("http://127.0.0.1:4317".to_owned());
    config.otlp_sample = sample.parse().expect("a sample");
}

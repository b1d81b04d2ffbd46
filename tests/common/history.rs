//! Callers that take numbers, and the history of their calls, which the checker judges.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ratchet_jepsen::{
    checker::check_order,
    history::{Action, Interface, Outcome},
};
use tokio::task::JoinSet;

use super::{Client, id};

/// One answered call.
#[derive(Debug, Clone, Copy)]
pub struct Op {
    pub key: u64,
    pub invoked: Instant,
    pub returned: Instant,
    pub first: u64,
    pub last: u64,
}

/// The calls of all callers of a test. A call without an answer may have used up numbers and says
/// nothing about order, so it is only counted.
#[derive(Debug, Default)]
pub struct History {
    pub ops: Vec<Op>,
    pub failed: usize,
    pub failures: HashMap<String, usize>,
}

impl History {
    /// Fails unless ranges are disjoint and every call's numbers lie above the numbers of all calls
    /// that had returned before it began.
    pub fn assert_strictly_increasing(&self) {
        let Some(start) = self.ops.iter().map(|op| op.invoked).min() else {
            return;
        };
        let since_start = |t: Instant| t.duration_since(start).as_nanos() as u64;
        let seen = self.ops.iter().map(|op| ratchet_jepsen::history::Op {
            process: 0,
            key: op.key.to_string(),
            action: Action::Next { count: op.last - op.first + 1 },
            invoked_ns: since_start(op.invoked),
            returned_ns: Some(since_start(op.returned)),
            outcome: Outcome::Ok,
            first: op.first,
            last: op.last,
            node: 0,
            interface: Interface::Unary,
            note: String::new(),
        });
        let history = ratchet_jepsen::history::History { ops: seen.collect() };
        if let Err(violation) = check_order(&history) {
            panic!("{violation}");
        }
    }

    /// Fails unless the numbers of `key` are `from`, `from + 1`, ... with none missing.
    pub fn assert_without_gap(&self, key: u64, from: u64) {
        let mut ops: Vec<&Op> = self.ops.iter().filter(|op| op.key == key).collect();
        ops.sort_by_key(|op| op.first);
        let mut expected = from;
        for op in ops {
            assert_eq!(op.first, expected, "key {key}: numbers are missing before {op:?}");
            expected = op.last + 1;
        }
    }

    /// The longest time in which no call returned, from `from` on (and up to `until`).
    pub fn longest_silence(&self, from: Instant, until: Option<Instant>) -> Duration {
        let within = |t: &Instant| *t >= from && until.is_none_or(|until| *t < until);
        let returned = self.ops.iter().map(|op| op.returned).filter(within);
        let mut moments: Vec<Instant> = returned.chain([from]).collect();
        moments.sort();
        let gaps = moments.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().unwrap_or_default()
    }

    pub fn highest(&self, key: u64) -> u64 {
        let of_key = self.ops.iter().filter(|op| op.key == key);
        of_key.map(|op| op.last).max().unwrap_or(0)
    }
}

/// Callers that take numbers until told to stop.
pub struct Load {
    stop: Arc<AtomicBool>,
    history: Arc<Mutex<History>>,
    callers: JoinSet<()>,
}

impl Load {
    /// `callers` callers spread over `addresses` and over `keys` keys, each one call at a time.
    pub fn start(addresses: &[SocketAddr], callers: usize, keys: u64) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let history = Arc::new(Mutex::new(History::default()));
        let mut set = JoinSet::new();
        for caller in 0..callers {
            let client = Client::new(addresses[caller % addresses.len()]);
            let (stop, history) = (stop.clone(), history.clone());
            set.spawn(call(client, caller as u64 % keys, stop, history));
        }
        Load { stop, history, callers: set }
    }

    /// How many calls were answered so far.
    pub fn answered(&self) -> usize {
        self.history.lock().unwrap().ops.len()
    }

    /// Waits until `more` further calls were answered.
    pub async fn answers(&self, more: usize) {
        let enough = self.answered() + more;
        let waiting = async {
            while self.answered() < enough {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(super::PATIENCE, waiting).await;
        waited.unwrap_or_else(|_| {
            let history = self.history.lock().unwrap();
            panic!("answers stopped coming; failures: {:?}", history.failures)
        });
    }

    /// Stops the callers; returns the history of their calls.
    pub async fn finish(mut self) -> History {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(done) = self.callers.join_next().await {
            done.expect("a caller");
        }
        std::mem::take(&mut self.history.lock().unwrap())
    }
}

async fn call(mut client: Client, key: u64, stop: Arc<AtomicBool>, history: Arc<Mutex<History>>) {
    while !stop.load(Ordering::Relaxed) {
        let invoked = Instant::now();
        let answer = client.try_next("book", id(key), 1).await;
        let returned = Instant::now();
        let failed = {
            let mut history = history.lock().unwrap();
            match answer {
                Ok(answer) => {
                    history.ops.push(Op {
                        key,
                        invoked,
                        returned,
                        first: answer.first,
                        last: answer.last,
                    });
                    false
                }
                Err(status) => {
                    history.failed += 1;
                    let text = format!("{:?}: {}", status.code(), status.message());
                    *history.failures.entry(text).or_default() += 1;
                    true
                }
            }
        };
        if failed {
            // A node that is down refuses at once: do not spin.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

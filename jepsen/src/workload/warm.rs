//! Callers of warm keys: keys that have numbers in the leader's memory.
//!
//! They ask for nothing else, and for so few numbers that no key runs out of its numbers. So no call of theirs needs a disk:
//! a slow answer has another cause.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet, time::Instant};

use super::recorded::ask;
use crate::{
    address::Address,
    client::Client,
    history::{Action, Outcome},
    nodes::KnownNodes,
    record::Recorder,
    target::{OWN, Target},
};

/// The first of the warm keys. No other caller asks for them.
const FIRST: u64 = 1 << 32;
/// How many there are.
const KEYS: u64 = 5;
/// The pause between two calls of one caller.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the keys may take to become warm. If they do not, their callers are not answered either, and that is found.
const WARM_UP_MAX: Duration = Duration::from_secs(10);
const ONE: Action = Action::Next { count: 1 };

/// When the caller of warm keys at one node was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The node.
    pub node: u64,
    /// The moments, in nanoseconds since the start of the run.
    pub at_ns: Vec<u64>,
}

/// Callers of warm keys at work, one at each node.
pub struct WarmCallers {
    tasks: JoinSet<Answered>,
    stop: watch::Sender<bool>,
}

impl WarmCallers {
    /// Makes the keys warm, and starts the callers.
    pub async fn start(nodes: &KnownNodes, recorder: &Arc<Recorder>) -> WarmCallers {
        let nodes = nodes.read().clone();
        if let Some(node) = nodes.first() {
            let mut caller = Caller::new(node.clone(), recorder);
            let until = Instant::now() + WARM_UP_MAX;
            while caller.calls < KEYS && Instant::now() < until {
                caller.call().await;
            }
        }
        let stop = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        for node in nodes {
            let mut caller = Caller::new(node, recorder);
            let mut stopped = stop.subscribe();
            tasks.spawn(async move {
                while !*stopped.borrow_and_update() {
                    caller.call().await;
                }
                caller.answered
            });
        }
        WarmCallers { tasks, stop }
    }

    /// Stops them, each after its current call. Returns when each was answered.
    pub async fn stop(mut self) -> Vec<Answered> {
        self.stop.send_replace(true);
        let mut answered = Vec::new();
        while let Some(ended) = self.tasks.join_next().await {
            answered.push(ended.expect("a caller panicked"));
        }
        answered
    }
}

/// Asks for one warm key after the other.
struct Caller {
    client: Client,
    recorder: Arc<Recorder>,
    process: u64,
    /// How many calls were answered.
    calls: u64,
    answered: Answered,
}

impl Caller {
    fn new((node, address): (u64, Address), recorder: &Arc<Recorder>) -> Caller {
        Caller {
            client: Client::new(address),
            recorder: recorder.clone(),
            process: recorder.new_process(),
            calls: 0,
            answered: Answered { node, at_ns: Vec::new() },
        }
    }

    async fn call(&mut self) {
        let target = Target { namespace: OWN, id: FIRST + self.calls % KEYS };
        let node = self.answered.node;
        let outcome = ask(&self.recorder, &mut self.client, node, self.process, &target, ONE).await;
        match outcome {
            Outcome::Ok => {
                self.calls += 1;
                self.answered.at_ns.push(self.recorder.now());
            }
            // A process whose operation has an unknown outcome retires.
            Outcome::Info => self.process = self.recorder.new_process(),
            Outcome::Fail => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

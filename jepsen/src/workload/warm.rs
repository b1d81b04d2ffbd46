//! Callers of warm keys: keys that have numbers in the leader's memory.
//!
//! They ask for nothing else, and for so few numbers that no key runs out of its numbers. So no call of theirs needs a disk:
//! a slow answer has another cause.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet, time::Instant};

use super::recorded::ask;
use crate::{
    address::Address,
    callers::CallersAtWork,
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

/// Makes the keys warm, and starts the callers, one at each node. A task returns the moments at which its caller was answered.
pub async fn start_warm_callers(
    nodes: &KnownNodes, recorder: &Arc<Recorder>,
) -> CallersAtWork<Answered> {
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
        let stopped = stop.subscribe();
        tasks.spawn(async move {
            while !*stopped.borrow() {
                caller.call().await;
            }
            caller.answered
        });
    }
    CallersAtWork { tasks, stop }
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

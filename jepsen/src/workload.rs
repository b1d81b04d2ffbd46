//! What callers ask for: which keys, how many numbers, at which nodes.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use clap::ValueEnum;
use parking_lot::RwLock;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{
    client::{self, Client, Target},
    history::{Action, Op, Outcome},
    record::Recorder,
};

/// The namespace whose keys have a section each.
pub const OWN: &str = "own";
/// The namespace whose keys share sections.
pub const SHARED: &str = "shared";
/// How many ids share a section of [`SHARED`].
pub const SHARED_SECTION_SIZE: u64 = 50;

/// The kinds of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// All callers want the same key.
    HotKey,
    /// A hundred keys with a section each.
    ManyKeys,
    /// A hundred keys in two sections.
    Sections,
    /// Ranges of up to 50 numbers.
    Ranges,
    /// Every other call reads.
    Reads,
    /// All of these by turns.
    Mixed,
}

impl Workload {
    /// What the next call asks for.
    fn draw(self, rng: &mut StdRng) -> (Target, Action) {
        let own = |id| Target { namespace: OWN, id };
        let one = Action::Next { count: 1 };
        match self {
            Workload::HotKey => (own(1), one),
            Workload::ManyKeys => (own(rng.random_range(1..=100)), one),
            Workload::Sections => {
                let id = rng.random_range(0..2 * SHARED_SECTION_SIZE);
                let namespace = SHARED;
                (Target { namespace, id }, one)
            }
            Workload::Ranges => {
                let count = rng.random_range(1..=50);
                (own(rng.random_range(1..=5)), Action::Next { count })
            }
            Workload::Reads => {
                let action = if rng.random_bool(0.5) {
                    Action::Current
                } else {
                    one
                };
                (own(rng.random_range(1..=3)), action)
            }
            Workload::Mixed => {
                let all = [
                    Workload::HotKey,
                    Workload::ManyKeys,
                    Workload::Sections,
                    Workload::Ranges,
                    Workload::Reads,
                ];
                all[rng.random_range(0..all.len())].draw(rng)
            }
        }
    }
}

/// The nodes that callers know, which may change during a run.
pub type Nodes = Arc<RwLock<Vec<(u64, SocketAddr)>>>;

/// Callers at work.
pub struct Callers {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

/// A caller: one operation at a time.
struct Caller {
    recorder: Arc<Recorder>,
    nodes: Nodes,
    process: u64,
    /// Its place among the callers; it stays at one node if that is odd.
    place: usize,
    client: Option<(u64, Client)>,
    rng: StdRng,
    calls: u64,
}

impl Callers {
    /// Starts `count` callers, half of them stuck to a node, half roaming.
    pub fn start(
        workload: Workload,
        count: usize,
        nodes: &Nodes,
        recorder: &Arc<Recorder>,
        seed: u64,
    ) -> Callers {
        let stop = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        for place in 0..count {
            let mut caller = Caller {
                recorder: recorder.clone(),
                nodes: nodes.clone(),
                process: recorder.new_process(),
                place,
                client: None,
                rng: StdRng::seed_from_u64(seed.wrapping_add(place as u64)),
                calls: 0,
            };
            let mut stopped = stop.subscribe();
            tasks.spawn(async move {
                while !*stopped.borrow_and_update() {
                    let (target, action) = workload.draw(&mut caller.rng);
                    caller.call(&target, action).await;
                }
            });
        }
        Callers { tasks, stop }
    }

    /// Stops them, each after the call that it is at.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Caller {
    fn choose(&mut self) -> (u64, SocketAddr) {
        let nodes = self.nodes.read();
        if self.place % 2 == 1 {
            return nodes[self.place / 2 % nodes.len()];
        }
        // A roaming caller stays for a few calls, so that connections are reused.
        if let Some((at, _)) = &self.client
            && !self.calls.is_multiple_of(8)
            && let Some(node) = nodes.iter().find(|node| node.0 == *at)
        {
            return *node;
        }
        nodes[self.rng.random_range(0..nodes.len())]
    }

    async fn call(&mut self, target: &Target, action: Action) {
        let (node, address) = self.choose();
        self.calls += 1;
        if self.client.as_ref().is_none_or(|(at, _)| *at != node) {
            self.client = Some((node, Client::new(address)));
        }
        let Some((_, client)) = &mut self.client else {
            return;
        };
        let ok = ask(&self.recorder, client, node, self.process, target, action).await;
        if ok == Outcome::Info {
            self.process = self.recorder.new_process();
        }
        if ok != Outcome::Ok {
            // A node that is down refuses thousands of times a second: that would only heat the room.
            let pause = self.rng.random_range(5..20);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }
}

/// Makes one call and records it.
pub async fn ask(
    recorder: &Recorder,
    client: &mut Client,
    node: u64,
    process: u64,
    target: &Target,
    action: Action,
) -> Outcome {
    let invoked_ns = recorder.now();
    let answer = client.ask(target, action).await;
    let returned_ns = Some(recorder.now());
    let (outcome, (first, last), note) = match answer {
        Ok(answer) => (Outcome::Ok, answer, String::new()),
        Err(status) => {
            let note = format!("{:?}: {}", status.code(), status.message());
            (client::outcome(&status), (0, 0), note)
        }
    };
    recorder.push(Op {
        process,
        key: target.name(),
        action,
        invoked_ns,
        returned_ns,
        outcome,
        first,
        last,
        node,
        note,
    });
    outcome
}

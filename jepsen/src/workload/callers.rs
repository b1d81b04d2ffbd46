//! The callers.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratchet_client::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::Status;

use crate::{
    client::{self, Client, Target},
    history::{Action, Outcome},
    nodes::Nodes,
    record::Recorder,
};

use super::{
    kinds::{SHARED, SHARED_SECTION_SIZE, Workload},
    library::Library,
    recorded::{ask, note},
};

/// What callers ask for, all together.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// The kind.
    pub workload: Workload,
    /// How many keys the kinds with many keys have.
    pub keys: u64,
    /// How many operations may end in a second: it bounds the history.
    pub per_second_max: u64,
    /// What all chance comes from.
    pub seed: u64,
}

impl Asked {
    /// How many keys a message on a stream asks for.
    fn message_keys(&self) -> u64 {
        if self.keys > MANY_KEYS {
            MESSAGE_KEYS_OF_MANY
        } else {
            MESSAGE_KEYS
        }
    }

    /// How many ids are asked for in [`SHARED`].
    fn shared_ids(&self) -> u64 {
        self.keys.max(2 * SHARED_SECTION_SIZE)
    }

    /// Waits while more has ended than may have.
    async fn hold_back(&self, recorder: &Recorder) {
        loop {
            // A second's worth may come at once.
            let seconds = 1.0 + recorder.now() as f64 / 1e9;
            if recorder.recorded() as f64 <= seconds * self.per_second_max as f64 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Callers at work.
pub struct Callers {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

/// By which door a caller asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    /// A call for each number or range.
    Unary,
    /// A stream, with a message for several keys.
    Stream,
    /// The product's own client, which all such callers share. It may try many times on the way, which
    /// the bound for gaps does not know: such callers ask for keys of [`SHARED`] alone.
    Library,
}

/// How many keys a message on a stream asks for, and from how many keys on it asks for more.
const MESSAGE_KEYS: u64 = 3;
const MANY_KEYS: u64 = 1_000;
const MESSAGE_KEYS_OF_MANY: u64 = 64;

/// A caller: one operation at a time, or one for each key of a message.
struct Caller {
    asked: Asked,
    recorder: Arc<Recorder>,
    nodes: Nodes,
    door: Door,
    product: Arc<Library>,
    process: u64,
    /// Those of the other keys of a message.
    others: Vec<u64>,
    /// Its place among the callers; it stays at one node if that is odd.
    place: usize,
    client: Option<(u64, Client)>,
    rng: StdRng,
    calls: u64,
}

impl Callers {
    /// Starts `count` callers, half of them stuck to a node, half roaming.
    pub fn start(asked: Asked, count: usize, nodes: &Nodes, recorder: &Arc<Recorder>) -> Callers {
        let stop = watch::Sender::new(false);
        let product = Arc::new(Library::new(nodes.clone()));
        let mut tasks = JoinSet::new();
        for place in 0..count {
            let mut caller = Caller {
                asked,
                recorder: recorder.clone(),
                nodes: nodes.clone(),
                // Those that stay and those that roam, by each door.
                door: [Door::Unary, Door::Stream, Door::Library][place / 2 % 3],
                product: product.clone(),
                process: recorder.new_process(),
                others: (1..asked.message_keys())
                    .map(|_| recorder.new_process())
                    .collect(),
                place,
                client: None,
                rng: StdRng::seed_from_u64(asked.seed.wrapping_add(place as u64)),
                calls: 0,
            };
            let mut stopped = stop.subscribe();
            tasks.spawn(async move {
                while !*stopped.borrow_and_update() {
                    asked.hold_back(&caller.recorder).await;
                    let (target, action) = asked.workload.draw(asked.keys, &mut caller.rng);
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
        if let (Door::Library, Action::Next { count }) = (self.door, action) {
            return self.call_library(target, count).await;
        }
        let (node, address) = self.choose();
        self.calls += 1;
        if self.client.as_ref().is_none_or(|(at, _)| *at != node) {
            self.client = Some((node, Client::new(address)));
        }
        let Some((_, client)) = &mut self.client else {
            return;
        };
        let ok = match (self.door, action) {
            (Door::Stream, Action::Next { count }) => {
                let targets: Vec<Target> = (0..self.asked.message_keys())
                    .map(|more| Target {
                        id: target.id + more,
                        ..target.clone()
                    })
                    .collect();
                let invoked_ns = self.recorder.now();
                let counts = vec![count; targets.len()];
                let answers = client.ask_many(&targets, &counts).await;
                let processes = [&mut self.process].into_iter().chain(&mut self.others);
                let mut outcome = Outcome::Ok;
                for (place, (process, target)) in processes.zip(&targets).enumerate() {
                    let answer = match &answers {
                        Ok(answers) => answers.get(place).copied().ok_or_else(none_for_it),
                        Err(status) => Err(status.clone()),
                    };
                    let op = (node, *process, target, action);
                    outcome = note(&self.recorder, invoked_ns, op, answer);
                    if outcome == Outcome::Info {
                        *process = self.recorder.new_process();
                    }
                }
                outcome
            }
            _ => {
                let process = self.process;
                let ok = ask(&self.recorder, client, node, process, target, action).await;
                if ok == Outcome::Info {
                    self.process = self.recorder.new_process();
                }
                ok
            }
        };
        self.pause_unless(ok).await;
    }

    /// Asks by way of the product's client, which knows itself whom to ask.
    async fn call_library(&mut self, target: &Target, count: u64) {
        let target = Target {
            namespace: SHARED,
            id: target.id % self.asked.shared_ids(),
        };
        let Some(client) = self.product.client() else {
            return;
        };
        let invoked_ns = self.recorder.now();
        let answer = client.next_range(SHARED, target.id, count).await;
        let answer = match answer {
            Ok(numbers) => Ok((numbers.first, numbers.last)),
            // What the client's own check refused, the checker is to see.
            Err(Error::Disorder { number, .. }) => Ok((number, number)),
            Err(other) => Err(client::status_of(&other)),
        };
        let op = (0, self.process, &target, Action::Next { count });
        let outcome = note(&self.recorder, invoked_ns, op, answer);
        if outcome == Outcome::Info {
            self.process = self.recorder.new_process();
        }
        self.pause_unless(outcome).await;
    }

    async fn pause_unless(&mut self, ok: Outcome) {
        if ok != Outcome::Ok {
            // A node that is down refuses thousands of times a second: that would only heat the room.
            let pause = self.rng.random_range(5..20);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }
}

fn none_for_it() -> Status {
    Status::internal("no number for the key")
}

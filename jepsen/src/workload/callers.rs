//! The callers: who asks, through which interface, at which node.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratchet_client::Error;
use tokio::{sync::watch, task::JoinSet};
use tonic::Status;

use super::{
    kinds::Workload,
    product_client::ProductClient,
    recorded::{Invocation, ask},
};
use crate::{
    client::{self, Answer, Client},
    history::{Action, Outcome},
    nodes::KnownNodes,
    record::Recorder,
    target::{SHARED, SHARED_SECTION_SIZE, Target},
};

/// The node under which calls of the product's client are recorded: it chooses the node itself.
pub const PRODUCT_CLIENT_NODE: u64 = 0;

/// How many keys a message on a stream asks for.
const MESSAGE_KEYS: u64 = 3;
/// The same for workloads with more than [`MANY_KEYS`] keys.
const MESSAGE_KEYS_OF_MANY: u64 = 64;
const MANY_KEYS: u64 = 1_000;
/// For how many calls a roaming caller stays at a node, so that connections are reused.
const CALLS_PER_NODE: u64 = 8;

/// What all callers together ask for.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadConfig {
    /// The kind.
    pub workload: Workload,
    /// How many keys the kinds with many keys have.
    pub keys: u64,
    /// How many operations may end in a second. This bounds the history.
    pub per_second_max: u64,
    /// The seed of all random choices.
    pub seed: u64,
}

impl WorkloadConfig {
    /// How many keys a message on a stream asks for.
    fn message_keys(&self) -> u64 {
        if self.keys > MANY_KEYS {
            MESSAGE_KEYS_OF_MANY
        } else {
            MESSAGE_KEYS
        }
    }

    /// How many ids of [`SHARED`] are asked for.
    fn shared_ids(&self) -> u64 {
        self.keys.max(2 * SHARED_SECTION_SIZE)
    }

    /// Waits while more operations have ended than `per_second_max` allows.
    async fn hold_back(&self, recorder: &Recorder) {
        loop {
            // The operations of one second may end at once.
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

/// How a caller asks for numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interface {
    /// A call for each number or range.
    Unary,
    /// A stream, with messages for several keys.
    Stream,
    /// The product's own client, which all such callers share. It may try many times on the way, and the
    /// bound for gaps does not know how often. Such callers ask for keys of [`SHARED`] only, whose gaps are
    /// not counted.
    ProductClient,
}

/// A caller: one operation at a time, or one for each key of a message.
struct Caller {
    config: WorkloadConfig,
    recorder: Arc<Recorder>,
    nodes: KnownNodes,
    interface: Interface,
    product: Arc<ProductClient>,
    process: u64,
    /// The processes of the other keys of a message.
    other_processes: Vec<u64>,
    /// Its place among the callers. It stays at one node if that is odd.
    place: usize,
    client: Option<(u64, Client)>,
    rng: StdRng,
    calls: u64,
}

impl Callers {
    /// Starts `count` callers. Half of them stay at one node, half change nodes.
    pub fn start(
        config: WorkloadConfig,
        count: usize,
        nodes: &KnownNodes,
        recorder: &Arc<Recorder>,
    ) -> Callers {
        let stop = watch::Sender::new(false);
        let product = Arc::new(ProductClient::new(nodes.clone()));
        let mut tasks = JoinSet::new();
        for place in 0..count {
            let interfaces = [
                Interface::Unary,
                Interface::Stream,
                Interface::ProductClient,
            ];
            let mut caller = Caller {
                config,
                recorder: recorder.clone(),
                nodes: nodes.clone(),
                // Each interface gets callers that stay and callers that roam.
                interface: interfaces[place / 2 % interfaces.len()],
                product: product.clone(),
                process: recorder.new_process(),
                other_processes: (1..config.message_keys())
                    .map(|_| recorder.new_process())
                    .collect(),
                place,
                client: None,
                rng: StdRng::seed_from_u64(config.seed.wrapping_add(place as u64)),
                calls: 0,
            };
            let mut stopped = stop.subscribe();
            tasks.spawn(async move {
                while !*stopped.borrow_and_update() {
                    config.hold_back(&caller.recorder).await;
                    let (target, action) = config.workload.draw(config.keys, &mut caller.rng);
                    caller.call(&target, action).await;
                }
            });
        }
        Callers { tasks, stop }
    }

    /// Stops them, each after its current call.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Caller {
    fn choose_node(&mut self) -> (u64, SocketAddr) {
        let nodes = self.nodes.read();
        if self.place % 2 == 1 {
            return nodes[self.place / 2 % nodes.len()];
        }
        if let Some((current, _)) = &self.client
            && !self.calls.is_multiple_of(CALLS_PER_NODE)
            && let Some(node) = nodes.iter().find(|node| node.0 == *current)
        {
            return *node;
        }
        nodes[self.rng.random_range(0..nodes.len())]
    }

    async fn call(&mut self, target: &Target, action: Action) {
        let outcome = match (self.interface, action) {
            (Interface::ProductClient, Action::Next { count }) => {
                self.call_product_client(target, count).await
            }
            (Interface::Stream, Action::Next { count }) => self.call_stream(target, count).await,
            (Interface::Unary, _)
            | (
                Interface::Stream | Interface::ProductClient,
                Action::Current | Action::Raise { .. },
            ) => self.call_unary(target, action).await,
        };
        if outcome != Outcome::Ok {
            // A node that is down refuses thousands of times a second. That would only use up the CPU.
            let pause_ms = self.rng.random_range(5..20);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    /// A node to ask, and the connection to it.
    fn connect(&mut self) -> (u64, Client) {
        let (node, address) = self.choose_node();
        self.calls += 1;
        match self.client.take() {
            Some((current, client)) if current == node => (node, client),
            Some(_) | None => (node, Client::new(address)),
        }
    }

    async fn call_unary(&mut self, target: &Target, action: Action) -> Outcome {
        let (node, mut client) = self.connect();
        let outcome = ask(
            &self.recorder,
            &mut client,
            node,
            self.process,
            target,
            action,
        )
        .await;
        self.client = Some((node, client));
        renew_process(&self.recorder, &mut self.process, outcome);
        outcome
    }

    /// Asks for `count` numbers each of `target` and the keys after it, in one message. Returns the outcome
    /// of the last key.
    async fn call_stream(&mut self, target: &Target, count: u64) -> Outcome {
        let (node, mut client) = self.connect();
        let targets: Vec<Target> = (0..self.config.message_keys())
            .map(|more| Target {
                id: target.id + more,
                ..target.clone()
            })
            .collect();
        let invoked_ns = self.recorder.now();
        let counts = vec![count; targets.len()];
        let answers = client.ask_many(&targets, &counts).await;
        self.client = Some((node, client));
        let processes = [&mut self.process]
            .into_iter()
            .chain(&mut self.other_processes);
        let mut outcome = Outcome::Ok;
        for (place, (process, target)) in processes.zip(&targets).enumerate() {
            let invocation = Invocation {
                invoked_ns,
                node,
                process: *process,
                target,
                action: Action::Next { count },
            };
            outcome = invocation.complete(&self.recorder, answer_at(&answers, place));
            renew_process(&self.recorder, process, outcome);
        }
        outcome
    }

    /// Asks with the product's client, which chooses the node itself.
    async fn call_product_client(&mut self, target: &Target, count: u64) -> Outcome {
        let target = Target {
            namespace: SHARED,
            id: target.id % self.config.shared_ids(),
        };
        let Ok(client) = self.product.get() else {
            return Outcome::Fail;
        };
        let invocation = Invocation {
            invoked_ns: self.recorder.now(),
            node: PRODUCT_CLIENT_NODE,
            process: self.process,
            target: &target,
            action: Action::Next { count },
        };
        let answer = match client.next_range(SHARED, target.id, count).await {
            Ok(numbers) => Ok((numbers.first, numbers.last)),
            // The client's own check refused this answer. The checker must see it.
            Err(Error::Disorder { number, .. }) => Ok((number, number)),
            Err(other) => Err(client::status_of(&other)),
        };
        let outcome = invocation.complete(&self.recorder, answer);
        renew_process(&self.recorder, &mut self.process, outcome);
        outcome
    }
}

/// A process whose operation has an unknown outcome retires.
fn renew_process(recorder: &Recorder, process: &mut u64, outcome: Outcome) {
    if outcome == Outcome::Info {
        *process = recorder.new_process();
    }
}

fn answer_at(answers: &Result<Vec<Answer>, Status>, place: usize) -> Result<Answer, Status> {
    let answers = answers.as_ref().map_err(Clone::clone)?;
    let answer = answers.get(place).copied();
    answer.ok_or_else(|| Status::internal("no number for the key"))
}

//! What callers ask for: which keys, how many numbers, at which nodes.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use clap::ValueEnum;
use parking_lot::{Mutex, RwLock};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratchet_client::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::Status;

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
    /// Many keys with a section each, all as often.
    ManyKeys,
    /// Many keys with a section each, few of them often and most of them rarely.
    Skewed,
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
    /// For how many of its keys something must be answered, for a run to say anything of many keys.
    pub fn keys_min(self, keys: u64) -> u64 {
        match self {
            Workload::ManyKeys | Workload::Skewed => keys / 10,
            _ => 0,
        }
    }

    /// What the next call asks for, of so many keys where there are many.
    fn draw(self, keys: u64, rng: &mut StdRng) -> (Target, Action) {
        let own = |id| Target { namespace: OWN, id };
        let one = Action::Next { count: 1 };
        match self {
            Workload::HotKey => (own(1), one),
            Workload::ManyKeys => (own(rng.random_range(1..=keys)), one),
            Workload::Skewed => {
                // The first key takes part in one of twenty calls where there are 200 000, and the
                // first hundredth of the keys in three of ten.
                let place = rng.random::<f64>().powi(4) * keys as f64;
                (own(1 + place as u64), one)
            }
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
                all[rng.random_range(0..all.len())].draw(keys, rng)
            }
        }
    }
}

/// The nodes that callers know, which may change during a run.
pub type Nodes = Arc<RwLock<Known>>;

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

/// Nodes and where they listen.
type Known = Vec<(u64, SocketAddr)>;

/// The product's client, made anew when the nodes change.
struct Library {
    nodes: Nodes,
    made: Mutex<Option<(Known, ratchet_client::Client)>>,
}

impl Library {
    fn client(&self) -> Option<ratchet_client::Client> {
        let nodes = self.nodes.read().clone();
        let mut made = self.made.lock();
        if made.as_ref().is_none_or(|(of, _)| *of != nodes) {
            let servers: Vec<String> = nodes.iter().map(|node| node.1.to_string()).collect();
            let client = ratchet_client::Client::builder()
                .servers(servers)
                .timeout(client::DEADLINE)
                .build()
                .ok()?;
            *made = Some((nodes, client));
        }
        made.as_ref().map(|(_, client)| client.clone())
    }
}

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
        let product = Arc::new(Library {
            nodes: nodes.clone(),
            made: Mutex::default(),
        });
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
    note(
        recorder,
        invoked_ns,
        (node, process, target, action),
        answer,
    )
}

fn none_for_it() -> Status {
    Status::internal("no number for the key")
}

/// Records how a call by `process` at `node` ended.
fn note(
    recorder: &Recorder,
    invoked_ns: u64,
    (node, process, target, action): (u64, u64, &Target, Action),
    answer: Result<client::Answer, Status>,
) -> Outcome {
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

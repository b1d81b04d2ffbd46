//! The requests of clients, and the answers that they saw.
//!
//! The outcome of a call without a definite answer is unknown. Its client goes on as another process.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use rand::{RngExt, rngs::StdRng};
use ratchet::{
    node::{Asker, CheckedRequest, Origin, SequenceRequest},
    proto::{
        Operation,
        v1::{
            self, CreateNamespaceRequest, CurrentRequest, NextManyRequest, NextRequest,
            RaiseRequest, RaiseSectionsRequest, key::Kind,
        },
    },
};
use ratchet_jepsen::history::{Action, History, Interface, Op, Outcome};
use tonic::Status;

use crate::{
    clock,
    cluster::World,
    network::{CLIENTS, Delivery, Host},
};

/// Namespaces with small steps, so that ceilings are raised all the time.
const OWN: &str = "own";
const SHARED: &str = "shared";
const SPARSE: &str = "sparse";

/// The namespaces of the keys.
pub const NAMESPACES: [&str; 3] = [OWN, SHARED, SPARSE];

/// The keys: two with a section each, two that share a section, and one whose numbers are 100 apart.
pub const KEYS: [(&str, u64); 5] = [(OWN, 1), (OWN, 2), (SHARED, 11), (SHARED, 12), (SPARSE, 1)];

/// Keys of a namespace that is deleted and created again, with a section for both or for each. Their numbers go on growing.
/// Nobody judges the last one, nor a floor: a namespace that was created again has handed out none.
const AGAIN: [(&str, u64); 2] = [("again", 1), ("again", 2)];
/// Chunks of it last from the beginning of an epoch to a deletion: then nobody has logged the numbers that the epoch gave.
const AGAIN_STEP: u64 = 1_000;

/// Everything that the clients of a run did.
#[derive(Default)]
pub struct Record {
    history: Mutex<History>,
    processes: AtomicU64,
    stop: AtomicBool,
}

impl Record {
    /// Has the clients stop after their current calls.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// True once the clients are to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Adds an operation to the history.
    pub fn push(&self, op: Op) {
        self.history.lock().expect("a history").push(op);
    }

    pub fn new_process(&self) -> u64 {
        self.processes.fetch_add(1, Ordering::Relaxed)
    }

    /// The history that the clients saw.
    pub fn history(&self) -> History {
        self.history.lock().expect("a history").clone()
    }

    /// How many calls were answered.
    pub fn answered(&self) -> usize {
        self.history.lock().expect("a history").answered().count()
    }
}

/// A caller, which is another process of the history after each call of unknown outcome.
pub struct Client {
    pub world: Arc<World>,
    pub record: Arc<Record>,
    process: u64,
}

impl Client {
    pub fn new(world: &Arc<World>, record: &Arc<Record>) -> Client {
        Client { world: world.clone(), process: record.new_process(), record: record.clone() }
    }

    /// Asks `node` for numbers of a key, or for its last one; true if it was answered.
    pub async fn ask(
        &mut self, node: Host, (namespace, id): (&str, u64), action: Action, patience: Duration,
    ) -> bool {
        let invoked = clock::now();
        let answer = self.call(node, (namespace, id), action, patience).await;
        let returned = clock::now();
        let mut op = op(self.process, node, (namespace, id), action, (invoked, returned));
        match answer {
            Ok((first, last)) => {
                (op.first, op.last) = (first, last);
                self.world.trace.note(returned, "answer", (&op.key, first, last, op.process));
            }
            Err(status) => {
                op.outcome = Outcome::Info;
                op.returned_ns = None;
                op.note = self.world.legible(&status);
                self.world.trace.note(returned, "no answer", (&op.key, &op.note, op.process));
                self.process = self.record.new_process();
            }
        }
        let answered = op.outcome == Outcome::Ok;
        self.record.push(op);
        answered
    }

    async fn call(
        &self, node: Host, (namespace, id): (&str, u64), action: Action, patience: Duration,
    ) -> Result<(u64, u64), Status> {
        let namespace = namespace.to_owned();
        match action {
            Action::Current => {
                let message =
                    CurrentRequest { namespace, key: key(id), ..CurrentRequest::default() };
                let current = request_at(&self.world, node, message, patience).await?;
                let last = current.last.unwrap_or_default();
                Ok((last, last))
            }
            // Half of the ranges are asked for in messages for many keys.
            Action::Next { count } if count > 1 && count % 2 == 0 => {
                let (ids, counts) = (vec![id], vec![count]);
                let message =
                    NextManyRequest { namespace, ids, counts, ..NextManyRequest::default() };
                let answer = request_at(&self.world, node, message, patience).await?;
                let first = answer.firsts[0];
                Ok((first, first + (count - 1) * answer.increment))
            }
            Action::Next { count } => {
                let (key, count) = (key(id), Some(count));
                let message = NextRequest { namespace, key, count, ..NextRequest::default() };
                let range = request_at(&self.world, node, message, patience).await?;
                Ok((range.first, range.last))
            }
            Action::Raise { floor: at_least } => {
                let key = key(id);
                let message = RaiseRequest { namespace, key, at_least, ..RaiseRequest::default() };
                let raised = request_at(&self.world, node, message, patience).await?;
                Ok((raised.floor, raised.floor))
            }
        }
    }

    /// Raises the floor of the section that some keys share. Each of them counts as raised between the call and the answer
    /// to a look at its last number afterwards, which may lie above the section's floor.
    async fn raise_section(&self, node: Host, id: u64, floor: u64, patience: Duration) {
        let invoked = clock::now();
        let raise = RaiseSectionsRequest {
            namespace: SHARED.to_owned(),
            ids: vec![id],
            at_least: vec![floor],
            ..RaiseSectionsRequest::default()
        };
        let raised = request_at(&self.world, node, raise, patience).await;
        if raised.is_ok() {
            self.world.trace.note(clock::now(), "section raised", (id, floor));
        }
        for (namespace, id) in KEYS.into_iter().filter(|key| key.0 == SHARED) {
            let last = match &raised {
                Ok(_) => {
                    let key = (namespace, id);
                    self.call(node, key, Action::Current, patience).await
                }
                Err(status) => Err(status.clone()),
            };
            let (process, action) = (self.record.new_process(), Action::Raise { floor });
            let times = (invoked, clock::now());
            let mut op = op(process, node, (namespace, id), action, times);
            match last {
                Ok((first, last)) => (op.first, op.last) = (first, last),
                Err(status) => {
                    (op.outcome, op.returned_ns) = (Outcome::Info, None);
                    op.note = self.world.legible(&status);
                }
            }
            self.record.push(op);
        }
    }

    /// Asks until told to stop: stuck to a node, or another one each time.
    pub async fn keep_asking(mut self, mut rng: StdRng, stuck_to: Option<Host>) {
        let began = tokio::time::Instant::now();
        while !self.record.is_stopped() {
            let members: Vec<Host> = self.world.members().into_iter().collect();
            let node = match stuck_to {
                Some(node) if members.contains(&node) => node,
                _ => members[rng.random_range(0..members.len())],
            };
            let key = KEYS.get(rng.random_range(0..=KEYS.len()));
            let is_again = key.is_none();
            let key = key.copied().unwrap_or(AGAIN[rng.random_range(0..AGAIN.len())]);
            let floor = rng.random_range(1..=began.elapsed().as_millis() as u64 + 100);
            let drawn = rng.random_range(0..20);
            let patience = Duration::from_millis(rng.random_range(50..1_500));
            let action = match drawn {
                0..2 | 4 if is_again => {
                    let raise = Action::Raise { floor };
                    let action = if drawn == 4 { raise } else { Action::Current };
                    drop(self.call(node, key, action, patience).await);
                    continue;
                }
                0..4 if !is_again => Some(Action::Current),
                // The floor lies above the numbers that are handed out, or below: as time goes on, the numbers of some keys
                // are raised along.
                4 if key.1.is_multiple_of(2) => Some(Action::Raise { floor }),
                5 if key.0 == SHARED => None,
                4..8 => Some(Action::Next { count: rng.random_range(2..60) }),
                _ => Some(Action::Next { count: 1 }),
            };
            match action {
                Some(action) => drop(self.ask(node, key, action, patience).await),
                None => self.raise_section(node, key.1, floor, patience).await,
            }
            let pause = match rng.random_range(0..4) {
                0 => 0,
                1 => rng.random_range(1..50),
                _ => rng.random_range(1..10),
            };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }
}

/// A call that was answered, without its numbers.
pub fn op(
    process: u64, node: Host, (namespace, id): (&str, u64), action: Action,
    (invoked, returned): (Duration, Duration),
) -> Op {
    Op {
        process,
        key: format!("{namespace}/{id}"),
        action,
        invoked_ns: nanos(invoked),
        returned_ns: Some(nanos(returned)),
        outcome: Outcome::Ok,
        first: 0,
        last: 0,
        node,
        interface: Interface::Unary,
        note: String::new(),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("a short run")
}

/// A key, in a message.
pub fn key(id: u64) -> Option<v1::Key> {
    Some(v1::Key { kind: Some(Kind::Id(id)) })
}

/// Has `node` answer a request.
pub async fn request_at<Q: SequenceRequest<Answer: Send + 'static> + Clone + 'static>(
    world: &World, node: Host, request: Q, patience: Duration,
) -> Result<Q::Answer, Status> {
    // The answer leaves before the caller hangs up, as over gRPC.
    let time_to_answer = patience * 9 / 10;
    let (link, network) = ((CLIENTS, node), &world.network);
    let call = network.call(link, Delivery::Once, patience, request, {
        move |to, request| {
            async move {
                let deadline = tokio::time::Instant::now() + time_to_answer;
                let asked = CheckedRequest::new(request, Asker::node(1))?;
                let served = to.shared.numbers.serve(&asked, Origin::Client, deadline).await;
                served.map_err(Status::from)
            }
            .boxed()
        }
    });
    call.await
}

/// Has `node` see to an administrative request.
pub async fn administer<Q: Operation + Clone>(
    world: &World, node: Host, request: Q, patience: Duration,
) -> Result<Q::Answer, Status> {
    let call = world.network.call((CLIENTS, node), Delivery::Once, patience, request, {
        move |to, request| {
            async move {
                let deadline = tokio::time::Instant::now() + patience * 9 / 10;
                let asked = to.shared.operations.ask(&request, &Asker::node(1), deadline).await;
                asked.map(|(answer, _)| answer).map_err(Status::from)
            }
            .boxed()
        }
    });
    call.await
}

/// Creates the namespaces of the workload; returns when they are there.
pub async fn create_namespaces(world: &World, step: u64) {
    let namespace = |name: &str, section_size, increment, start| CreateNamespaceRequest {
        name: name.to_owned(),
        step: Some(step),
        // The step of sparse namespaces adapts to their use.
        step_min: (increment > 1).then_some(1),
        step_max: (increment > 1).then_some(step * 8),
        section_size: Some(section_size),
        increment: Some(increment),
        start: Some(start),
        ..CreateNamespaceRequest::default()
    };
    for namespace in
        [namespace(OWN, 1, 1, 1), namespace(SHARED, 10, 1, 1), namespace(SPARSE, 1, 100, 7)]
    {
        create_namespace(world, namespace).await;
    }
}

/// Deletes a namespace and creates it again, time after time, until `stop`.
pub async fn recreate(world: Arc<World>, mut rng: StdRng, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let again = CreateNamespaceRequest {
            name: AGAIN[0].0.to_owned(),
            step: Some(AGAIN_STEP),
            section_size: Some([1, 10][rng.random_range(0..2)]),
            ..CreateNamespaceRequest::default()
        };
        create_namespace(&world, again).await;
        let members: Vec<Host> = world.members().into_iter().collect();
        let node = members[rng.random_range(0..members.len())];
        if rng.random_bool(0.5) {
            // Callers ask already. After the first number, it is refused.
            let reshape = v1::UpdateNamespaceRequest {
                namespace: AGAIN[0].0.to_owned(),
                section_size: Some([1, 10][rng.random_range(0..2)]),
                ..v1::UpdateNamespaceRequest::default()
            };
            let reshaped = administer(&world, node, reshape, Duration::from_secs(1)).await;
            world.trace.note(clock::now(), "namespace reshaped", (node, reshaped.is_ok()));
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(300..2_500))).await;
        let members: Vec<Host> = world.members().into_iter().collect();
        let node = members[rng.random_range(0..members.len())];
        let delete = v1::DeleteNamespaceRequest {
            namespace: AGAIN[0].0.to_owned(),
            confirm: AGAIN[0].0.to_owned(),
            forget: false,
        };
        let deleted = administer(&world, node, delete, Duration::from_secs(1)).await;
        if deleted.is_ok() {
            world.trace.note(clock::now(), "namespace deleted", node);
        }
    }
}

/// Creates a namespace; returns when it is there.
pub async fn create_namespace(world: &World, namespace: CreateNamespaceRequest) {
    for attempt in 0.. {
        // Any of them may be down, or removed.
        let members: Vec<Host> = world.members().into_iter().collect();
        let node = members[attempt % members.len()];
        let done = administer(world, node, namespace.clone(), Duration::from_secs(1)).await;
        match done {
            Ok(_) => break,
            Err(status) if status.code() == tonic::Code::AlreadyExists => break,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The answer of a node to a request for its status.
pub async fn status_at(world: &World, node: Host) -> Option<v1::StatusResponse> {
    administer(world, node, v1::StatusRequest {}, Duration::from_millis(500)).await.ok()
}

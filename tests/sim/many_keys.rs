//! A run with very many keys, each with a section of its own, so that a memory that is handed over has many parts.
//!
//! 1. Every key gets a number.
//! 2. Leaders hand over while clients take numbers. No number may be skipped.
//! 3. Nodes crash, in the middle of handovers too, while clients take numbers.
//! 4. Every key gets a number again.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratchet::{
    node::Config,
    proto::v1::{CreateNamespaceRequest, CurrentRequest, NextManyRequest},
};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};
use tonic::Status;

use crate::{
    admin::{self, Job},
    answers::Answers,
    clock,
    cluster::{Cluster, World},
    fault::Fault,
    faults::Faults,
    network::{Host, Network, Weather},
    observed::{Report, no_panic, observe},
    trace::Trace,
    workload::{self, create_namespace, request_at},
};

const NAMESPACE: &str = "own";
const FOUNDERS: Host = 3;
/// How many keys a message has that asks for all keys.
const MESSAGE_KEYS: usize = 16_384;
/// How many such messages are under way at a time.
const MESSAGES: usize = 4;
const CLIENTS: usize = 4;
/// How many graceful changes there are before the faults.
const GRACEFUL_CHANGES: usize = 4;
/// How long a caller waits for an answer where no node fails.
const PATIENCE: Duration = Duration::from_secs(20);

const CALM: Weather = Weather { delay_ms: 2, lost: 0, twice: 0, late: 0 };

/// Runs one seed with so many keys. Call it on a fresh thread.
///
/// # Errors
/// If the run violates the promise or panics: why, the last events, and how to replay it.
pub fn run(seed: u64, keys: u32, loud: bool) -> Result<Report, String> {
    let command = format!("RATCHET_SIM_KEYS={keys} cargo test --test sim -- many_keys");
    observe(&command, seed, loud, |trace| simulate(seed, keys, trace))
}

/// The state that the parts of a run share.
struct Run {
    world: Arc<World>,
    keys: u32,
    answers: Mutex<Answers>,
    /// The first violation.
    violation: Mutex<Option<String>>,
    /// How many messages were answered.
    answered: AtomicU64,
    /// A node that clients do not ask; 0 for none.
    spared: AtomicU64,
    clients_stop: AtomicBool,
    /// Whether faults begin.
    striking: AtomicBool,
    /// Notified when all faults are to end.
    heal: Notify,
}

fn simulate(seed: u64, keys: u32, trace: &Arc<Trace>) -> Result<usize, String> {
    ratchet::random::seed_this_thread(seed);
    let mut rng = StdRng::seed_from_u64(seed);
    let network = Network::new(rng.random(), CALM, trace.clone());
    let config = Config {
        cluster: "sim".to_owned(),
        // Little of the log is kept, so that a node that was down gets a snapshot.
        log_keep_bytes: 64 << 10,
        recent_records_mb: [0, 64][rng.random_range(0..2)],
        disk_reserve_mb: 0,
        clock_apart_max_ms: 31_536_000_000,
        ..Config::default()
    };
    let world = World::new(network, trace.clone(), config, FOUNDERS);
    let mut cluster = Cluster::found(world.clone(), seed, &mut rng);
    let run = Arc::new(Run {
        world,
        keys,
        answers: Mutex::new(Answers::new(keys)),
        violation: Mutex::default(),
        answered: AtomicU64::new(0),
        spared: AtomicU64::new(0),
        clients_stop: AtomicBool::new(false),
        striking: AtomicBool::new(false),
        heal: Notify::new(),
    });
    let (jobs, todo) = mpsc::unbounded_channel();
    let verdict = Arc::new(Mutex::new(None));
    let (script, told) = (run.clone(), verdict.clone());
    let script_rng = StdRng::seed_from_u64(rng.random());
    let requested = jobs.clone();
    cluster.sim.client("clients", async move {
        let operators = tokio::spawn(admin::see_to(script.world.clone(), todo));
        let came_to = script.play(script_rng, requested).await;
        operators.abort();
        *told.lock().expect("a verdict") = Some(came_to);
        Ok(())
    });
    let kinds = vec![
        Fault::CrashLeader,
        Fault::CrashFarLeader,
        Fault::Crash,
        Fault::Transfer,
        Fault::HitHandover,
        Fault::Stop,
        Fault::IsolateLeader,
    ];
    let rng = StdRng::seed_from_u64(rng.random());
    let mut faults = Faults::new(rng, kinds, Duration::ZERO, CALM, FOUNDERS, jobs);
    let came_to = loop {
        faults.step(&mut cluster, run.striking.load(Relaxed));
        if futures::FutureExt::now_or_never(run.heal.notified()).is_some() {
            faults.heal(&mut cluster);
        }
        cluster.sim.step().map_err(|error| error.to_string())?;
        if let Some(came_to) = verdict.lock().expect("a verdict").take() {
            break came_to;
        }
        no_panic()?;
    };
    let came_to: Result<(), String> = came_to;
    came_to?;
    run.answers.lock().expect("answers").check_unique()?;
    Ok(run.answered.load(Relaxed) as usize)
}

impl Run {
    async fn play(
        self: Arc<Self>, mut rng: StdRng, jobs: mpsc::UnboundedSender<Job>,
    ) -> Result<(), String> {
        let namespace = CreateNamespaceRequest {
            name: NAMESPACE.to_owned(),
            step: Some(rng.random_range(5..50)),
            section_size: Some(1),
            ..CreateNamespaceRequest::default()
        };
        create_namespace(&self.world, namespace).await;
        self.ask_all().await?;
        let clients = self.start_clients(&mut rng);
        for _ in 0..GRACEFUL_CHANGES {
            self.change_gracefully(&mut rng, &jobs).await?;
        }
        drop(jobs);
        self.stop_clients(clients).await?;
        self.ask_all().await?;
        self.answers.lock().expect("answers").check_skipped(0)?;

        let clients = self.start_clients(&mut rng);
        self.striking.store(true, Relaxed);
        tokio::time::sleep(Duration::from_millis(rng.random_range(4_000..8_000))).await;
        self.striking.store(false, Relaxed);
        self.heal.notify_one();
        self.stop_clients(clients).await?;
        self.ask_all().await
    }

    /// Has the leader hand over, by a transfer or because it stops, and waits until another node hands out numbers.
    async fn change_gracefully(
        &self, rng: &mut StdRng, jobs: &mpsc::UnboundedSender<Job>,
    ) -> Result<(), String> {
        let now = || self.world.trace.counts().get("hand_off").copied();
        let (leader, before) = (self.until_leader().await, now());
        if rng.random_bool(0.7) {
            let job = Job::Transfer { asked: leader, to: None };
            jobs.send(job).map_err(|error| error.to_string())?;
        } else {
            // A caller that asked the node itself could get no answer.
            self.spared.store(leader, Relaxed);
            tokio::time::sleep(Duration::from_millis(300)).await;
            self.world.stop(leader, clock::now());
        }
        let until = clock::now() + PATIENCE;
        while now() == before {
            if clock::now() > until {
                return Err(format!("nobody took over from node {leader}"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(300..1_500))).await;
        self.spared.store(0, Relaxed);
        Ok(())
    }

    async fn until_leader(&self) -> Host {
        loop {
            if let Some(leader) = self.world.leader() {
                return leader;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Asks for a number of every key, until each has one.
    async fn ask_all(self: &Arc<Self>) -> Result<(), String> {
        let keys = Vec::from_iter(0..self.keys);
        let mut under_way = JoinSet::new();
        for (message, keys) in keys.chunks(MESSAGE_KEYS).enumerate() {
            if under_way.len() == MESSAGES {
                under_way.join_next().await;
            }
            let (run, keys) = (self.clone(), keys.to_vec());
            under_way.spawn(async move {
                for attempt in message.. {
                    let node = 1 + attempt as Host % FOUNDERS;
                    if run.ask(node, &keys, 1, PATIENCE).await.is_ok() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            });
        }
        let asking = under_way.join_all();
        let limit = tokio::time::timeout(6 * PATIENCE, asking).await;
        limit.map_err(|_| "not all keys get a number".to_owned())?;
        self.violated()
    }

    fn start_clients(self: &Arc<Self>, rng: &mut StdRng) -> JoinSet<()> {
        self.clients_stop.store(false, Relaxed);
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let rng = StdRng::seed_from_u64(rng.random());
            clients.spawn(self.clone().keep_asking(rng));
        }
        clients
    }

    async fn stop_clients(&self, clients: JoinSet<()>) -> Result<(), String> {
        self.clients_stop.store(true, Relaxed);
        clients.join_all().await;
        self.violated()
    }

    async fn keep_asking(self: Arc<Self>, mut rng: StdRng) {
        while !self.clients_stop.load(Relaxed) {
            let node = rng.random_range(1..=FOUNDERS);
            if node == self.spared.load(Relaxed) {
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            // Where nodes fail, a caller gives up soon, and asks another one.
            let patience = match self.striking.load(Relaxed) {
                true => Duration::from_millis(rng.random_range(50..1_500)),
                false => PATIENCE,
            };
            if rng.random_bool(0.1) {
                let key = rng.random_range(0..self.keys);
                let _ = self.ask_current(node, key, patience).await;
            } else {
                let keys = (0..rng.random_range(100..800)).map(|_| rng.random_range(0..self.keys));
                let keys = Vec::from_iter(keys);
                let _ = self.ask(node, &keys, rng.random_range(1..4), patience).await;
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..20))).await;
        }
    }

    async fn ask(
        &self, node: Host, keys: &[u32], count: u64, patience: Duration,
    ) -> Result<(), Status> {
        let asked = self.answers.lock().expect("answers").ask(keys);
        let request = NextManyRequest {
            namespace: NAMESPACE.to_owned(),
            ids: keys.iter().map(|&key| key.into()).collect(),
            counts: vec![count; keys.len()],
            ..NextManyRequest::default()
        };
        let answer = request_at(&self.world, node, request, patience).await;
        let firsts = self.noted(node, answer)?.firsts;
        let mut answers = self.answers.lock().expect("answers");
        self.judge(answers.numbers(&asked, &firsts, count));
        Ok(())
    }

    async fn ask_current(&self, node: Host, key: u32, patience: Duration) -> Result<(), Status> {
        let asked = self.answers.lock().expect("answers").ask(&[key]);
        let request = CurrentRequest {
            namespace: NAMESPACE.to_owned(),
            key: workload::key(key.into()),
            ..CurrentRequest::default()
        };
        let answer = request_at(&self.world, node, request, patience).await;
        let last = self.noted(node, answer)?.last.unwrap_or_default();
        let mut answers = self.answers.lock().expect("answers");
        self.judge(answers.current(&asked, last));
        Ok(())
    }

    fn noted<A>(&self, node: Host, answer: Result<A, Status>) -> Result<A, Status> {
        let trace = &self.world.trace;
        match &answer {
            Ok(_) => {
                self.answered.fetch_add(1, Relaxed);
                trace.note(clock::now(), "answer", node);
            }
            Err(status) => {
                trace.note(clock::now(), "no answer", self.world.legible(status));
            }
        }
        answer
    }

    fn judge(&self, judged: Result<(), String>) {
        if let Err(why) = judged {
            let mut violation = self.violation.lock().expect("a violation");
            violation.get_or_insert(why);
        }
    }

    fn violated(&self) -> Result<(), String> {
        match self.violation.lock().expect("a violation").take() {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }
}

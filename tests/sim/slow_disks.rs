//! Disks are slow, or one hangs, while clients take numbers of keys that the leader has in memory.
//!
//! 1. Every warm key gets a number. All disks are well.
//! 2. The disks of all nodes become slow, or the leader's does, or it hangs. Warm keys are answered throughout, and the
//!    leadership changes only if that helps: once, warm, without a gap. If the leader's table hangs as well, the memory cannot
//!    be left to anybody: the next leader begins soon without it, and each key has skipped at most a step.
//! 3. If all disks are slow, the leader crashes. Somebody leads within few terms, and each key has skipped at most a step.

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
    proto::v1::{CreateNamespaceRequest, NextManyRequest},
};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    answers::Answers,
    clock,
    cluster::{Cluster, World},
    disk::Mood,
    network::{Host, Network, Weather},
    observed::{Report, no_panic, observe},
    trace::Trace,
    workload::{create_namespace, request_at},
};

const NAMESPACE: &str = "warm";
const FOUNDERS: Host = 3;
const STEP: u64 = 10_000;
/// How many keys are warm. Further ones are cold.
const WARM: u32 = 200;
const KEYS: u32 = 100_000;
const MESSAGE_KEYS: usize = 20;
const CLIENTS: usize = 3;
const CALM: Weather = Weather { delay_ms: 2, lost: 0, twice: 0, late: 0 };

/// An fsync takes 0.2 to 2 s.
const SLOW: Mood = Mood::Slow { shortest_ms: 200, longest_ms: 2_000 };
/// Slow enough that another node had better lead.
const SLOW_LEADER: Mood = Mood::Slow { shortest_ms: 800, longest_ms: 2_000 };
/// How long the disks are slow. The second handover of a node would be a minute after the first.
const LASTS: Duration = Duration::from_secs(40);
/// How long a warm key may take while nobody hands over, and while somebody does.
const AT_ONCE: Duration = Duration::from_millis(300);
const HANDOVER_MAX: Duration = Duration::from_secs(5);
/// How long a warm key may take while a leader without a successor that has the memory is replaced.
const REPLACED_MAX: Duration = Duration::from_millis(800);
/// How long a cold key may take once the leader's disk hangs: until that is noticed and held to be final, and another node
/// leads.
const COLD_MAX: Duration = Duration::from_millis(2_500);
/// How long things may take that the disks decide.
const LIMIT: Duration = Duration::from_secs(120);
/// Within how many terms a leader that was killed is replaced.
const TERMS_MAX: u64 = 4;

/// The nodes whose disks are slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    All,
    Leader,
    LeaderHangs,
    LeaderStuck,
}

impl Fault {
    const EACH: [Fault; 4] = [Fault::All, Fault::Leader, Fault::LeaderHangs, Fault::LeaderStuck];

    /// How long a warm key may take, and a cold one.
    fn patience(self) -> (Duration, Duration) {
        match self {
            Fault::All => (AT_ONCE, LIMIT),
            Fault::Leader | Fault::LeaderHangs => (HANDOVER_MAX, LIMIT),
            Fault::LeaderStuck => (REPLACED_MAX, COLD_MAX),
        }
    }
}

/// Runs one seed. Call it on a fresh thread.
///
/// # Errors
/// If a warm key is not answered, the leadership changes in vain, or too much is skipped: why, the last events, and how to
/// replay it.
pub fn run(seed: u64, loud: bool) -> Result<Report, String> {
    observe("cargo test --test sim -- slow_disks", seed, loud, |trace| simulate(seed, trace))
}

fn simulate(seed: u64, trace: &Arc<Trace>) -> Result<usize, String> {
    ratchet::random::seed_this_thread(seed);
    let mut rng = StdRng::seed_from_u64(seed);
    let network = Network::new(rng.random(), CALM, trace.clone());
    let config = Config {
        cluster: "sim".to_owned(),
        disk_reserve_mb: 0,
        clock_apart_max_ms: 31_536_000_000,
        ..Config::default()
    };
    let world = World::new(network, trace.clone(), config, FOUNDERS);
    let mut cluster = Cluster::found(world.clone(), seed, &mut rng);
    let (crashes, mut to_crash) = mpsc::unbounded_channel();
    let verdict: Arc<Mutex<Option<Result<usize, String>>>> = Arc::default();
    let told = verdict.clone();
    let fault = Fault::EACH[(seed % Fault::EACH.len() as u64) as usize];
    let run = Arc::new(Run {
        world,
        answers: Mutex::new(Answers::new(KEYS)),
        answered: AtomicU64::new(0),
        clients_stop: AtomicBool::new(false),
    });
    cluster.sim.client("clients", async move {
        let came_to = run.play(fault, &mut rng, crashes).await;
        *told.lock().expect("a verdict") = Some(came_to);
        Ok(())
    });
    loop {
        while let Ok(id) = to_crash.try_recv() {
            cluster.crash(id, "all disks are slow");
            cluster.restart(id);
        }
        cluster.sim.step().map_err(|error| error.to_string())?;
        if let Some(came_to) = verdict.lock().expect("a verdict").take() {
            return came_to;
        }
        no_panic()?;
    }
}

struct Run {
    world: Arc<World>,
    answers: Mutex<Answers>,
    answered: AtomicU64,
    clients_stop: AtomicBool,
}

impl Run {
    async fn play(
        self: Arc<Self>, fault: Fault, rng: &mut StdRng, crashes: mpsc::UnboundedSender<Host>,
    ) -> Result<usize, String> {
        let namespace = CreateNamespaceRequest {
            name: NAMESPACE.to_owned(),
            step: Some(STEP),
            section_size: Some(1),
            ..CreateNamespaceRequest::default()
        };
        create_namespace(&self.world, namespace).await;
        self.warm_up().await?;
        let (leader, term) = self.until_leader().await?;
        let (changes, epochs) = (self.count("leader"), self.count("epoch"));
        let slow = match fault {
            Fault::All => (1..=FOUNDERS).map(|id| (id, SLOW)).collect(),
            Fault::Leader => vec![(leader, SLOW_LEADER)],
            Fault::LeaderHangs => vec![(leader, Mood::Hanging)],
            Fault::LeaderStuck => vec![(leader, Mood::Stuck)],
        };
        for (id, mood) in slow {
            self.world.with(id, |machine| machine.disk.set(mood));
            let text = format!("{mood:?} on node {id}");
            self.world.trace.event(clock::now(), "slow disk", text);
        }
        let clients = self.start_clients(rng, fault.patience());
        tokio::time::sleep(LASTS).await;
        self.clients_stop.store(true, Relaxed);
        for answered in clients.join_all().await {
            answered?;
        }
        let (changes, epochs) = (self.count("leader") - changes, self.count("epoch") - epochs);
        let wanted = match fault {
            Fault::All => (0, 0),
            Fault::Leader | Fault::LeaderHangs => (1, 0),
            Fault::LeaderStuck => (1, 1),
        };
        if (changes, epochs) != wanted {
            let why = "changes of the leadership, and how many of them were cold";
            return Err(format!("{fault:?}: {:?} {why}, not {wanted:?}", (changes, epochs)));
        }
        let cold = wanted.1;
        self.answers.lock().expect("answers").check_skipped(cold * STEP)?;
        if fault == Fault::All {
            crashes.send(leader).map_err(|error| error.to_string())?;
            self.check_crash(leader, term).await?;
        }
        Ok(self.answered.load(Relaxed) as usize)
    }

    fn count(&self, kind: &str) -> u64 {
        self.world.trace.counts().get(kind).copied().unwrap_or_default()
    }

    async fn until_leader(&self) -> Result<(Host, u64), String> {
        let until = clock::now() + LIMIT;
        loop {
            if let Some(leader) = self.world.leader()
                && let Some(term) = self.world.with(leader, |machine| machine.leads)
            {
                return Ok((leader, term));
            }
            if clock::now() > until {
                return Err("nobody leads".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn warm_up(&self) -> Result<(), String> {
        let until = clock::now() + LIMIT;
        let keys = Vec::from_iter(0..WARM);
        while let Err(why) = self.ask(1, &keys, HANDOVER_MAX).await {
            if clock::now() > until {
                return Err(format!("the keys do not become warm: {why}"));
            }
        }
        Ok(())
    }

    /// Callers of warm keys, each of which must be answered within `patience`; and one of cold keys, so that there is much
    /// to write.
    fn start_clients(
        self: &Arc<Self>, rng: &mut StdRng, (patience, cold_patience): (Duration, Duration),
    ) -> JoinSet<Result<(), String>> {
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let (run, mut rng) = (self.clone(), StdRng::seed_from_u64(rng.random()));
            clients.spawn(async move {
                while !run.clients_stop.load(Relaxed) {
                    let node = rng.random_range(1..=FOUNDERS);
                    let keys = (0..MESSAGE_KEYS).map(|_| rng.random_range(0..WARM));
                    let keys = Vec::from_iter(keys);
                    run.ask(node, &keys, patience).await?;
                    tokio::time::sleep(Duration::from_millis(rng.random_range(10..60))).await;
                }
                Ok(())
            });
        }
        let (run, mut rng) = (self.clone(), StdRng::seed_from_u64(rng.random()));
        clients.spawn(async move {
            for key in WARM.. {
                if run.clients_stop.load(Relaxed) {
                    break;
                }
                let node = rng.random_range(1..=FOUNDERS);
                // It waits for the disks.
                run.ask(node, &[key], cold_patience).await?;
            }
            Ok(())
        });
        clients
    }

    /// The leader of `term` has crashed. Another one must lead within few terms, and skip no more than a step of each key.
    async fn check_crash(&self, crashed: Host, term: u64) -> Result<(), String> {
        let until = clock::now() + LIMIT;
        for key in 0..WARM {
            let before = self.answers.lock().expect("answers").greatest(key);
            loop {
                match self.ask(1 + Host::from(key) % FOUNDERS, &[key], HANDOVER_MAX).await {
                    Ok(()) => break,
                    Err(why) if clock::now() > until => return Err(format!("no numbers: {why}")),
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
            let after = self.answers.lock().expect("answers").greatest(key);
            if after - before > STEP + 1 {
                return Err(format!("key {key} goes on with {after} after {before}"));
            }
        }
        let (leader, now) = self.until_leader().await?;
        match now - term <= TERMS_MAX {
            true => Ok(()),
            false => Err(format!("node {leader} leads term {now}; node {crashed} led term {term}")),
        }
    }

    /// Asks for a number of each of `keys`.
    async fn ask(&self, node: Host, keys: &[u32], patience: Duration) -> Result<(), String> {
        let asked = self.answers.lock().expect("answers").ask(keys);
        let request = NextManyRequest {
            namespace: NAMESPACE.to_owned(),
            ids: keys.iter().map(|&key| key.into()).collect(),
            counts: vec![1; keys.len()],
            ..NextManyRequest::default()
        };
        let asked_at = clock::now();
        let answer = request_at(&self.world, node, request, patience).await;
        let answer = answer.map_err(|status| {
            let why = self.world.legible(&status);
            format!("node {node} was asked at {:.3} s: {why}", asked_at.as_secs_f64())
        })?;
        self.answered.fetch_add(1, Relaxed);
        self.world.trace.note(clock::now(), "answer", node);
        if answer.failure.is_some() || !answer.refused.is_empty() {
            return Err(format!("node {node}: {:?}, {:?}", answer.failure, answer.refused));
        }
        self.answers.lock().expect("answers").numbers(&asked, &answer.firsts, 1)
    }
}

//! A leader gives its term up while one voter lags far behind, and takes its time to catch up. The next leader must not wait
//! for that voter, unless it is the only one that lives.
//!
//! 1. One of three voters is cut off, and the log grows.
//! 2. It is back, and gets the entries that it lacks. That would take seconds.
//! 3. The leader gives its term up, in one way or another. Another node leads, and numbers flow again.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratchet::{
    node::Config,
    proto::v1::{NextRequest, TransferLeadershipRequest},
    sequence::Command,
};
use tokio::sync::mpsc;
use tonic::Status;

use crate::{
    clock,
    cluster::{Cluster, World},
    disk::Mood,
    network::{Answering, CLIENTS, Delivery, Host, Network, Weather},
    observed::{Report, no_panic, observe},
    trace::Trace,
    workload::{self, administer, create_namespaces, request_at},
};

/// How the leader comes to give its term up.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    /// It does so by itself. Another voter has the whole log.
    CurrentVoter,
    /// It does so by itself, but the voter that has the whole log is dead.
    ThirdVoterDead,
    /// Its disk hangs.
    HungDisk,
    /// It hands over, and its successor dies when the term is over.
    FailedHandover,
    /// It hands over, and cannot reach its successor when the term is over.
    UnreachedSuccessor,
}

pub const WAYS: [Way; 5] = [
    Way::CurrentVoter,
    Way::ThirdVoterDead,
    Way::HungDisk,
    Way::FailedHandover,
    Way::UnreachedSuccessor,
];

const FOUNDERS: Host = 3;
const CALM: Weather = Weather { delay_ms: 2, lost: 0, twice: 0, late: 0 };
const PATIENCE: Duration = Duration::from_millis(200);
/// How many entries the voter lacks. A message has at most 300 of them.
const BACKLOG: u64 = 40_000;
/// How much longer a message to that voter takes, and an answer: less than the time that it is waited for.
const SLOWER_MS: u64 = 11;
/// The least time that the backlog takes.
const CATCHING_UP: Duration = Duration::from_millis(BACKLOG / 300 * 2 * (1 + SLOWER_MS));
/// A leader that does not wait for it leads by then: the disk is found to be slow after 600 ms, then come a handover whose
/// leader can log nothing by itself, and an election.
const SOON: Duration = Duration::from_millis(2_500);
/// How long things may take that must come.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs one seed. Call it on a fresh thread.
///
/// # Errors
/// If no other node leads in time: why, the last events, and how to replay it.
pub fn run(way: Way, seed: u64, loud: bool) -> Result<Report, String> {
    let command = "cargo test --test sim -- a_term_that_is_given_up";
    observe(command, seed, loud, |trace| simulate(way, seed, trace))
}

fn simulate(way: Way, seed: u64, trace: &Arc<Trace>) -> Result<usize, String> {
    ratchet::random::seed_this_thread(seed);
    let mut rng = StdRng::seed_from_u64(seed);
    let network = Network::new(rng.random(), CALM, trace.clone());
    let config = Config {
        cluster: "sim".to_owned(),
        disk_reserve_mb: 0,
        shutdown_timeout_ms: 1_000,
        clock_apart_max_ms: 31_536_000_000,
        ..Config::default()
    };
    let world = World::new(network, trace.clone(), config, FOUNDERS);
    let mut cluster = Cluster::found(world.clone(), seed, &mut rng);
    let (crashes, mut to_crash) = mpsc::unbounded_channel();
    let verdict: Arc<Mutex<Option<Result<usize, String>>>> = Arc::default();
    let told = verdict.clone();
    cluster.sim.client("clients", async move {
        let came_to = Script { world, crashes }.play(way).await;
        *told.lock().expect("a verdict") = Some(came_to.map_err(|why| format!("{way:?}: {why}")));
        Ok(())
    });
    loop {
        while let Ok(id) = to_crash.try_recv() {
            cluster.crash(id, "for good");
        }
        cluster.sim.step().map_err(|error| error.to_string())?;
        if let Some(came_to) = verdict.lock().expect("a verdict").take() {
            return came_to;
        }
        no_panic()?;
    }
}

struct Script {
    world: Arc<World>,
    crashes: mpsc::UnboundedSender<Host>,
}

impl Script {
    async fn play(self, way: Way) -> Result<usize, String> {
        create_namespaces(&self.world, 20).await;
        let leader = self.until("a leader", |world| world.leader()).await?;
        let (lags, current) = (leader % FOUNDERS + 1, (leader + 1) % FOUNDERS + 1);
        for other in [leader, current] {
            self.world.network.cut(lags, other);
            self.world.network.cut(other, lags);
        }
        self.grow_log(leader).await?;
        if matches!(way, Way::ThirdVoterDead) {
            self.crash(current)?;
        }
        self.world.network.mend();
        self.world.network.slow_down(leader, lags, SLOWER_MS);
        self.world.network.slow_down(lags, leader, SLOWER_MS);
        let before = self.lag(leader, lags).await?;
        while self.lag(leader, lags).await? == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }

        let began = clock::now();
        match way {
            Way::CurrentVoter | Way::ThirdVoterDead => self.give_up(leader).await?,
            Way::HungDisk => {
                self.world.with(leader, |machine| machine.disk.set(Mood::Hanging));
                // A write lets the leader notice.
                let world = self.world.clone();
                tokio::spawn(async move { request_at(&world, leader, next_number(), LIMIT).await });
            }
            Way::FailedHandover | Way::UnreachedSuccessor => {
                let world = self.world.clone();
                let transfer = TransferLeadershipRequest { to: Some(current) };
                // Its outcome does not matter: the nodes are asked for the leader.
                tokio::spawn(async move { administer(&world, leader, transfer, LIMIT).await });
                self.until("the end of the term", |world| {
                    world.leader().is_none_or(|now| now != leader).then_some(())
                })
                .await?;
                if matches!(way, Way::FailedHandover) {
                    self.crash(current)?;
                }
                self.world.network.cut(leader, current);
            }
        }
        // A successor that dies may have asked for votes: then the last leader can be elected as well.
        let may_be_same = matches!(way, Way::FailedHandover);
        let is_next = |world: &World| world.leader().filter(|now| may_be_same || *now != leader);
        let next = self.until("the next leader", is_next).await?;
        let took = clock::now() - began;
        let text = format!("node {next} leads {took:?} after {way:?}");
        self.world.trace.event(clock::now(), "succession", text);
        match way {
            Way::ThirdVoterDead | Way::FailedHandover if next == current => {
                return Err(format!("node {next} leads, which is dead"));
            }
            Way::ThirdVoterDead | Way::FailedHandover if next == lags && took < CATCHING_UP / 2 => {
                return Err(format!("node {next} leads after {took:?}, and lacks entries"));
            }
            // The voter that lags gets its entries alone and without a pause, and leads at once when it has them.
            Way::ThirdVoterDead | Way::FailedHandover if took > SOON + 2 * CATCHING_UP => {
                return Err(format!("nobody led for {took:?}, longer than catching up takes"));
            }
            Way::ThirdVoterDead | Way::FailedHandover => {}
            _ if next != current => return Err(format!("node {next} leads, which lags")),
            _ if took > SOON => return Err(format!("nobody led for {took:?}")),
            _ => {}
        }
        self.until_a_number(next).await
    }

    fn crash(&self, node: Host) -> Result<(), String> {
        self.crashes.send(node).map_err(|error| error.to_string())
    }

    /// Waits until `what` is there.
    async fn until<T>(&self, what: &str, look: impl Fn(&World) -> Option<T>) -> Result<T, String> {
        let until = clock::now() + LIMIT;
        loop {
            if let Some(found) = look(&self.world) {
                return Ok(found);
            }
            if clock::now() > until {
                return Err(format!("{what}: not after {LIMIT:?}"));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Has something done on a node.
    async fn on<T: Send + 'static>(
        &self, node: Host,
        done: impl Fn(Answering) -> futures::future::BoxFuture<'static, Result<T, Status>>
        + Clone
        + Send
        + 'static,
    ) -> Result<T, String> {
        let link = (CLIENTS, node);
        let asked = move |to: Answering, ()| done(to);
        let call = self.world.network.call(link, Delivery::Reliable, LIMIT, (), asked);
        call.await.map_err(|status| self.world.legible(&status))
    }

    /// Logs entries that change nothing.
    async fn grow_log(&self, leader: Host) -> Result<(), String> {
        self.on(leader, |to| {
            async move {
                let group = to.shared.group.clone();
                let term = group.term();
                let entry = || Command::Checkpoint { sections: Vec::new(), now_ms: 0 };
                let proposals = stream::iter(0..BACKLOG).map(|_| group.propose(term, entry()));
                let proposals = proposals.buffer_unordered(1_000).map_ok(drop);
                let all = proposals.try_collect::<()>().await;
                all.map_err(|error| Status::aborted(error.to_string()))
            }
            .boxed()
        })
        .await
    }

    /// How many entries a node lacks that the leader has.
    async fn lag(&self, leader: Host, node: Host) -> Result<u64, String> {
        self.on(leader, move |to| {
            let nodes = to.shared.group.membership.nodes();
            let index = |id| {
                let node = nodes.iter().find(|one| one.id == id);
                node.and_then(|one| one.log_index).unwrap_or_default()
            };
            futures::future::ready(Ok(index(leader).saturating_sub(index(node)))).boxed()
        })
        .await
    }

    /// Has the leader give its term up.
    async fn give_up(&self, leader: Host) -> Result<(), String> {
        self.on(leader, |to| {
            let own = to.shared.group.leadership().borrow().own.clone();
            own.inspect(|lease| lease.void());
            futures::future::ready(Ok(())).boxed()
        })
        .await
    }

    async fn until_a_number(&self, leader: Host) -> Result<usize, String> {
        let until = clock::now() + LIMIT;
        loop {
            match request_at(&self.world, leader, next_number(), PATIENCE).await {
                Ok(_) => return Ok(1),
                Err(status) if clock::now() > until => {
                    return Err(format!("no number: {}", self.world.legible(&status)));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
}

/// A request for the number of a key.
fn next_number() -> NextRequest {
    NextRequest { namespace: "own".to_owned(), key: workload::key(1), ..NextRequest::default() }
}

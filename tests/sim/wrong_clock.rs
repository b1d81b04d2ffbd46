//! One node's wall clock is wrong, by up to 70 years, and the node leads. No time that is logged or answered may lie far from
//! the truth; numbers go on meanwhile, and ids do once another node leads.
//!
//! 1. All clocks agree: ids of a time are made.
//! 2. A node's clock is set wrong. It is started again, or goes on. Then it leads, and hands over: ids of a time are made.
//! 3. Another clock is set wrong by another time, so that none is believed. The first node leads: ids of a time are refused.
//! 4. The clocks are mended: ids of a time are made again.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratchet::{
    node::Config,
    proto::{
        peer::TakeIdNumbersRequest,
        reason_of,
        v1::{self, NextRequest, Reason},
    },
};
use ratchet_ids::Format;
use tokio::sync::mpsc;
use tonic::Status;

use crate::{
    clock,
    cluster::{Cluster, World},
    key_ids::{self, DATED, TIMED},
    network::{Host, Network, Weather},
    observed::{Report, no_panic, observe},
    trace::Trace,
    workers,
    workload::{self, administer, create_namespaces, request_at},
};

const FOUNDERS: Host = 3;
const CALM: Weather = Weather { delay_ms: 2, lost: 0, twice: 0, late: 0 };
const PATIENCE: Duration = Duration::from_millis(500);
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: u64 = 86_400_000;
/// How far a wrong clock is off, in milliseconds: 70 years.
const WRONG_MS: i64 = 2_208_988_800_000;
/// How long things may take that must come.
const LIMIT: Duration = Duration::from_secs(20);
/// How far a time may lie from the truth: the bound, a lease, and clocks that drift for half a minute.
const FAR_MS: u64 = 60_000 + 10_000 + 5_000;

/// Runs one seed. Call it on a fresh thread.
///
/// # Errors
/// If a time lies far from the truth, or an answer that must come does not: why, the last events, and how to replay it.
pub fn run(seed: u64, loud: bool) -> Result<Report, String> {
    observe("cargo test --test sim -- a_wrong_clock", seed, loud, |trace| simulate(seed, trace))
}

fn simulate(seed: u64, trace: &Arc<Trace>) -> Result<usize, String> {
    ratchet::random::seed_this_thread(seed);
    let mut rng = StdRng::seed_from_u64(seed);
    let network = Network::new(rng.random(), CALM, trace.clone());
    let config = Config { cluster: "sim".to_owned(), disk_reserve_mb: 0, ..Config::default() };
    let world = World::new(network, trace.clone(), config, FOUNDERS);
    let mut cluster = Cluster::found(world.clone(), seed, &mut rng);
    for id in 1..=FOUNDERS {
        world.with(id, |machine| machine.clock.tell_the_truth());
    }
    let (restarts, mut to_restart) = mpsc::unbounded_channel();
    let verdict: Arc<Mutex<Option<Result<usize, String>>>> = Arc::default();
    let told = verdict.clone();
    cluster.sim.client("clients", async move {
        let came_to = Script { world, rng, restarts, numbers: 0 }.play().await;
        *told.lock().expect("a verdict") = Some(came_to);
        Ok(())
    });
    loop {
        while let Ok(id) = to_restart.try_recv() {
            cluster.crash(id, "its clock is set wrong");
            cluster.restart(id);
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
    rng: StdRng,
    restarts: mpsc::UnboundedSender<Host>,
    numbers: usize,
}

/// A way in which a time is asked for.
#[derive(Debug, Clone, Copy)]
enum TimeOf {
    Lease,
    Timed,
    Dated,
}

const TIMES: [TimeOf; 3] = [TimeOf::Lease, TimeOf::Timed, TimeOf::Dated];

impl Script {
    async fn play(mut self) -> Result<usize, String> {
        create_namespaces(&self.world, 20).await;
        workers::create(&self.world).await;
        key_ids::create(&self.world, 100).await;
        self.until_all_are_made().await?;

        let wrong = self.rng.random_range(1..=FOUNDERS);
        let off_ms = [WRONG_MS, WRONG_MS, -WRONG_MS / 2, HOUR_MS, -HOUR_MS];
        let off_ms = off_ms[self.rng.random_range(0..off_ms.len())];
        self.world.with(wrong, |machine| machine.clock.set_wrong(off_ms));
        self.world.trace.event(clock::now(), "wrong clock", format!("node {wrong}: {off_ms} ms"));
        let restarted = self.rng.random_bool(0.5);
        if restarted {
            self.restarts.send(wrong).map_err(|error| error.to_string())?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.until_it_leads(wrong).await?;
        let until = clock::now() + LIMIT;
        while self.world.leader().is_none_or(|leader| leader == wrong) {
            if clock::now() > until {
                return Err(format!("node {wrong} does not hand over"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.until_all_are_made().await?;

        let another = wrong % FOUNDERS + 1;
        self.world.with(another, |machine| machine.clock.set_wrong(off_ms / 2));
        self.world.trace.event(
            clock::now(),
            "wrong clock",
            format!("node {another}: half as much"),
        );
        // Until the leader has heard of it, the third node is believed.
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.until_it_leads(wrong).await?;
        self.until_all_are_refused().await?;
        for node in [wrong, another] {
            self.world.with(node, |machine| machine.clock.tell_the_truth());
            self.world.trace.event(clock::now(), "clock mended", format!("node {node}"));
        }
        self.until_all_are_made().await?;
        Ok(self.numbers)
    }

    /// Has a node lead, if only for a moment.
    async fn until_it_leads(&mut self, node: Host) -> Result<(), String> {
        let until = clock::now() + LIMIT;
        while self.world.leader() != Some(node) && !self.have_it_lead(node).await {
            if clock::now() > until {
                return Err(format!("node {node} does not lead"));
            }
        }
        Ok(())
    }

    /// Asks for a transfer to a node. True if that is known to have led then.
    async fn have_it_lead(&mut self, node: Host) -> bool {
        let transfer = v1::TransferLeadershipRequest { to: Some(node) };
        let asked = self.rng.random_range(1..=FOUNDERS);
        let transferred = administer(&self.world, asked, transfer, PATIENCE).await;
        if transferred.is_ok_and(|done| done.leader == node) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        false
    }

    /// Asks through all interfaces until each has given a time, and for numbers.
    async fn until_all_are_made(&mut self) -> Result<(), String> {
        for of in TIMES {
            let until = clock::now() + LIMIT;
            while let Err(status) = self.ask(of).await? {
                if clock::now() > until {
                    let why = self.world.legible(&status);
                    return Err(format!("{of:?}: no time is given: {why}"));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        self.until_a_number().await
    }

    /// Asks through all interfaces until each has refused because the leader's clock is not believed, and for numbers.
    async fn until_all_are_refused(&mut self) -> Result<(), String> {
        for of in TIMES {
            let until = clock::now() + LIMIT;
            loop {
                let refused = self.ask(of).await?.err();
                let reason = refused.as_ref().map(|status| reason_of(status).0);
                if reason == Some(Reason::ClockDoubted) {
                    break;
                }
                if clock::now() > until {
                    return Err(format!("{of:?} does not refuse a wrong clock: {reason:?}"));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        self.until_a_number().await
    }

    async fn until_a_number(&mut self) -> Result<(), String> {
        let until = clock::now() + LIMIT;
        loop {
            let node = self.rng.random_range(1..=FOUNDERS);
            let next = NextRequest {
                namespace: "own".to_owned(),
                key: workload::key(1),
                ..NextRequest::default()
            };
            match request_at(&self.world, node, next, PATIENCE).await {
                Ok(_) => {
                    self.numbers += 1;
                    return Ok(());
                }
                Err(status) if clock::now() > until => {
                    return Err(format!("no number: {}", self.world.legible(&status)));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Asks some node for a time. The time must be near the truth.
    async fn ask(&mut self, of: TimeOf) -> Result<Result<(), Status>, String> {
        let node = self.rng.random_range(1..=FOUNDERS);
        let take = |(namespace, format): (&str, &str)| {
            let take = TakeIdNumbersRequest {
                namespace: namespace.to_owned(),
                format: format.to_owned(),
                key: workload::key(1),
                count: 1,
            };
            administer(&self.world, node, take, PATIENCE)
        };
        let format = Format::parse(TIMED.1).map_err(|error| error.to_string())?;
        let told = match of {
            TimeOf::Lease => {
                let lease = workers::lease("wrong clock");
                let lease = administer(&self.world, node, lease, PATIENCE).await;
                if let Ok(lease) = &lease {
                    let release = workers::release(lease);
                    // Whether or not it is free then, others are.
                    drop(administer(&self.world, node, release, PATIENCE).await);
                }
                lease.map(|lease| (lease.ceiling_ms, FAR_MS))
            }
            TimeOf::Timed => take(TIMED).await.map(|numbers| {
                let number = numbers.firsts.first().copied().unwrap_or_default();
                (format.parts_of_number(number, 0).time_ms, FAR_MS)
            }),
            TimeOf::Dated => take(DATED).await.map(|numbers| (numbers.date_ms, DAY_MS + FAR_MS)),
        };
        let (time_ms, may_be_off_ms) = match told {
            Ok(told) => told,
            Err(status) => {
                let text = self.world.legible(&status);
                self.world.trace.note(clock::now(), "no time", text);
                return Ok(Err(status));
            }
        };
        self.world.trace.note(clock::now(), "time", (node, time_ms));
        let true_ms = clock::true_wall_ms();
        match time_ms.abs_diff(true_ms) <= may_be_off_ms {
            true => Ok(Ok(())),
            false => Err(format!("{of:?} gives the time {time_ms}, and it is {true_ms}")),
        }
    }
}

//! One run: a cluster, a workload, faults, the healing, and the verdict.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratchet::node::Config;
use ratchet_jepsen::checker::check_order;
use tokio::sync::{Notify, mpsc};

use crate::{
    accounts, admin,
    cluster::{Cluster, World},
    counting, crowd,
    fault::some_kinds,
    faults::Faults,
    gapless::{self, Invoices},
    key_ids,
    network::{Host, Network, Weather},
    observed::{Report, no_panic, observe},
    trace::Trace,
    workers::{self, Chunks},
    workload::{self, Client, Record},
};

/// How long a healed cluster may take until every member has answered for every key.
const HEALING_MAX: Duration = Duration::from_secs(10);

/// A run in which fewer calls were answered shows nothing.
const ANSWERS_MIN: usize = 30;

/// Runs one seed. Call it on a fresh thread.
///
/// # Errors
/// If the run violates the promise, panics, or shows nothing: why, the last events, and how to replay it.
pub fn run(seed: u64, loud: bool) -> Result<Report, String> {
    let record = Arc::new(Record::default());
    observe("cargo test --test sim -- one_seed", seed, loud, |trace| {
        simulate(seed, trace, &record)?;
        Ok(record.answered())
    })
}

fn simulate(seed: u64, trace: &Arc<Trace>, record: &Arc<Record>) -> Result<(), String> {
    ratchet::random::seed_this_thread(seed);
    let mut rng = StdRng::seed_from_u64(seed);
    let usual = Weather {
        delay_ms: [1, 2, 5, 10][rng.random_range(0..4)],
        lost: [0, 0, 10, 50][rng.random_range(0..4)],
        twice: [0, 50, 200][rng.random_range(0..3)],
        late: [0, 5, 20][rng.random_range(0..3)],
    };
    let network = Network::new(rng.random(), usual, trace.clone());
    let founders = [3, 3, 3, 5][rng.random_range(0..4)];
    let mut config = Config {
        cluster: "sim".to_owned(),
        shutdown_timeout_ms: 1_000,
        // The disk of the machine that simulates is none of the simulation's.
        disk_reserve_mb: 0,
        // Wall clocks are hours apart here, and are believed: no time belongs to two leases at any times that they show.
        clock_apart_max_ms: 31_536_000_000,
        ..Config::default()
    };
    // In such a run there are no other callers than callers of numbers, so that all counts can be compared.
    let is_counting = rng.random_ratio(1, 4);
    // A node that gets a snapshot instead of entries that it has proposed does not count the numbers that they account for.
    if rng.random_bool(0.5) && !is_counting {
        config.log_keep_bytes = rng.random_range(1_000..6_000);
    }
    if rng.random_bool(0.5) {
        // The lease is as long as the margin allows.
        config.lease_ms = 245;
    }
    if rng.random_bool(0.5) {
        // A new leader reads the records of sections from the disk.
        config.recent_records_mb = 0;
    }
    if rng.random_bool(0.25) {
        config.fence = ratchet::allocator::FenceKind::Quorum;
    }
    if rng.random_bool(0.5) {
        // Keys come and go all the time.
        config.key_idle_ms = [1, 10, 100, 500][rng.random_range(0..4)];
    }
    if rng.random_ratio(1, 8) {
        // No key stays for long, and no node takes a memory over: a handover returns the numbers.
        config.memory_max_mb = 0;
    }
    let world = World::new(network, trace.clone(), config, founders);
    let mut cluster = Cluster::found(world.clone(), seed, &mut rng);

    let (jobs, todo) = mpsc::unbounded_channel();
    let verdict = Verdict::default();
    let healed = Arc::new(Notify::new());
    let told = (healed.clone(), verdict.clone());
    match is_counting {
        true => start_counting(&mut cluster, record, todo, told, &mut rng),
        false => start_clients(&mut cluster, record, todo, told, &mut rng),
    }

    // Faults mostly begin once the cluster runs, sometimes while it is being founded.
    let start = Duration::from_millis(match rng.random_bool(0.8) {
        true => rng.random_range(1_000..3_000),
        false => rng.random_range(0..500),
    });
    let end = start + Duration::from_millis(rng.random_range(3_000..9_000));
    let kinds = some_kinds(&mut rng);
    let mut faults =
        Faults::new(StdRng::seed_from_u64(rng.random()), kinds, start, usual, founders, jobs);
    trace.event(
        Duration::ZERO,
        "seed",
        format!("{seed}: {founders} nodes, {usual:?}, {}", faults.kinds()),
    );
    let mut is_healed = false;
    loop {
        let now = cluster.now();
        faults.step(&mut cluster, now < end);
        if now >= end && !is_healed {
            is_healed = true;
            faults.heal(&mut cluster);
            healed.notify_one();
        }
        cluster.sim.step().map_err(|error| error.to_string())?;
        if let Some(verdict) = verdict.lock().expect("a verdict").take() {
            verdict?;
            break;
        }
        no_panic()?;
    }
    judge(record)
}

/// The outcome of a run, once it is known.
type Verdict = Arc<Mutex<Option<Result<(), String>>>>;

/// The random numbers that decide the requests of callers of numbers, and the node that each caller is stuck to.
fn callers(world: &World, rng: &mut StdRng) -> Vec<(StdRng, Option<Host>)> {
    let callers = (0..rng.random_range(3..9)).map(|_| {
        let stuck_to = rng.random_bool(0.6);
        let stuck_to = stuck_to.then(|| rng.random_range(1..=world.founders));
        (StdRng::seed_from_u64(rng.random()), stuck_to)
    });
    callers.collect()
}

/// Callers of numbers alone, and a look at the counts once they have stopped.
fn start_counting(
    cluster: &mut Cluster<'_>, record: &Arc<Record>, jobs: mpsc::UnboundedReceiver<admin::Job>,
    (healed, verdict): (Arc<Notify>, Verdict), rng: &mut StdRng,
) {
    let (world, record) = (cluster.world.clone(), record.clone());
    let callers = callers(&world, rng);
    let step = rng.random_range(1..60);
    cluster.sim.client("clients", async move {
        let preparing = world.clone();
        tokio::spawn(async move { workload::create_namespaces(&preparing, step).await });
        let operators = tokio::spawn(admin::see_to(world.clone(), jobs));
        for (rng, stuck_to) in callers {
            tokio::spawn(Client::new(&world, &record).keep_asking(rng, stuck_to));
        }
        healed.notified().await;
        operators.await?;
        let mut asked = admin::last_questions(&world, &record, HEALING_MAX).await;
        record.stop();
        if asked.is_ok() {
            asked = counting::check(&world, &record, HEALING_MAX).await;
        }
        *verdict.lock().expect("a verdict") = Some(asked);
        Ok(())
    });
}

/// All clients are on one host, which has no faults.
fn start_clients(
    cluster: &mut Cluster<'_>, record: &Arc<Record>, jobs: mpsc::UnboundedReceiver<admin::Job>,
    (healed, verdict): (Arc<Notify>, Verdict), rng: &mut StdRng,
) {
    let world = cluster.world.clone();
    let record = record.clone();
    let clients = callers(&world, rng);
    let step = rng.random_range(1..60);
    let invoicing: Vec<_> =
        (0..rng.random_range(1..4)).map(|_| StdRng::seed_from_u64(rng.random())).collect();
    let recreating = StdRng::seed_from_u64(rng.random());
    let holding: Vec<_> =
        (0..rng.random_range(2..5)).map(|_| StdRng::seed_from_u64(rng.random())).collect();
    let recreating_ids = StdRng::seed_from_u64(rng.random());
    let recreates_ids = rng.random_bool(0.5);
    let of_keys: Vec<_> =
        (0..rng.random_range(1..4)).map(|_| StdRng::seed_from_u64(rng.random())).collect();
    // Thirty of them are up to a minute, of sixteen ids a millisecond, so that keys get ahead of the leader's time.
    let ids_step = [2_000, 32_000][rng.random_range(0..2)];
    let ids_step = rng.random_range(1..ids_step);
    let recreating_key_ids = StdRng::seed_from_u64(rng.random());
    let recreates_key_ids = rng.random_bool(0.3);
    let crowds = crowd::all();
    let crowding: Vec<_> =
        (0..rng.random_range(2..5)).map(|_| StdRng::seed_from_u64(rng.random())).collect();
    let changing = StdRng::seed_from_u64(rng.random());
    let stop = Arc::new(AtomicBool::new(false));
    cluster.sim.client("clients", async move {
        let preparing = world.clone();
        tokio::spawn(async move {
            workload::create_namespaces(&preparing, step).await;
            crowd::create(&preparing, step).await;
            gapless::create(&preparing).await;
            workers::create(&preparing).await;
            key_ids::create(&preparing, ids_step).await;
        });
        tokio::spawn(workload::recreate(world.clone(), recreating, Arc::clone(&stop)));
        let operators = tokio::spawn(admin::see_to(world.clone(), jobs));
        for (rng, stuck_to) in clients {
            tokio::spawn(Client::new(&world, &record).keep_asking(rng, stuck_to));
        }
        let invoices = Arc::new(Invoices::default());
        let invoicing = invoicing.into_iter().zip(0..).map(|(rng, caller)| {
            let (world, record) = (world.clone(), record.clone());
            tokio::spawn(gapless::keep_asking(world, record, invoices.clone(), caller, rng))
        });
        let invoicing: Vec<_> = invoicing.collect();
        let chunks = Arc::new(Chunks::default());
        let holding = holding.into_iter().zip(0..).map(|(rng, holder)| {
            let (world, record) = (world.clone(), record.clone());
            tokio::spawn(workers::keep_holding(world, record, chunks.clone(), holder, rng))
        });
        let holding: Vec<_> = holding.collect();
        if recreates_ids {
            let (world, record) = (world.clone(), record.clone());
            tokio::spawn(workers::recreate(world, record, recreating_ids));
        }
        if recreates_key_ids {
            let (world, record) = (world.clone(), record.clone());
            tokio::spawn(key_ids::recreate(world, record, ids_step, recreating_key_ids));
        }
        for rng in of_keys {
            tokio::spawn(key_ids::keep_asking(world.clone(), record.clone(), rng));
        }
        let crowding = crowding.into_iter().zip(crowds.iter().cycle()).map(|(rng, crowd)| {
            let (world, record) = (world.clone(), record.clone());
            tokio::spawn(crowd.clone().keep_asking(world, record, rng))
        });
        let crowding: Vec<_> = crowding.collect();
        tokio::spawn(crowd::change(world.clone(), record.clone(), step, changing));
        healed.notified().await;
        stop.store(true, Ordering::Relaxed);
        operators.await?;
        let mut asked = admin::last_questions(&world, &record, HEALING_MAX).await;
        if asked.is_ok() {
            asked = accounts::check(&world, &record, HEALING_MAX).await;
        }
        record.stop();
        if asked.is_ok() {
            let judging = judge_invoices(&world, invoicing, &invoices);
            let judged = tokio::time::timeout(HEALING_MAX, judging).await;
            asked = judged.unwrap_or_else(|_| Err("a gapless request is not answered".to_owned()));
        }
        if asked.is_ok() {
            asked = joined(holding).await;
        }
        if asked.is_ok() {
            asked = joined(crowding).await;
        }
        if asked.is_ok() {
            asked = crowds.iter().try_for_each(|crowd| crowd.check());
        }
        *verdict.lock().expect("a verdict") = Some(asked);
        Ok(())
    });
}

/// Waits until every gapless request is answered, and checks the answers.
async fn judge_invoices(
    world: &World, callers: Vec<tokio::task::JoinHandle<Result<(), String>>>, invoices: &Invoices,
) -> Result<(), String> {
    joined(callers).await?;
    invoices.check(world).await
}

/// Waits for callers to end.
///
/// # Errors
/// The fault that one of them found.
async fn joined(callers: Vec<tokio::task::JoinHandle<Result<(), String>>>) -> Result<(), String> {
    for caller in callers {
        caller.await.map_err(|error| error.to_string())??;
    }
    Ok(())
}

fn judge(record: &Record) -> Result<(), String> {
    let history = record.history();
    check_order(&history).map_err(|violation| violation.to_string())?;
    let answered = record.answered();
    if answered < ANSWERS_MIN {
        return Err(format!("only {answered} calls were answered: this run shows nothing"));
    }
    Ok(())
}

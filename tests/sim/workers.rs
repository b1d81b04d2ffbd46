//! Holders of worker ids, which lease, renew, release or just go, and the rule for their leases: no time of a
//! worker id belongs to two leases, under any clocks of the leaders, and however often the namespace is deleted and
//! created again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use rand::{RngExt, rngs::StdRng};
use ratchet::proto::v1::{
    self, CreateNamespaceRequest, HeldWorker, LeaseWorkerRequest, WorkerLease,
};

use crate::{
    clock,
    cluster::World,
    network::Host,
    workload::{Record, administer, create_namespace},
};

const NAMESPACE: &str = "ids";
/// Two worker ids, so that holders wait for one another.
const FORMAT: &str = "bits zero:1=0 time-ms:48 worker:1 sequence:12";

/// The times above the first one, up to the second one.
type Chunk = (u64, u64);

/// Which times each lease of each worker id may use. Leases are in the order of their tokens.
#[derive(Default)]
pub struct Chunks(Mutex<BTreeMap<u32, BTreeMap<u64, Chunk>>>);

impl Chunks {
    /// Notes the time that a lease may use by now.
    ///
    /// # Errors
    /// If it overlaps with another one.
    fn note(&self, worker: u32, token: u64, chunk: Chunk) -> Result<(), String> {
        let mut chunks = self.0.lock().expect("chunks");
        let of_worker = chunks.entry(worker).or_default();
        of_worker.insert(token, chunk);
        let later = of_worker.iter().skip(1);
        for ((token, earlier), (next, later)) in of_worker.iter().zip(later) {
            if earlier.1 > later.0 {
                return Err(format!(
                    "worker id {worker}: lease {token} has the times {earlier:?}, and lease {next} {later:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Creates the namespace; returns when it is there.
pub async fn create(world: &World) {
    let namespace = CreateNamespaceRequest {
        name: NAMESPACE.to_owned(),
        format: Some(FORMAT.to_owned()),
        ..CreateNamespaceRequest::default()
    };
    create_namespace(world, namespace).await;
}

/// Deletes the namespace and creates it again, time after time.
pub async fn recreate(world: Arc<World>, record: Arc<Record>, mut rng: StdRng) {
    while !record.is_stopped() {
        tokio::time::sleep(Duration::from_millis(rng.random_range(500..4_000))).await;
        let delete = v1::DeleteNamespaceRequest {
            namespace: NAMESPACE.to_owned(),
            confirm: NAMESPACE.to_owned(),
            forget: false,
        };
        let node = some_node(&world, &mut rng);
        // Whether or not it is there by then.
        drop(administer(&world, node, delete, Duration::from_secs(1)).await);
        create(&world).await;
    }
}

/// A holder, which comes and goes until told to stop.
///
/// # Errors
/// If a time belongs to two leases.
pub async fn keep_holding(
    world: Arc<World>, record: Arc<Record>, chunks: Arc<Chunks>, holder: u64, mut rng: StdRng,
) -> Result<(), String> {
    let holder = format!("holder-{holder}");
    while !record.is_stopped() {
        if let Some(lease) = ask(&world, &holder, None, &mut rng).await {
            hold(&world, &record, &chunks, &holder, lease, &mut rng).await?;
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(1..200))).await;
    }
    Ok(())
}

/// Renews a lease some times, and releases it, or not.
async fn hold(
    world: &World, record: &Record, chunks: &Chunks, holder: &str, lease: WorkerLease,
    rng: &mut StdRng,
) -> Result<(), String> {
    let WorkerLease { worker, token, .. } = lease;
    let (from, mut ceiling) = (lease.from_ms, lease.ceiling_ms);
    world.trace.note(clock::now(), "worker leased", (worker, token, from, ceiling, holder));
    chunks.note(worker, token, (from, ceiling))?;
    let held = HeldWorker { worker, token };
    for _ in 0..rng.random_range(0..6) {
        tokio::time::sleep(Duration::from_millis(rng.random_range(1..300))).await;
        if record.is_stopped() {
            return Ok(());
        }
        if let Some(renewed) = ask(world, holder, Some(held), rng).await {
            if (renewed.worker, renewed.token, renewed.from_ms) != (worker, token, from) {
                return Err(format!("{lease:?} was renewed as {renewed:?}"));
            }
            // An answer may be older than one that was lost.
            ceiling = ceiling.max(renewed.ceiling_ms);
            world.trace.note(clock::now(), "worker renewed", (worker, token, ceiling));
            chunks.note(worker, token, (from, ceiling))?;
        }
    }
    if rng.random_ratio(2, 3) {
        let used_ms = rng.random_range(from..=ceiling);
        // Nothing is used from here on, whether or not the release is heard.
        chunks.note(worker, token, (from, used_ms))?;
        let release =
            v1::ReleaseWorkerRequest { namespace: NAMESPACE.to_owned(), held: Some(held), used_ms };
        let node = some_node(world, rng);
        drop(administer(world, node, release, Duration::from_millis(500)).await);
    }
    Ok(())
}

/// A request for a worker id.
pub fn lease(holder: &str) -> LeaseWorkerRequest {
    LeaseWorkerRequest {
        namespace: NAMESPACE.to_owned(),
        holder: holder.to_owned(),
        renew: None,
        further: false,
    }
}

/// A request that releases a worker id, unused.
pub fn release(lease: &WorkerLease) -> v1::ReleaseWorkerRequest {
    let held = Some(HeldWorker { worker: lease.worker, token: lease.token });
    let namespace = NAMESPACE.to_owned();
    v1::ReleaseWorkerRequest { namespace, held, used_ms: 0 }
}

/// Leases a worker id, or renews a lease; `None` without an answer, or with another one.
async fn ask(
    world: &World, holder: &str, renew: Option<HeldWorker>, rng: &mut StdRng,
) -> Option<WorkerLease> {
    let lease = LeaseWorkerRequest { renew, ..lease(holder) };
    let patience = Duration::from_millis(rng.random_range(50..1_000));
    let node = some_node(world, rng);
    administer(world, node, lease, patience).await.ok()
}

fn some_node(world: &World, rng: &mut StdRng) -> Host {
    let members: Vec<Host> = world.members().into_iter().collect();
    members[rng.random_range(0..members.len())]
}

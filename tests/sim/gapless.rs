//! Callers of a gapless namespace, which ask with request ids until they are answered, and the rules for their
//! numbers: each request gets its numbers once, and in the end the numbers of a key are 1, 2, 3, ... with none
//! missing.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use rand::{RngExt, rngs::StdRng};
use ratchet::{
    proto::{
        reason_of,
        v1::{CreateNamespaceRequest, CurrentRequest, NextRequest, NextResponse, Reason},
    },
    sequence::{Range, RequestId},
};
use ratchet_jepsen::history::{Action, Interface, Op, Outcome};

use crate::{
    clock,
    cluster::World,
    network::Host,
    workload::{self, Record, create_namespace, request_at},
};

const NAMESPACE: &str = "invoice";
const KEYS: u64 = 2;

/// The numbers that were answered: for each key the last number of each range, by its first.
#[derive(Default)]
pub struct Invoices(Mutex<BTreeMap<(u64, u64), u64>>);

/// A request, and its id.
#[derive(Clone)]
struct Request {
    key: u64,
    count: u64,
    id: RequestId,
}

/// Creates the namespace; returns when it is there.
pub async fn create(world: &World) {
    let namespace = CreateNamespaceRequest {
        name: NAMESPACE.to_owned(),
        gapless: true,
        ..CreateNamespaceRequest::default()
    };
    create_namespace(world, namespace).await;
}

/// Asks until told to stop, and until the last request is answered.
///
/// # Errors
/// If a request is answered in two ways, or refused.
pub async fn keep_asking(
    world: Arc<World>, record: Arc<Record>, invoices: Arc<Invoices>, caller: u64, mut rng: StdRng,
) -> Result<(), String> {
    for number in 0.. {
        if record.is_stopped() {
            break;
        }
        let id = format!("{caller}-{number}");
        let request = Request {
            key: rng.random_range(1..=KEYS),
            count: rng.random_range(1..4),
            id: RequestId::new(id.as_bytes()).map_err(|error| error.to_string())?,
        };
        let invoked = clock::now();
        let (node, range) = ask_until_answered(&world, &request, &mut rng).await?;
        record.push(op(&world, &record, &request, node, invoked, range));
        invoices.add(&request, range)?;
        if rng.random_ratio(1, 3) {
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..300))).await;
            let (_, again) = ask_until_answered(&world, &request, &mut rng).await?;
            if again != range {
                return Err(format!(
                    "request {id} was answered with {range:?}, and then with {again:?}"
                ));
            }
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(1..60))).await;
    }
    Ok(())
}

/// The answer to a request, and the node that gave it, however often it takes.
async fn ask_until_answered(
    world: &World, request: &Request, rng: &mut StdRng,
) -> Result<(Host, Range), String> {
    loop {
        let members: Vec<Host> = world.members().into_iter().collect();
        let node = members[rng.random_range(0..members.len())];
        let patience = Duration::from_millis(rng.random_range(50..1_000));
        let next = NextRequest {
            namespace: NAMESPACE.to_owned(),
            key: workload::key(request.key),
            count: Some(request.count),
            request_id: Some(request.id.as_bytes().to_vec().into()),
            ..NextRequest::default()
        };
        match request_at(world, node, next, patience).await {
            Ok(NextResponse { first, last, increment, .. }) => {
                return Ok((node, Range { first, last, increment }));
            }
            Err(status) if reason_of(&status).0 == Reason::RequestIdReused => {
                return Err(format!("request {} was refused: {status}", request.id));
            }
            // Also while the namespace does not exist yet.
            Err(_) => tokio::time::sleep(Duration::from_millis(rng.random_range(5..40))).await,
        }
    }
}

/// The request as the history shows it: one call from its first try to its answer.
fn op(
    world: &World, record: &Record, request: &Request, node: Host, invoked: Duration, range: Range,
) -> Op {
    let returned = clock::now();
    let key = format!("{NAMESPACE}/{}", request.key);
    let told = (&key, range.first, range.last, &request.id.to_string());
    world.trace.note(returned, "answer", told);
    Op {
        process: record.new_process(),
        key,
        action: Action::Next { count: request.count },
        invoked_ns: invoked.as_nanos() as u64,
        returned_ns: Some(returned.as_nanos() as u64),
        outcome: Outcome::Ok,
        first: range.first,
        last: range.last,
        node,
        interface: Interface::Unary,
        note: String::new(),
    }
}

impl Invoices {
    /// Adds an answer.
    fn add(&self, request: &Request, range: Range) -> Result<(), String> {
        let key = (request.key, range.first);
        match self.0.lock().expect("answers").insert(key, range.last) {
            None => Ok(()),
            Some(_) => Err(format!("{key:?} was handed out twice")),
        }
    }

    /// Checks that no number is missing, once every request is answered, and that none was taken beyond the last one.
    ///
    /// # Errors
    /// If one is missing.
    pub async fn check(&self, world: &World) -> Result<(), String> {
        for key in 1..=KEYS {
            let mut expected = 1;
            let of_key = self.0.lock().expect("answers").clone();
            for ((_, first), last) in of_key.range((key, 0)..(key + 1, 0)) {
                if *first != expected {
                    return Err(format!(
                        "key {key}: {first} follows {}: a gap, or a number twice",
                        expected - 1
                    ));
                }
                expected = last + 1;
            }
            let last = last_of(world, key).await;
            if last.unwrap_or_default() != expected - 1 {
                return Err(format!(
                    "key {key}: numbers were taken up to {last:?}, and answered up to {}",
                    expected - 1
                ));
            }
        }
        Ok(())
    }
}

/// The last number of a key, from a healed cluster.
async fn last_of(world: &World, key: u64) -> Option<u64> {
    for attempt in 0.. {
        let members: Vec<Host> = world.members().into_iter().collect();
        let request = CurrentRequest {
            namespace: NAMESPACE.to_owned(),
            key: workload::key(key),
            ..CurrentRequest::default()
        };
        let node = members[attempt % members.len()];
        if let Ok(current) = request_at(world, node, request, Duration::from_secs(1)).await {
            return current.last;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

//! Callers of ids that come from a key's sequence, and dates beside them: in order for each key, at any node and under any
//! clocks of the leaders.

use std::{sync::Arc, time::Duration};

use rand::{RngExt, rngs::StdRng};
use ratchet::proto::{
    peer::{IdNumbers, TakeIdNumbersRequest},
    v1::{self, CreateNamespaceRequest, key::Kind},
};
use ratchet_jepsen::history::Action;

use crate::{
    clock,
    cluster::World,
    network::Host,
    workload::{Record, administer, create_namespace, op},
};

/// Sixteen ids of a key in a millisecond, so that callers wait for one another.
pub const TIMED: (&str, &str) = ("timed", "bits zero:1=0 time-ms:48 sequence:4 key:1");
/// Order numbers beside a date.
pub const DATED: (&str, &str) = ("dated", "digits date:8 sequence:10");
/// A day counts more than any order number.
const ORDERS_MAX: u64 = 10_000_000_000;
const DAY_MS: u64 = 86_400_000;

/// Creates the namespaces; returns when they are there.
pub async fn create(world: &World, step: u64) {
    for (name, format) in [TIMED, DATED] {
        let namespace = CreateNamespaceRequest {
            name: name.to_owned(),
            format: Some(format.to_owned()),
            step: Some(step),
            ..CreateNamespaceRequest::default()
        };
        create_namespace(world, namespace).await;
    }
}

/// Deletes the namespaces and creates them again, time after time. Their keys go on above their earlier numbers.
pub async fn recreate(world: Arc<World>, record: Arc<Record>, step: u64, mut rng: StdRng) {
    while !record.is_stopped() {
        tokio::time::sleep(Duration::from_millis(rng.random_range(500..4_000))).await;
        let (name, _) = [TIMED, DATED][rng.random_range(0..2)];
        let delete = v1::DeleteNamespaceRequest {
            namespace: name.to_owned(),
            confirm: name.to_owned(),
            forget: false,
        };
        let members: Vec<Host> = world.members().into_iter().collect();
        let node = members[rng.random_range(0..members.len())];
        // Whether or not it is there by then.
        drop(administer(&world, node, delete, Duration::from_secs(1)).await);
        create(&world, step).await;
    }
}

/// Asks one node or another until told to stop. The answers go to the history, whose checker finds numbers out of order.
pub async fn keep_asking(world: Arc<World>, record: Arc<Record>, mut rng: StdRng) {
    while !record.is_stopped() {
        let members: Vec<Host> = world.members().into_iter().collect();
        let node = members[rng.random_range(0..members.len())];
        let (namespace, format) = [TIMED, DATED][rng.random_range(0..2)];
        let key = rng.random_range(0..2);
        let take = TakeIdNumbersRequest {
            namespace: namespace.to_owned(),
            format: format.to_owned(),
            key: Some(v1::Key { kind: Some(Kind::Id(key)) }),
            count: [1, 1, 5, 40][rng.random_range(0..4)],
        };
        let invoked = clock::now();
        let patience = Duration::from_millis(rng.random_range(50..1_500));
        let answer = administer(&world, node, take, patience).await;
        if let Ok(numbers) = answer {
            note(&world, &record, node, (namespace, key), &numbers, invoked);
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..40))).await;
    }
}

/// Notes an answer: each range as if it had been asked for by itself.
fn note(
    world: &World, record: &Record, node: Host, key: (&str, u64), numbers: &IdNumbers,
    invoked: Duration,
) {
    let returned = clock::now();
    let day = numbers.date_ms / DAY_MS * ORDERS_MAX;
    let in_order = numbers.firsts.is_sorted_by(|a, b| a < b);
    assert!(in_order, "the ids of one answer: {numbers:?}");
    for (first, count) in numbers.firsts.iter().zip(&numbers.counts) {
        let count = u64::from(*count);
        let process = record.new_process();
        let action = Action::Next { count };
        let mut op = op(process, node, key, action, (invoked, returned));
        (op.first, op.last) = (day + first, day + first + count - 1);
        let kind = match day {
            0 => "ids of a key",
            _ => "ids with a date",
        };
        world.trace.note(returned, kind, (&op.key, op.first, op.last, process));
        record.push(op);
    }
}

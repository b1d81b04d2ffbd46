//! A node holds as many worker ids as its callers can use, and leaves enough for others.

use std::collections::{BTreeMap, HashSet};

use crate::common::{cluster::Cluster, eventually, rust_client};
use ratchet_client::{Client, api::CreateNamespaceRequest};
use ratchet_ids::Format;

/// Four ids in a millisecond, and eight worker ids. A node may have two of them.
const FORMAT: &str = "bits zero:1=0 time-ms:48 worker:3 sequence:2";
/// How many ids a call asks for: the ids of a quarter of a second of one worker.
const COUNT: u32 = 1_000;

async fn create(client: &Client, name: &str) {
    let request = CreateNamespaceRequest {
        name: name.to_owned(),
        format: Some(FORMAT.to_owned()),
        ..CreateNamespaceRequest::default()
    };
    client.create_namespace(request).await.expect("a namespace");
}

/// Takes ids from one node.
async fn ids_of(client: &Client, namespace: &str) -> Vec<u64> {
    let made = client.next_ids(namespace, None, COUNT, &[]).await;
    let texts = made.expect("ids");
    assert_eq!(texts.len(), COUNT as usize);
    let numbers = texts.iter().map(|id| id.parse().expect("a number"));
    numbers.collect()
}

/// How many worker ids each holder has.
async fn held(client: &Client, namespace: &str) -> BTreeMap<String, usize> {
    let list = client.list_workers(namespace.to_owned()).await;
    let list = list.expect("a list");
    let mut held = BTreeMap::new();
    for worker in list.workers {
        if worker.ceiling_ms >= list.now_ms {
            *held.entry(worker.holder).or_default() += 1;
        }
    }
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_whose_callers_wait_lease_further_worker_ids_and_their_ids_stay_in_order() {
    let cluster = Cluster::start(3, |_| {}).await;
    let any = rust_client::client_of(&cluster, &[1, 2, 3]);
    create(&any, "orders").await;
    let (mut all, format) = (Vec::new(), Format::parse(FORMAT).expect("a format"));
    for node in 1..=2 {
        let client = rust_client::staying_at(&cluster, node);
        let mut made = Vec::new();
        eventually("a further worker id", async || {
            made.extend(ids_of(&client, "orders").await);
            let held = held(&client, "orders").await;
            (held.get(&format!("node {node}")) == Some(&2)).then_some(())
        })
        .await;
        for _ in 0..4 {
            made.extend(ids_of(&client, "orders").await);
        }
        assert!(made.is_sorted_by(|a, b| a < b), "ids of node {node}");
        let workers = made.iter().map(|id| {
            let decoded = format.decode_number((*id).into()).expect("an id");
            decoded.parts().worker
        });
        let workers: HashSet<u64> = workers.collect();
        assert_eq!(workers.len(), 2, "both make ids");
        all.extend(made);
    }
    // Half of them are held, so the third node gets one. Its callers wait, and it gets no further one.
    let client = rust_client::staying_at(&cluster, 3);
    for _ in 0..6 {
        all.extend(ids_of(&client, "orders").await);
    }
    let differ: HashSet<u64> = all.iter().copied().collect();
    assert_eq!(differ.len(), all.len(), "an id was made twice");
    // On a slow machine a lease may be renewed late. Until then it is not counted.
    let held = eventually("all nodes hold worker ids", async || {
        let held = held(&client, "orders").await;
        let of = |node: &str| held.get(node).copied().unwrap_or(0);
        let all_hold = of("node 1") >= 2 && of("node 2") >= 2 && of("node 3") >= 1;
        all_hold.then_some(held)
    })
    .await;
    let expected = [("node 1", 2), ("node 2", 2), ("node 3", 1)];
    let expected = expected.map(|(holder, count)| (holder.to_owned(), count));
    assert_eq!(held, BTreeMap::from(expected));
    // The others are for makers that have none.
    for _ in 0..3 {
        any.lease_worker("orders", "app").await.expect("a worker id");
    }
}

//! Clients of the Rust client library, and many tasks that take numbers with one.

use std::collections::{BTreeMap, BTreeSet};

use ratchet_client::{Builder, Client, api::CreateNamespaceRequest};
use tokio::task::JoinSet;

use super::{PATIENCE, cluster::Cluster};

/// A client that is given these servers, to be configured further.
pub fn builder(servers: impl IntoIterator<Item = impl ToString>) -> Builder {
    let servers: Vec<String> = servers.into_iter().map(|s| s.to_string()).collect();
    Client::builder().servers(&servers).timeout(PATIENCE)
}

/// A client that is given these servers.
pub fn client(servers: impl IntoIterator<Item = impl ToString>) -> Client {
    builder(servers).build().expect("a client")
}

/// A client that stays with these servers. One that finds out who leads asks the leader again for what its first server has
/// not answered for a moment, so that on a busy machine it may skip numbers.
pub fn staying(servers: impl IntoIterator<Item = impl ToString>) -> Client {
    builder(servers).follow_leader(false).build().expect("a client")
}

/// A client that stays with a node of a cluster.
pub fn staying_at(cluster: &Cluster, node: u64) -> Client {
    staying([cluster.address(node)])
}

/// A client that is given these nodes of a cluster.
pub fn client_of(cluster: &Cluster, nodes: &[u64]) -> Client {
    client(nodes.iter().map(|id| cluster.address(*id)))
}

/// Each of `tasks` tasks takes `each` numbers, one after the other, of one of `keys` keys. Fails unless
/// the numbers of each task grow. Answers all numbers by key.
pub async fn take(client: &Client, tasks: u64, each: usize, keys: u64) -> BTreeMap<u64, Vec<u64>> {
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let client = client.clone();
        running.spawn(async move {
            let (key, mut taken) = (task % keys, Vec::new());
            for _ in 0..each {
                let number = client.next("book", key).await.expect("a number");
                assert!(taken.last().is_none_or(|last| *last < number));
                taken.push(number);
            }
            (key, taken)
        });
    }
    let mut all: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    while let Some(done) = running.join_next().await {
        let (key, taken) = done.expect("a task");
        all.entry(key).or_default().extend(taken);
    }
    all
}

pub fn assert_no_repeats(all: &BTreeMap<u64, Vec<u64>>) {
    for (key, numbers) in all {
        let distinct: BTreeSet<&u64> = numbers.iter().collect();
        assert_eq!(distinct.len(), numbers.len(), "a number of key {key} was handed out twice");
    }
}

/// Creates a namespace whose ids have a format.
pub async fn create_with_format(client: &Client, name: &str, format: &str) {
    let request = CreateNamespaceRequest {
        name: name.to_owned(),
        format: Some(format.to_owned()),
        ..CreateNamespaceRequest::default()
    };
    client.create_namespace(request).await.expect("a namespace");
}

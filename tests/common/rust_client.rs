//! Clients of the Rust client library, and many tasks that take numbers with one.

use std::collections::{BTreeMap, BTreeSet};

use ratchet_client::{Builder, Client, api::CreateNamespaceRequest};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use super::{PATIENCE, cluster::Cluster, in_time};

/// A client that is given these servers, to be configured further.
pub fn builder(servers: impl IntoIterator<Item = impl ToString>) -> Builder {
    let servers: Vec<String> = servers.into_iter().map(|s| s.to_string()).collect();
    Client::builder().servers(&servers).timeout(PATIENCE)
}

/// A client that is given these servers.
pub fn client(servers: impl IntoIterator<Item = impl ToString>) -> Client {
    builder(servers).build().expect("a client")
}

/// A client that stays with these servers. A client that finds the leader asks it again for numbers that its first server
/// has not answered for a moment, so that on a busy machine it may skip numbers.
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

/// Numbers of a key that are taken all the time, one after the other, each greater than the one before.
pub struct Load {
    namespace: &'static str,
    taken: watch::Receiver<u64>,
    stop: watch::Sender<bool>,
    taking: JoinHandle<()>,
}

impl Load {
    /// Begins to take numbers of a namespace.
    pub fn start(client: Client, namespace: &'static str) -> Load {
        Load::above(client, namespace, 0)
    }

    fn above(client: Client, namespace: &'static str, mut last: u64) -> Load {
        let (told, taken) = watch::channel(last);
        let (stop, stopped) = watch::channel(false);
        let taking = tokio::spawn(async move {
            while !*stopped.borrow() {
                let number = client.next(namespace, 7).await.expect("a number");
                assert!(number > last, "{number} after {last}");
                last = number;
                told.send_replace(last);
            }
        });
        Load { namespace, taken, stop, taking }
    }

    /// Waits for a number that is asked for from now on. Fails if there was an error, or a number was not greater.
    pub async fn goes_on(&mut self) {
        // One may be under way.
        for _ in 0..2 {
            self.taken.mark_unchanged();
            in_time("a number", self.taken.changed()).await.expect("each number was greater");
        }
    }

    /// Goes on with another client, above the numbers of the one before.
    pub async fn with(&mut self, client: Client) {
        let last = self.end().await;
        *self = Load::above(client, self.namespace, last);
        self.goes_on().await;
    }

    /// Ends, and answers the last number.
    pub async fn stop(mut self) -> u64 {
        self.end().await
    }

    async fn end(&mut self) -> u64 {
        self.stop.send_replace(true);
        in_time("the last number", &mut self.taking).await.expect("each number was greater");
        *self.taken.borrow()
    }
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

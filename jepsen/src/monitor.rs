//! Watches from outside which node leads, and what the nodes count of skipped numbers.

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};

use crate::{
    client::Client, cluster::METRICS_PORT, nodes::KnownNodes, proto::Role, record::Recorder,
};

const EVERY: Duration = Duration::from_millis(25);
/// How often a node's metrics are read, and how long that may take.
const SCRAPE_EVERY: Duration = Duration::from_millis(100);
const SCRAPE_MAX: Duration = Duration::from_millis(500);
/// The metric that counts numbers whose fence failed after they were taken.
const FENCE_SKIPS: &str = "ratchet_numbers_skipped_total{cause=\"fence\"} ";

/// The time for which a node was seen to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// The node.
    pub node: u64,
    /// When it was first seen to lead, in nanoseconds since the start of the run.
    pub from_ns: u64,
    /// When it was last seen to lead.
    pub to_ns: u64,
}

/// What was seen of the terms.
#[derive(Default)]
pub struct Terms {
    leaderships: BTreeMap<u64, Leadership>,
    highest: u64,
    lowest: Option<u64>,
    fence_skips: BTreeMap<u64, Counter>,
}

/// A counter that begins at 0 again when its process is started again.
#[derive(Debug, Default, Clone, Copy)]
struct Counter {
    last: u64,
    of_earlier_processes: u64,
}

impl Counter {
    fn read(&mut self, value: u64) {
        if value < self.last {
            self.of_earlier_processes += self.last;
        }
        self.last = value;
    }

    fn total(&self) -> u64 {
        self.of_earlier_processes + self.last
    }
}

/// Watches the nodes.
#[derive(Clone, Default)]
pub struct Monitor(Arc<Mutex<Terms>>);

impl Monitor {
    /// Asks all nodes who leads, until the set is dropped.
    pub fn watch(&self, nodes: &KnownNodes, recorder: &Arc<Recorder>, tasks: &mut JoinSet<()>) {
        let (monitor, nodes, recorder) = (self.clone(), nodes.clone(), recorder.clone());
        tasks.spawn(async move {
            let mut watched: BTreeMap<u64, JoinSet<()>> = BTreeMap::new();
            loop {
                for (id, address) in nodes.read().iter() {
                    watched.entry(*id).or_insert_with(|| {
                        let mut task = JoinSet::new();
                        let client = Client::new(*address);
                        task.spawn(monitor.clone().watch_one(*id, client, recorder.clone()));
                        let metrics = SocketAddr::new(address.ip(), METRICS_PORT);
                        task.spawn(monitor.clone().scrape_one(*id, metrics));
                        task
                    });
                }
                tokio::time::sleep(EVERY).await;
            }
        });
    }

    async fn watch_one(self, id: u64, mut client: Client, recorder: Arc<Recorder>) {
        loop {
            let asked = recorder.now();
            if let Ok(status) = client.status().await {
                let own = status.nodes.iter().find(|node| node.id == id);
                let leads = own.is_some_and(|node| node.role() == Role::Leader);
                self.note(status.term, leads.then_some(id), asked);
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn scrape_one(self, id: u64, metrics: SocketAddr) {
        loop {
            if let Ok(Ok(skips)) = timeout(SCRAPE_MAX, fence_skips(metrics)).await {
                let mut terms = self.0.lock();
                terms.fence_skips.entry(id).or_default().read(skips);
            }
            tokio::time::sleep(SCRAPE_EVERY).await;
        }
    }

    fn note(&self, term: u64, leader: Option<u64>, at: u64) {
        let mut terms = self.0.lock();
        terms.highest = terms.highest.max(term);
        terms.lowest = Some(terms.lowest.map_or(term, |lowest| lowest.min(term)));
        if let Some(node) = leader {
            let led = terms.leaderships.entry(term).or_insert(Leadership {
                node,
                from_ns: at,
                to_ns: at,
            });
            led.to_ns = led.to_ns.max(at);
        }
    }

    /// The leader of the latest term that had one.
    pub fn leader(&self) -> Option<u64> {
        self.0
            .lock()
            .leaderships
            .values()
            .next_back()
            .map(|led| led.node)
    }

    /// How often a leader of another term was seen.
    pub fn changes(&self) -> u64 {
        (self.0.lock().leaderships.len() as u64).saturating_sub(1)
    }

    /// By how much the term grew. There were at most as many leader changes, seen or not.
    pub fn terms_passed(&self) -> u64 {
        let terms = self.0.lock();
        terms.highest - terms.lowest.unwrap_or(terms.highest)
    }

    /// How many numbers the nodes counted as skipped because the fence failed after they were taken. What a
    /// node counted in the last 100 ms before it ended may be missing.
    pub fn fence_skips(&self) -> u64 {
        let terms = self.0.lock();
        terms.fence_skips.values().map(Counter::total).sum()
    }

    /// Who led when.
    pub fn leaderships(&self) -> Vec<Leadership> {
        self.0.lock().leaderships.values().copied().collect()
    }
}

async fn fence_skips(metrics: SocketAddr) -> io::Result<u64> {
    let mut stream = TcpStream::connect(metrics).await?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let value = text.lines().find_map(|line| line.strip_prefix(FENCE_SKIPS));
    value
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| io::Error::other(format!("{metrics} shows no line {FENCE_SKIPS:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_goes_on_where_its_earlier_process_ended() {
        let mut counter = Counter::default();
        for value in [3, 5, 5, 1, 4] {
            counter.read(value);
        }
        assert_eq!(counter.total(), 9);
    }
}

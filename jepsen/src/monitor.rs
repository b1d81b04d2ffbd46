//! Watches from outside who leads.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::{client::Client, proto::Role, record::Recorder, workload::Nodes};

const EVERY: Duration = Duration::from_millis(25);

/// A node that was seen to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Led {
    /// Who.
    pub node: u64,
    /// When it was first seen to, in nanoseconds since the start of the run.
    pub from_ns: u64,
    /// When it was last seen to.
    pub to_ns: u64,
}

/// Who led, by term.
#[derive(Default)]
pub struct Terms {
    led: BTreeMap<u64, Led>,
    highest: u64,
    lowest: Option<u64>,
}

/// The watch.
#[derive(Clone, Default)]
pub struct Monitor(Arc<Mutex<Terms>>);

impl Monitor {
    /// Asks all nodes who leads, until the set is dropped.
    pub fn watch(&self, nodes: &Nodes, recorder: &Arc<Recorder>, tasks: &mut JoinSet<()>) {
        let (monitor, nodes, recorder) = (self.clone(), nodes.clone(), recorder.clone());
        tasks.spawn(async move {
            let mut watched: BTreeMap<u64, JoinSet<()>> = BTreeMap::new();
            loop {
                for (id, address) in nodes.read().iter() {
                    watched.entry(*id).or_insert_with(|| {
                        let mut task = JoinSet::new();
                        let client = Client::new(*address);
                        task.spawn(monitor.clone().watch_one(*id, client, recorder.clone()));
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

    fn note(&self, term: u64, leader: Option<u64>, at: u64) {
        let mut terms = self.0.lock();
        terms.highest = terms.highest.max(term);
        terms.lowest = Some(terms.lowest.map_or(term, |lowest| lowest.min(term)));
        if let Some(node) = leader {
            let led = terms.led.entry(term).or_insert(Led {
                node,
                from_ns: at,
                to_ns: at,
            });
            led.to_ns = led.to_ns.max(at);
        }
    }

    /// The leader of the latest term that had one.
    pub fn leader(&self) -> Option<u64> {
        self.0.lock().led.values().next_back().map(|led| led.node)
    }

    /// How often another term's leader was seen.
    pub fn changes(&self) -> u64 {
        (self.0.lock().led.len() as u64).saturating_sub(1)
    }

    /// By how much the term grew: no fewer than there were changes of leader, seen or not.
    pub fn terms_passed(&self) -> u64 {
        let terms = self.0.lock();
        terms.highest - terms.lowest.unwrap_or(terms.highest)
    }

    /// Who led when.
    pub fn led(&self) -> Vec<Led> {
        self.0.lock().led.values().copied().collect()
    }
}

//! The leaders of a run: hears from all nodes of every new leader.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::{connection::connect, target::Target};
use ratchet_client::api::{Route, WatchRouteRequest, sequencer_client::SequencerClient};

/// How soon a node that does not answer is asked again.
const RETRY: Duration = Duration::from_millis(50);

/// A term, and the node that led it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Led {
    pub term: u64,
    pub leader: u64,
    /// When the first node reported it.
    pub heard: Instant,
}

/// Watches for new leaders, until it is dropped.
pub struct LeaderWatch {
    terms: Arc<Mutex<BTreeMap<u64, Led>>>,
    _tasks: JoinSet<()>,
}

impl LeaderWatch {
    /// Starts to watch the nodes of `cluster`.
    pub fn start(cluster: &Target) -> LeaderWatch {
        let terms = Arc::<Mutex<BTreeMap<u64, Led>>>::default();
        let mut tasks = JoinSet::new();
        for address in cluster.addresses.clone() {
            let terms = terms.clone();
            tasks.spawn(async move {
                loop {
                    let heard = |route| note(&terms, &route);
                    watch(&address, heard).await;
                    tokio::time::sleep(RETRY).await;
                }
            });
        }
        LeaderWatch { terms, _tasks: tasks }
    }

    /// The leaders so far, term by term.
    pub fn led(&self) -> Vec<Led> {
        self.terms.lock().values().copied().collect()
    }
}

fn note(terms: &Mutex<BTreeMap<u64, Led>>, route: &Route) {
    terms.lock().entry(route.version).or_insert(Led {
        term: route.version,
        leader: route.leader,
        heard: Instant::now(),
    });
}

/// Calls `heard` with each route that a node reports, until it ends or does not answer.
async fn watch(address: &str, heard: impl Fn(Route)) {
    let Ok(channel) = connect(address, None).await else {
        return;
    };
    let mut client = SequencerClient::new(channel);
    let Ok(routes) = client.watch_route(WatchRouteRequest {}).await else {
        return;
    };
    let mut routes = routes.into_inner();
    while let Some(Ok(route)) = routes.next().await {
        heard(route);
    }
}

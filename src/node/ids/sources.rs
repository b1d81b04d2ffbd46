//! The worker ids that this node holds for each namespace whose ids are asked for here: one, and further ones while callers
//! have to wait because the ids of the time are used up.
//!
//! Invariant: a source belongs to the id of a namespace, not to its name. One that is created again under the name has a
//! source of its own.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use ratchet_client::{IdSource, Lessor};
use ratchet_ids::{EncodeError, Format};
use tokio::time::Instant;

use crate::{
    clock::Clock,
    metrics::Metrics,
    node::formats::created_again,
    planted_bugs::{Bug, is_planted},
    proto::{
        Code, Operation, Refusal, refuse,
        v1::{self, Reason},
    },
    sequence::{NamespaceId, WORKERS_MAX},
};

/// The worker ids of a namespace are released if no id was asked for in this time.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How many worker ids of a namespace this node holds at most.
const HELD_MAX: u64 = 32;
/// And never more than one part in this many of those that there are.
const HELD_SHARE: u64 = 4;

/// The worker ids that this node holds.
#[derive(Default)]
pub struct IdSources {
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    by_namespace: HashMap<NamespaceId, Kept>,
    is_closed: bool,
}

/// After how many calls a planted bug forgets a source.
const FORGOTTEN_AFTER: u64 = 200;

/// The source of a namespace's ids at this node.
#[derive(Clone)]
pub struct NodeSource {
    /// The namespace's format.
    pub format: Arc<Format>,
    /// How many ids a worker makes in a second.
    pub ids_per_second: u128,
    /// The source of the ids.
    pub ids: IdSource<LeaderLessor>,
}

impl NodeSource {
    /// A source of ids of `format`, and its keeper, to be spawned.
    ///
    /// # Errors
    /// [`EncodeError::NoWorker`] if the format has no worker.
    pub fn new(
        format: Format, leader: LeaderLessor,
    ) -> Result<(NodeSource, impl Future<Output = ()> + Send + 'static), EncodeError> {
        let workers = format.workers_max().min(WORKERS_MAX.into());
        let held_max = (workers / HELD_SHARE).clamp(1, HELD_MAX) as usize;
        let (ids, keeper) = IdSource::new(format.clone(), held_max, leader)?;
        let source = NodeSource {
            ids_per_second: format.ids_per_second().unwrap_or(1),
            format: Arc::new(format),
            ids,
        };
        Ok((source, keeper))
    }
}

struct Kept {
    source: NodeSource,
    asked_at: Instant,
    /// How often it was asked for; a planted bug alone uses it.
    asks: u64,
}

impl IdSources {
    /// The source of a namespace. `None` if there is none.
    ///
    /// # Errors
    /// UNAVAILABLE if the node stops.
    pub fn known(&self, namespace: NamespaceId) -> Result<Option<NodeSource>, Refusal> {
        self.all.lock().known(namespace)
    }

    /// The source of a namespace; `make` makes one if there is none.
    ///
    /// # Errors
    /// Those of `make`, and UNAVAILABLE if the node stops.
    pub fn of(
        &self, namespace: NamespaceId, make: impl FnOnce() -> Result<NodeSource, Refusal>,
    ) -> Result<NodeSource, Refusal> {
        let mut all = self.all.lock();
        if let Some(source) = all.known(namespace)? {
            return Ok(source);
        }
        let source = make()?;
        let kept = Kept { source: source.clone(), asked_at: Instant::now(), asks: 0 };
        all.by_namespace.insert(namespace, kept);
        Ok(source)
    }

    /// Releases the worker ids that nobody needs.
    pub fn let_idle_go(&self) {
        // A call that waits has a clone of the source.
        let is_idle = |_: &NamespaceId, kept: &mut Kept| {
            kept.asked_at.elapsed() >= IDLE_MAX && Arc::strong_count(&kept.source.format) == 1
        };
        let mut all = self.all.lock();
        let idle: Vec<_> = all.by_namespace.extract_if(is_idle).collect();
        drop(all);
        // The last clone of a source that is dropped releases the worker id.
        drop(idle);
    }

    /// Releases all worker ids, and makes no source any more.
    pub async fn close(&self) {
        let all = {
            let mut all = self.all.lock();
            all.is_closed = true;
            std::mem::take(&mut all.by_namespace)
        };
        let giving = all.values().map(|kept| kept.source.ids.release());
        join_all(giving).await;
    }
}

impl All {
    fn known(&mut self, namespace: NamespaceId) -> Result<Option<NodeSource>, Refusal> {
        if self.is_closed {
            refuse!(NodeStopping, "this node stops, and makes no ids any more; ask another one");
        }
        if is_planted(Bug::WorkerChangedWithinItsTime) {
            let mut forgotten = self.by_namespace.get_mut(&namespace).into_iter();
            if forgotten.any(|kept| kept.asks >= FORGOTTEN_AFTER) {
                self.by_namespace.remove(&namespace);
            }
        }
        let kept = self.by_namespace.get_mut(&namespace);
        Ok(kept.map(|kept| {
            kept.asked_at = Instant::now();
            kept.asks += 1;
            kept.source.clone()
        }))
    }
}

/// Has the leader carry out an operation.
pub type AskLeader<Q> =
    Box<dyn Fn(Q) -> BoxFuture<'static, Result<<Q as Operation>::Answer, Refusal>> + Send + Sync>;

/// Has the leader lease worker ids to this node.
pub struct LeaderLessor {
    /// How it is asked for a lease.
    pub lease: AskLeader<v1::LeaseWorkerRequest>,
    /// How it is told that a worker id is released.
    pub release: AskLeader<v1::ReleaseWorkerRequest>,
    /// The node's clock.
    pub clock: Arc<dyn Clock>,
    /// The node's metrics.
    pub metrics: Arc<Metrics>,
    /// The name of the node that asks, for the list of workers.
    pub holder: String,
    /// The namespace's name.
    pub namespace: String,
    /// The format of the ids, in full.
    pub format: String,
}

impl Lessor for LeaderLessor {
    type Error = Refusal;

    fn mono_ns(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    fn wall_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    fn format(&self) -> &str {
        &self.format
    }

    async fn lease(
        &self, renew: Option<v1::HeldWorker>, is_further: bool,
    ) -> Result<v1::WorkerLease, Refusal> {
        let request = v1::LeaseWorkerRequest {
            namespace: self.namespace.clone(),
            holder: self.holder.clone(),
            renew,
            further: is_further,
        };
        let mut lease = (self.lease)(request).await?;
        if is_planted(Bug::CeilingNotWaitedFor) {
            lease.ceiling_ms = u64::MAX;
        }
        if is_further {
            self.metrics.worker_ids_added.inc();
        }
        Ok(lease)
    }

    async fn release(&self, held: v1::HeldWorker, used_ms: u64) -> Result<(), Refusal> {
        let namespace = self.namespace.clone();
        let request = v1::ReleaseWorkerRequest { namespace, held: Some(held), used_ms };
        (self.release)(request).await.map(drop)
    }

    fn is_lost(refusal: &Refusal) -> bool {
        refusal.reason() == Reason::LeaseLost
    }

    fn created_again(&self, _: &str) -> Refusal {
        created_again(&self.namespace)
    }

    fn is_final(refusal: &Refusal) -> bool {
        match refusal.code() {
            // It may take until somebody has mended the clock.
            Code::Unavailable => refusal.reason() == Reason::ClockDoubted,
            Code::NotFound | Code::FailedPrecondition | Code::InvalidArgument => true,
            _ => false,
        }
    }

    fn follows(&self, step_ms: i64) {
        self.metrics.clock_steps.inc();
        tracing::warn!(
            step_ms,
            namespace = self.namespace,
            "the time of ids follows a clock that differs; check the machines' clocks"
        );
    }
}

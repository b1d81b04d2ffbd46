//! Ids with a shape: any node makes them, under worker ids that it holds. No hop to the leader, and for the time of a
//! lease no majority. Those of formats without a worker come from the leader (`key_ids.rs`).
//!
//! `request.rs` says what is asked, and `id_list.rs` is what is answered. `sources.rs` holds the worker ids, and
//! `key_queues.rs` the requests for ids of one key. `known_formats.rs` tells of formats, and what is in an id.

pub(super) mod id_list;
mod key_ids;
pub(super) mod key_queues;
mod known_formats;
pub(super) mod request;
pub(super) mod sources;

use std::{pin::pin, sync::Arc, time::Duration};

use futures::FutureExt;
use ratchet_client::NotTaken;
use ratchet_ids::{Fixed, Format, Source, Wait};
use tokio::time::{Instant, interval};

use self::{
    id_list::IdList,
    key_queues::KeyQueues,
    request::{bytes_of, check, check_count, count_of, parameters_of},
    sources::{AskLeader, IdSources, LeaderLessor, NodeSource},
};
use super::{
    Config,
    access::{Asker, Guarded},
    admission::Admission,
    common::Common,
    formats::{IDS_MAX, ORDERS_MAX, id_format, invalid},
    known_namespaces::KnownNamespaces,
    operations::Operations,
    request_memory::{RequestMemory, Reservation},
    requests::{checks::no_namespace, counted::CallCounts, keys::key_of},
    slow_calls::SlowCalls,
    stopping::Stopping,
    terms::LedTerms,
    told_call::About,
    traces::Span,
    wall_clock::ids_time::IdsTime,
    way::patience::FOR_LEASE,
};
use crate::{
    clock::{Clock, whole_ms},
    consensus::{Group, ThisNode},
    laps::{self, Phase},
    metrics::Metrics,
    planted_bugs::{Bug, is_planted},
    proto::{
        Code, Operation, Refusal, refusal, refuse,
        v1::{self, NextIdsRequest},
    },
    sequence::Namespace,
};

/// Service and method by which ids are asked for.
pub const NEXT_IDS: &str = "ratchet.v1.Ids/Next";
/// An answer that took longer does not say what the leader's time is by now.
const LATE_MIN: Duration = Duration::from_millis(500);
/// How long a node that stops waits until its worker ids are released.
const RELEASING_MAX: Duration = Duration::from_millis(500);
/// How often idle worker ids are looked for.
const IDLE_CHECK: Duration = Duration::from_secs(10);

/// The maker of the ids of a namespace.
enum MadeBy {
    /// This node, under a worker id.
    Node(NodeSource),
    /// The leader, for a key.
    Leader(Format),
}

/// Ids, in the order in which they were made.
#[derive(Debug)]
pub struct MadeIds {
    /// Their format.
    pub format: Arc<Format>,
    /// The ids.
    pub ids: IdList,
}

impl MadeIds {
    /// The ids, as their format writes them.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        let ids = self.ids.iter();
        ids.map(|id| self.format.print(id).to_string())
    }
}

/// The ids that this node makes, under worker ids that it holds or of numbers that the leader takes.
pub struct Ids {
    config: Arc<Config>,
    this_node: Arc<ThisNode>,
    group: Arc<Group>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    request_memory: Arc<RequestMemory>,
    slow_calls: Arc<SlowCalls>,
    stopping: Stopping,
    led: Arc<LedTerms>,
    admission: Arc<Admission>,
    operations: Arc<Operations>,
    namespaces: Arc<KnownNamespaces>,
    counts: Arc<CallCounts>,
    /// The time by which worker ids are leased, and ids of keys are made.
    time: IdsTime,
    /// The worker ids that this node holds.
    sources: IdSources,
    /// The callers of this node that wait for ids of a key.
    queues: KeyQueues,
}

impl Ids {
    /// None yet. The worker ids, and the numbers, are those that `operations` bring of the leader, whose time this node tells
    /// by `time`.
    pub(super) fn new(
        common: &Common, (led, time): (Arc<LedTerms>, IdsTime), admission: Arc<Admission>,
        operations: Arc<Operations>, namespaces: Arc<KnownNamespaces>, counts: Arc<CallCounts>,
    ) -> Self {
        Ids {
            config: common.config.clone(),
            this_node: common.this_node.clone(),
            group: common.group.clone(),
            clock: common.clock.clone(),
            metrics: common.metrics.clone(),
            request_memory: common.request_memory.clone(),
            slow_calls: common.slow_calls.clone(),
            stopping: common.stopping.clone(),
            led,
            admission,
            operations,
            namespaces,
            counts,
            time,
            sources: IdSources::default(),
            queues: KeyQueues::default(),
        }
    }

    /// Makes ids before `deadline`. `span` is that of the call, if it is traced. The memory that is reserved for the request
    /// and its ids comes with them: it is to be dropped when they are sent.
    ///
    /// # Errors
    /// Those of [`Admission::admit`]; NOT_FOUND if there is no such namespace;
    /// FAILED_PRECONDITION if it hands out plain numbers; INVALID_ARGUMENT for a
    /// count, a parameter or a key outside of its limits; OUT_OF_RANGE if the format has ended, or a key has no order number
    /// left; RESOURCE_EXHAUSTED, with a time after which to ask again, if every worker id is held until the deadline, the
    /// ids until then are used up, or other requests hold the memory; UNAVAILABLE if no leader leases a worker id in time.
    pub async fn next(
        self: &Arc<Self>, request: &NextIdsRequest, (by, span): (&Asker, Option<&Span>),
        deadline: Instant,
    ) -> Result<(MadeIds, Reservation), Refusal> {
        let about = || About {
            method: NEXT_IDS,
            namespace: Some(&request.namespace),
            keys: request.key.is_some().into(),
            forwarded_here: false,
        };
        let making = pin!(self.make_granted(request, by, deadline));
        let made = self.slow_calls.watch(about, span, making).await;
        let refused = made.as_ref().err().map(|why| (why.reason(), 1));
        self.counts.count(&request.namespace, None, refused);
        made
    }

    /// As [`Ids::next`]. The call is not counted.
    async fn make_granted(
        self: &Arc<Self>, request: &NextIdsRequest, by: &Asker, deadline: Instant,
    ) -> Result<(MadeIds, Reservation), Refusal> {
        // Before anything waits.
        check(request)?;
        self.admission.admit(by, request.wanted(), deadline).await?;
        let access = self.admission.access();
        // Only numbers of sequences are counted as burnt.
        drop(access.begin_taking(by, request.wanted())?);
        access.take_numbers(by, &request.namespace, count_of(request).into())?;
        let reserved = self.request_memory.reserve(bytes_of(request))?;
        let made = self.checked_ids(request, deadline).await?;
        Ok((made, reserved))
    }

    async fn checked_ids(
        self: &Arc<Self>, request: &NextIdsRequest, deadline: Instant,
    ) -> Result<MadeIds, Refusal> {
        let made_by = match self.known_maker(request) {
            Some(made_by) => made_by?,
            None => {
                self.learn_namespace(&request.namespace, deadline).await?;
                let made_by = self.known_maker(request);
                made_by.unwrap_or_else(|| Err(not_found(&request.namespace)))?
            }
        };
        let source = match made_by {
            MadeBy::Leader(format) => {
                match format.ids_per_second() {
                    Some(rate) => check_rate(request, "a key has", rate)?,
                    // Each id has an order number.
                    None => check_count(request, ORDERS_MAX)?,
                }
                let made = Box::pin(self.key_ids(request, format, deadline)).await;
                laps::lap(Phase::Queue);
                return made;
            }
            MadeBy::Node(source) => source,
        };
        check_rate(request, "a worker makes", source.ids_per_second)?;
        if request.key.is_some() {
            refuse!(
                InvalidRequest,
                "key is {}; ids of namespace {:?} have a worker and belong to no key: leave the key out",
                key_of(&request.key)?,
                request.namespace
            );
        }
        let fixed =
            (source.format.fixed(&parameters_of(request), None)).map_err(|e| invalid(&e))?;
        let count = u64::from(count_of(request));
        let ids = self.make(&source, count, fixed, deadline).await;
        let ids = ids.map_err(|not_taken| self.not_made(not_taken, request, &source.format))?;
        Ok(MadeIds { format: source.format, ids })
    }

    async fn make(
        &self, source: &NodeSource, count: u64, fixed: Fixed, deadline: Instant,
    ) -> Result<IdList, NotTaken<Refusal>> {
        // At most IDS_MAX of them.
        let mut ids = IdList::new(&source.format, count as usize);
        let mut left = count;
        while left > 0 {
            let run = match source.ids.try_take(fixed, left) {
                Ok(run) => run,
                Err(Wait::For(_)) if is_planted(Bug::CounterLaps) && left < count => {
                    left -= ids.repeat(left as usize) as u64;
                    continue;
                }
                Err(wait) => {
                    let waits = match wait {
                        Wait::For(time) => Instant::now() + time <= deadline,
                        Wait::ForLease => true,
                        Wait::Ended => false,
                    };
                    self.metrics.id_waits.inc_by(waits.into());
                    let taken = source.ids.take(fixed, left, deadline).await;
                    laps::lap(Phase::Queue);
                    taken?
                }
            };
            left -= run.count();
            ids.add(run);
        }
        self.metrics.ids.inc_by(count);
        Ok(ids)
    }

    /// The maker of a namespace's ids. `None` if this node does not know the namespace.
    fn known_maker(self: &Arc<Self>, request: &NextIdsRequest) -> Option<Result<MadeBy, Refusal>> {
        let namespaces = self.group.view.namespaces();
        let namespace = namespaces.by_name(&request.namespace)?;
        Some(self.maker(namespace, request))
    }

    fn maker(
        self: &Arc<Self>, namespace: &Namespace, request: &NextIdsRequest,
    ) -> Result<MadeBy, Refusal> {
        let limit = namespace.config.count_max.unwrap_or(u64::MAX);
        let limit = u32::try_from(limit).map_or(IDS_MAX, |limit| limit.min(IDS_MAX));
        check_count(request, limit)?;
        if let Some(source) = self.sources.known(namespace.id)? {
            return Ok(MadeBy::Node(source));
        }
        let format = id_format(namespace)?;
        match format.source() {
            Source::Worker => {
                let make = || self.make_source(namespace, format);
                self.sources.of(namespace.id, make).map(MadeBy::Node)
            }
            Source::Key | Source::Date => Ok(MadeBy::Leader(format)),
        }
    }

    fn make_source(
        self: &Arc<Self>, namespace: &Namespace, format: Format,
    ) -> Result<NodeSource, Refusal> {
        let leader = LeaderLessor {
            lease: self.asking_the_leader(|ids, lease: &v1::WorkerLease, asked_at| {
                ids.hear_leader(lease.now_ms, asked_at);
            }),
            release: self.asking_the_leader(|_, _, _| {}),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            holder: format!("node {}", self.config.node_id),
            namespace: namespace.config.name.clone(),
            format: format.to_string(),
        };
        let (source, keeper) = NodeSource::new(format, leader).map_err(|error| invalid(&error))?;
        self.this_node.tasks.spawn("worker ids", keeper);
        Ok(source)
    }

    /// How the leader is asked. `hear` is given the answer, and when the leader was asked.
    fn asking_the_leader<Q: Operation>(
        self: &Arc<Self>, hear: fn(&Ids, &Q::Answer, Instant),
    ) -> AskLeader<Q> {
        let ids = Arc::downgrade(self);
        Box::new(move |request| {
            let ids = ids.upgrade();
            let asking = async move {
                let ids = ids.ok_or_else(|| refusal!(NodeStopping, "the node stops"))?;
                let asked_at = Instant::now();
                let (node, until) = (ids.as_node(), asked_at + FOR_LEASE);
                let (answer, _) = ids.operations.ask(&request, &node, until).await?;
                hear(&ids, &answer, asked_at);
                Ok(answer)
            };
            asking.boxed()
        })
    }

    /// This node, as it asks the leader for itself.
    fn as_node(&self) -> Asker {
        Asker::node(self.config.node_id)
    }

    /// Takes the leader's time into account, in the answer to what was asked at `asked_at`. A late answer says little.
    pub(super) fn hear_leader(&self, leader_ms: u64, asked_at: Instant) {
        // A leader must not hear itself: its patience with its own clock would begin anew.
        if self.led.serving().is_none() && asked_at.elapsed() <= LATE_MIN {
            self.time.told(leader_ms);
        }
    }

    /// Waits until this node knows a namespace that the leader knows.
    async fn learn_namespace(&self, name: &str, deadline: Instant) -> Result<(), Refusal> {
        match self.namespaces.learn(name, deadline).await {
            Err(refusal) if refusal.code() == Code::NotFound => Err(not_found(name)),
            learnt => learnt,
        }
    }

    fn not_made(
        &self, not_taken: NotTaken<Refusal>, request: &NextIdsRequest, format: &Format,
    ) -> Refusal {
        use NotTaken::*;
        let name = &request.namespace;
        match not_taken {
            Refused(refusal) => refusal,
            // Every worker id is held, or there is no room for the request: the refusal says when to ask again.
            NoLease(Some(refusal)) if refusal.code() == Code::ResourceExhausted => refusal,
            NoLease(Some(refusal)) => {
                let why = refusal.message();
                refusal!(
                    NoLeader,
                    "namespace {name:?}: no worker id was leased before the deadline: {why}"
                )
            }
            NoLease(None) => refusal!(
                NoLeader,
                "namespace {name:?}: no worker id was leased before the deadline: no leader answered"
            ),
            UsedUp(time) => {
                let ms = whole_ms(time);
                refusal!(
                    IdsUsedUp,
                    "namespace {name:?}: the ids that this node can make before the deadline are used up; the next one \
                     comes in {ms} ms"
                )
                .retry_after(ms)
            }
            Ended => refusal!(
                FormatEnded,
                "the format of namespace {name:?} has ended on {}; create a namespace with another one",
                format.date_time(format.last_ms())
            ),
        }
    }

    /// Releases all worker ids, because the node stops. Ids that are asked for later fail.
    pub(super) async fn release_workers(&self) {
        let giving = self.sources.close();
        if tokio::time::timeout(RELEASING_MAX, giving).await.is_err() {
            tracing::info!(
                "worker ids were not released in time; they are free once their ceilings have passed"
            );
        }
    }

    /// Releases worker ids that nobody needs, for as long as the node runs.
    pub(super) async fn let_idle_workers_go(self: Arc<Self>) {
        let mut checks = interval(IDLE_CHECK);
        loop {
            checks.tick().await;
            self.sources.let_idle_go();
        }
    }
}

/// Refuses more ids than a worker, or a key, has in a second: they would be taken from others, and burnt at the deadline.
fn check_rate(request: &NextIdsRequest, whose: &str, rate: u128) -> Result<(), Refusal> {
    let count = count_of(request);
    match u128::from(count) > rate {
        true => Err(refusal!(
            CountTooLarge,
            "count is {count}; {whose} {rate} ids of namespace {:?} in a second: ask for fewer at a time",
            request.namespace
        )),
        false => Ok(()),
    }
}

fn not_found(name: &str) -> Refusal {
    refusal!(
        NamespaceNotFound,
        "{} --format FORMAT (ratchet id formats lists them)",
        no_namespace(name).message()
    )
}

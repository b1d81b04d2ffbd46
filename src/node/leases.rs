//! Worker ids for the makers of ids: leased, renewed, given back and listed by the leader; and what a wrong clock does
//! to them.
//!
//! `desk.rs` is where leases are asked for. `ids_time.rs` is the time that they are given by, `key_times.rs` that of keys whose ids are
//! ahead of it, and `dates.rs` that of ids with a date. `numbers.rs` takes the numbers of ids that come from a key.

pub(super) mod dates;
pub(super) mod desk;
pub(super) mod ids_time;
pub(super) mod key_times;
pub(super) mod numbers;

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use self::{
    dates::Dates,
    desk::{AHEAD_MS, Served, Wanted, WorkerDesk},
    ids_time::IdsTime,
    key_times::KeyTimes,
};
use super::{
    Config,
    access::{Guarded, Principal, Subject},
    common::Common,
    formats::{WorkerIds, leases_of, worker_ids},
    requests::{checks::namespace_named, operation::ByLeader},
    way::attempt::{Attempt, Unanswered},
};
use crate::{
    allocator::Term,
    clock::Clock,
    consensus::Group,
    proto::{Refusal, refusal, refuse, v1},
    sequence::{WORKERS_MAX, WorkerAct, WorkerAnswer, WorkerRecord},
    storage::read_workers,
};

/// The longest name of a holder, in characters.
const HOLDER_CHARS_MAX: usize = 64;

/// About how many bytes what is known of a worker id has as a message and encoded.
const WORKER_BYTES: usize = 512;

impl ByLeader for v1::LeaseWorkerRequest {
    type Service = LeaderIds;

    async fn carry_out(
        self, leader: &LeaderIds, (term, _): (&Term, &Principal), deadline: Instant,
    ) -> Attempt<v1::WorkerLease> {
        let ids = leader.worker_ids(&self.namespace)?;
        check_holder(&self.holder)?;
        let wanted = match self.renew {
            Some(held) => {
                Wanted::Renew { worker: check_worker(held.worker, &ids)?, token: held.token }
            }
            None => Wanted::Lease {
                holder: self.holder,
                workers: ids.workers,
                is_further: self.further,
            },
        };
        let is_renewal = self.renew.is_some();
        let served = leader.ask_for_worker(term, &ids, wanted, deadline).await;
        if let Ok(Served::Done(worker, WorkerAnswer::Leased(lease))) = served {
            match is_renewal {
                true => leader.group.set_metrics.worker_renewals.inc(),
                false => leader.group.set_metrics.worker_leases.inc(),
            };
            return Ok(leader.granted(worker, lease, ids.format));
        }
        if let Ok(
            Served::NoneFree { .. } | Served::NoneToSpare | Served::Done(_, WorkerAnswer::Lost),
        ) = served
        {
            leader.group.set_metrics.worker_leases_refused.inc();
        }
        Err(not_served(served, &ids, self.renew.map_or(0, |held| held.token)))
    }
}

impl ByLeader for v1::ReleaseWorkerRequest {
    type Service = LeaderIds;

    async fn carry_out(
        self, leader: &LeaderIds, (term, _): (&Term, &Principal), deadline: Instant,
    ) -> Attempt<v1::ReleaseWorkerResponse> {
        let ids = leader.worker_ids(&self.namespace)?;
        let held = self.held.ok_or_else(|| {
            refusal!(InvalidRequest, "held is missing; give worker and token of the lease")
        })?;
        let worker = check_worker(held.worker, &ids)?;
        let act = WorkerAct::Release { token: held.token, used_ms: self.used_ms };
        let wanted = Wanted::Act { worker, act };
        let served = leader.ask_for_worker(term, &ids, wanted, deadline).await;
        let released = match served {
            Ok(Served::Done(_, WorkerAnswer::Released)) => true,
            Ok(Served::Done(_, WorkerAnswer::Lost)) => false,
            served => return Err(not_served(served, &ids, 0)),
        };
        Ok(v1::ReleaseWorkerResponse { released })
    }
}

impl ByLeader for v1::ListWorkersRequest {
    type Service = LeaderIds;

    async fn carry_out(
        self, leader: &LeaderIds, _: (&Term, &Principal), deadline: Instant,
    ) -> Attempt<v1::ListWorkersResponse> {
        let ids = namespace_named(&leader.group, &self.namespace).and_then(leases_of)?;
        let reading = timeout_at(deadline, read_workers(&leader.group.view, ids.namespace));
        let workers = reading.await.map_err(|_| {
            refusal!(DeadlineExceeded, "the worker ids were not read before the deadline")
        })?;
        let workers = workers.map_err(|error| refusal!(Internal, "{error}"))?;
        Ok(v1::ListWorkersResponse {
            workers: workers.into_iter().map(listed).collect(),
            workers_max: ids.workers,
            now_ms: leader.time.shown_ms(),
        })
    }

    fn answer_bytes(&self, _: &LeaderIds) -> usize {
        WORKERS_MAX as usize * WORKER_BYTES
    }
}

/// What the leader of a Raft group does for ids.
pub struct LeaderIds {
    config: Arc<Config>,
    group: Arc<Group>,
    clock: Arc<dyn Clock>,
    /// The time by which worker ids are leased, and ids of keys are made.
    time: IdsTime,
    /// Where worker ids are leased, and dates are logged.
    desk: WorkerDesk,
    /// The dates of ids, as this node knows them while it leads.
    dates: Dates,
    /// The times of namespaces whose ids of keys lie ahead.
    key_times: KeyTimes,
}

impl LeaderIds {
    /// Opens the desk. `time` is that of ids.
    pub(super) fn new(common: &Common, time: IdsTime) -> Self {
        LeaderIds {
            config: common.config.clone(),
            group: common.group.clone(),
            clock: common.clock.clone(),
            desk: WorkerDesk::open(common.group.clone(), time.clone()),
            dates: Dates::default(),
            key_times: KeyTimes::default(),
            time,
        }
    }

    /// The time by which worker ids are leased, and ids of keys are made.
    pub(super) fn time(&self) -> &IdsTime {
        &self.time
    }

    fn worker_ids(&self, namespace: &str) -> Result<WorkerIds, Refusal> {
        namespace_named(&self.group, namespace).and_then(worker_ids)
    }

    /// Has the desk do what is wanted.
    ///
    /// # Errors
    /// DEADLINE_EXCEEDED if it is not known in time.
    async fn ask_for_worker(
        &self, term: &Term, ids: &WorkerIds, wanted: Wanted, deadline: Instant,
    ) -> Result<Served, Refusal> {
        let asking = self.desk.ask(term.lease(), ids.namespace, wanted);
        timeout_at(deadline, asking).await.map_err(|_| {
            refusal!(
                DeadlineExceeded,
                "namespace {:?}: whether the worker id was leased, renewed, released or taken back is unknown; it is safe \
                 to ask again",
                ids.name
            )
        })
    }

    fn granted(&self, worker: u32, lease: WorkerRecord, format: String) -> v1::WorkerLease {
        v1::WorkerLease {
            worker,
            token: lease.token,
            from_ms: lease.from_ms,
            ceiling_ms: lease.ceiling_ms,
            now_ms: self.time.shown_ms(),
            format,
        }
    }
}

/// Why a caller did not get what it wanted.
fn not_served(served: Result<Served, Refusal>, ids: &WorkerIds, token: u64) -> Unanswered {
    use Served::*;
    let name = &ids.name;
    Unanswered::Refused(match served {
        Err(refusal) => refusal,
        Ok(NoneFree { in_ms }) => refusal!(
            WorkersHeld,
            "all {} worker ids of namespace {name:?} are held; the first one may be free in {} s",
            ids.workers,
            in_ms.div_ceil(1_000)
        )
        .retry_after(in_ms),
        Ok(NoneToSpare) => refusal!(
            WorkersHeld,
            "half of the {} worker ids of namespace {name:?} are held; the others are for holders that have none: go on with \
             those that you have",
            ids.workers
        ),
        Ok(Done(worker, WorkerAnswer::Lost)) => refusal!(
            LeaseLost,
            "the lease with token {token} of worker id {worker} of namespace {name:?} was lost: the worker id was leased \
             again, or the namespace was created again or recovered; make no further id under it, and lease a worker \
             id again"
        ),
        Ok(Unreadable(why)) => refusal!(Internal, "{why}"),
        Ok(Refused(why)) => why,
        // Whoever asks again is told that the namespace is gone, is asked by the next leader, or gets another worker id.
        Ok(
            Done(
                _,
                WorkerAnswer::NoNamespace
                | WorkerAnswer::Held { .. }
                | WorkerAnswer::Leased(_)
                | WorkerAnswer::Released,
            )
            | Unknown,
        ) => return Unanswered::ELSEWHERE,
    })
}

fn check_holder(holder: &str) -> Result<(), Refusal> {
    let length = holder.chars().count();
    if !(1..=HOLDER_CHARS_MAX).contains(&length) {
        refuse!(
            InvalidRequest,
            "holder has {length} characters; give 1 to {HOLDER_CHARS_MAX}, for example the name of the host"
        );
    }
    match holder.chars().find(|c| c.is_control()) {
        Some(c) => Err(refusal!(
            InvalidRequest,
            "holder is {holder:?}, which holds the control character {c:?}; write it on one line"
        )),
        None => Ok(()),
    }
}

fn check_worker(worker: u32, ids: &WorkerIds) -> Result<u32, Refusal> {
    match worker < ids.workers {
        true => Ok(worker),
        false => Err(refusal!(
            InvalidRequest,
            "worker is {worker}; namespace {:?} has the worker ids from 0 to {}",
            ids.name,
            ids.workers - 1
        )),
    }
}

fn listed((worker, lease): (u32, WorkerRecord)) -> v1::Worker {
    v1::Worker {
        worker,
        holder: lease.holder,
        from_ms: lease.from_ms,
        ceiling_ms: lease.ceiling_ms,
        written_ms: lease.written_ms,
    }
}

// Takes a time back that was logged under a wrong clock: the lease of a worker id that reaches years ahead, or a date.
//
// What is checked: this leader's own clock is believed; the lease is the one that the caller means, and reaches
// further ahead than any leader with a right clock would have let it. It ends above all that such leaders may have
// granted. What cannot be checked, the caller answers for: that nobody makes ids under the lease any more, and that
// ids with the wrong times, which exist, may be made again when those times have come.

impl ByLeader for v1::TakeWorkerBackRequest {
    type Service = LeaderIds;

    /// Who asked a second leader would be told that there is no such lease, although the first one has taken it back.
    const IS_ASKED_ONCE: bool = true;

    fn subject(&self, answer: Option<&v1::TakeWorkerBackResponse>) -> Subject {
        let asked = format!("worker={} ceiling_ms={}", self.worker, self.ceiling_ms);
        let change = match answer {
            Some(answer) => format!("{asked}->{}", answer.ceiling_ms),
            None => asked,
        };
        Subject::of(self.wanted()).setting(Some(change))
    }

    async fn carry_out(
        self, leader: &LeaderIds, (term, _): (&Term, &Principal), deadline: Instant,
    ) -> Attempt<v1::TakeWorkerBackResponse> {
        let ids = leases_of(namespace_named(&leader.group, &self.namespace)?)?;
        check_worker(self.worker, &ids)?;
        let to_ms = leader.end_of_lease(term, &ids, &self)?;
        let (worker, ceiling_ms) = (self.worker, self.ceiling_ms);
        let wanted = Wanted::Act { worker, act: WorkerAct::TakeBack { ceiling_ms, to_ms } };
        let served = {
            // Nobody learns the date that is taken back meanwhile.
            let asking = leader.dates.asking(ids.namespace);
            let _asking = timeout_at(deadline, asking.lock()).await.map_err(|_| {
                refusal!(
                    DeadlineExceeded,
                    "namespace {:?}: others asked for its date until the deadline, and nothing was taken back; ask again",
                    ids.name
                )
            })?;
            // Not later: the entry may be under way when the caller leaves. Who comes then asks the log behind that entry.
            leader.dates.forget(ids.namespace);
            leader.ask_for_worker(term, &ids, wanted, deadline).await
        };
        match served {
            Ok(Served::Done(_, WorkerAnswer::Leased(lease))) => {
                let namespace = &ids.name;
                tracing::warn!(namespace, worker, ceiling_ms, to_ms, "a lease was taken back");
                let now_ms = leader.time.shown_ms();
                Ok(v1::TakeWorkerBackResponse { ceiling_ms: lease.ceiling_ms, now_ms })
            }
            Ok(Served::Done(_, WorkerAnswer::Lost)) => Err(refusal!(
                WrongState,
                "worker id {worker} of namespace {:?} has no lease with the ceiling {ceiling_ms} any more; see: ratchet \
                 worker list {}",
                ids.name,
                ids.name
            )
            .into()),
            Ok(Served::Unknown) => Err(refusal!(
                OutcomeUnknown,
                "namespace {:?}: whether the lease was taken back is not known; look with: ratchet worker list {}",
                ids.name,
                ids.name
            )
            .into()),
            served => Err(not_served(served, &ids, 0)),
        }
    }
}

impl LeaderIds {
    /// Where a lease that is taken back ends.
    fn end_of_lease(
        &self, term: &Term, ids: &WorkerIds, asked: &v1::TakeWorkerBackRequest,
    ) -> Result<u64, Refusal> {
        if !asked.vouched {
            refuse!(
                WrongState,
                "namespace {:?}: a lease is taken back only if you vouch for it that nobody makes ids under it any more, and \
                 that ids with times above its new end may be made again when those times have come: --vouch",
                ids.name
            );
        }
        let now_ms = self.time.now_ms(term.term())?;
        let apart_ms = self.config.clock_apart_max_ms;
        // Two leaders whose clocks are believed are at most so far from one another.
        let right_ms = now_ms.saturating_add(apart_ms.saturating_mul(2));
        let (to_ms, least_ms) = match &ids.date {
            Some(format) => (format.day_of(now_ms), right_ms),
            None => {
                let granted_ms = right_ms.saturating_add(AHEAD_MS);
                (granted_ms, granted_ms)
            }
        };
        match asked.ceiling_ms > least_ms {
            true => Ok(to_ms),
            false => Err(refusal!(
                WrongState,
                "namespace {:?}: a lease with the ceiling {} does not reach further ahead than right clocks let it (to \
                 {least_ms}, and it is {now_ms}); wait until the time has passed it",
                ids.name,
                asked.ceiling_ms
            )),
        }
    }
}

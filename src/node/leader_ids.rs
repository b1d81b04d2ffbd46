//! The leader's part in making ids: it leases, renews, releases and lists the worker ids of those that make ids, and takes the
//! numbers of ids that come from a key.
//!
//! `desk.rs` is where leases are asked for, and `free_workers.rs` which worker id one gets. They are given by the leader's time
//! (`wall_clock`). `key_times.rs` is the time of keys whose ids are ahead of it, and `dates.rs` that of ids with a date.
//! `take_back.rs` takes a time back that was logged under a wrong clock. `key_numbers.rs` takes the numbers of ids that come
//! from a key.

pub(super) mod dates;
pub(super) mod desk;
mod free_workers;
pub(super) mod key_numbers;
pub(super) mod key_times;
mod take_back;

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use self::{
    dates::Dates,
    desk::{DeskAnswer, DeskRequest, WorkerDesk},
    key_times::KeyTimes,
};
use super::{
    Config,
    access::Asker,
    common::Common,
    formats::{WorkerIds, leases_of, worker_ids},
    requests::{checks::namespace_named, operation::ByLeader},
    wall_clock::ids_time::IdsTime,
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
        self, leader: &LeaderIds, (term, _): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::WorkerLease> {
        let ids = leader.worker_ids(&self.namespace)?;
        check_holder(&self.holder)?;
        let request = match self.renew {
            Some(held) => {
                DeskRequest::Renew { worker: check_worker(held.worker, &ids)?, token: held.token }
            }
            None => DeskRequest::Lease {
                holder: self.holder,
                workers: ids.workers,
                is_further: self.further,
            },
        };
        let is_renewal = self.renew.is_some();
        let served = leader.ask_for_worker(term, &ids, request, deadline).await;
        if let Ok(DeskAnswer::Done(worker, WorkerAnswer::Leased(lease))) = served {
            match is_renewal {
                true => leader.group.set_metrics.worker_renewals.inc(),
                false => leader.group.set_metrics.worker_leases.inc(),
            };
            return Ok(leader.granted(worker, lease, ids.format));
        }
        if let Ok(
            DeskAnswer::NoneFree { .. }
            | DeskAnswer::NoneToSpare
            | DeskAnswer::Done(_, WorkerAnswer::Lost),
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
        self, leader: &LeaderIds, (term, _): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::ReleaseWorkerResponse> {
        let ids = leader.worker_ids(&self.namespace)?;
        let held = self.held.ok_or_else(|| {
            refusal!(InvalidRequest, "held is missing; give worker and token of the lease")
        })?;
        let worker = check_worker(held.worker, &ids)?;
        let act = WorkerAct::Release { token: held.token, used_ms: self.used_ms };
        let request = DeskRequest::Act { worker, act };
        let served = leader.ask_for_worker(term, &ids, request, deadline).await;
        let released = match served {
            Ok(DeskAnswer::Done(_, WorkerAnswer::Released)) => true,
            Ok(DeskAnswer::Done(_, WorkerAnswer::Lost)) => false,
            served => return Err(not_served(served, &ids, 0)),
        };
        Ok(v1::ReleaseWorkerResponse { released })
    }
}

impl ByLeader for v1::ListWorkersRequest {
    type Service = LeaderIds;

    async fn carry_out(
        self, leader: &LeaderIds, _: (&Term, &Asker), deadline: Instant,
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

/// The service for ids at the leader of a Raft group.
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

    /// Has the desk carry out a request.
    ///
    /// # Errors
    /// DEADLINE_EXCEEDED if it is not known in time.
    async fn ask_for_worker(
        &self, term: &Term, ids: &WorkerIds, request: DeskRequest, deadline: Instant,
    ) -> Result<DeskAnswer, Refusal> {
        let asking = self.desk.ask(term.lease(), ids.namespace, request);
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
fn not_served(served: Result<DeskAnswer, Refusal>, ids: &WorkerIds, token: u64) -> Unanswered {
    use DeskAnswer::*;
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
            WorkersKept,
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
        // A caller that asks again is told that the namespace is gone, or gets another worker id.
        Ok(Done(
            _,
            WorkerAnswer::NoNamespace
            | WorkerAnswer::Held { .. }
            | WorkerAnswer::Leased(_)
            | WorkerAnswer::Released,
        )) => return Unanswered::ELSEWHERE,
        // The next leader may do it. If this one has done it, too, a lease that nobody was told of is free soon.
        Ok(Unknown) => return Unanswered::MAY_BE_DONE,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        proto::{
            Code,
            v1::{Outcome, Reason},
        },
        sequence::NamespaceId,
    };

    #[test]
    fn a_reason_tells_which_worker_ids_are_held_and_kept_and_an_outcome_what_may_be_done() {
        let ids = WorkerIds {
            namespace: NamespaceId(1),
            name: "orders".to_owned(),
            format: "snowflake".to_owned(),
            workers: 4,
            date: None,
        };
        let told = |served| {
            let refusal = Refusal::from(not_served(Ok(served), &ids, 0));
            assert_eq!(refusal.code(), Code::ResourceExhausted);
            (refusal.reason(), refusal.retry_after_ms)
        };
        let held = told(DeskAnswer::NoneFree { in_ms: 7 });
        assert_eq!(held, (Reason::WorkersHeld, Some(7)));
        assert_eq!(told(DeskAnswer::NoneToSpare), (Reason::WorkersKept, None));
        let unknown = not_served(Ok(DeskAnswer::Unknown), &ids, 0);
        assert_eq!(Refusal::from(unknown).outcome(), Outcome::Unknown);
    }
}

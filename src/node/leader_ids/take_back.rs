//! Takes a time back that was logged under a wrong clock: the lease of a worker id that reaches years ahead, or a date.
//!
//! The checks: this leader's own clock is believed; the lease is the one that the caller means, and reaches
//! further ahead than any leader with a right clock would have let it. It ends above all that such leaders may have
//! granted. The caller answers for two things that cannot be checked: that nobody makes ids under the lease any more, and that
//! ids with the wrong times, which exist, may be made again when those times have come.

use tokio::time::{Instant, timeout_at};

use super::{
    LeaderIds, check_worker,
    desk::{AHEAD_MS, DeskAnswer, DeskRequest},
    not_served,
};
use crate::{
    allocator::Term,
    node::{
        access::{Asker, Guarded, Subject},
        formats::{WorkerIds, leases_of},
        requests::{checks::namespace_named, operation::ByLeader},
        way::attempt::Attempt,
    },
    proto::{Refusal, refusal, refuse, v1},
    sequence::{WorkerAct, WorkerAnswer},
};

impl ByLeader for v1::TakeWorkerBackRequest {
    type Service = LeaderIds;

    /// A second leader would say that there is no such lease, although the first one has taken it back.
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
        self, leader: &LeaderIds, (term, _): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::TakeWorkerBackResponse> {
        let ids = leases_of(namespace_named(&leader.group, &self.namespace)?)?;
        check_worker(self.worker, &ids)?;
        let to_ms = leader.end_of_lease(term, &ids, &self)?;
        let (worker, ceiling_ms) = (self.worker, self.ceiling_ms);
        let request = DeskRequest::Act { worker, act: WorkerAct::TakeBack { ceiling_ms, to_ms } };
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
            // Not later: the entry may be under way when the caller leaves. A later caller then asks the log behind that entry.
            leader.dates.forget(ids.namespace);
            leader.ask_for_worker(term, &ids, request, deadline).await
        };
        match served {
            Ok(DeskAnswer::Done(_, WorkerAnswer::Leased(lease))) => {
                let namespace = &ids.name;
                tracing::warn!(namespace, worker, ceiling_ms, to_ms, "a lease was taken back");
                let now_ms = leader.time.shown_ms();
                Ok(v1::TakeWorkerBackResponse { ceiling_ms: lease.ceiling_ms, now_ms })
            }
            Ok(DeskAnswer::Done(_, WorkerAnswer::Lost)) => Err(refusal!(
                WrongState,
                "worker id {worker} of namespace {:?} has no lease with the ceiling {ceiling_ms} any more; see: ratchet \
                 worker list {}",
                ids.name,
                ids.name
            )
            .into()),
            Ok(DeskAnswer::Unknown) => Err(refusal!(
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

//! The successor's part: it takes in the memory that a leader sends, and shows how long its takeover took.

use std::{sync::Arc, time::Duration};

use futures::{Stream, TryStreamExt};

use super::LedTerms;
use crate::{
    allocator::{Inheritance, MemoryHeader, NotInherited},
    clock::Instant,
    consensus::{Takeover, TermLease},
    metrics::TakeoverPhase,
    proto::{
        Refusal,
        peer::{MemoryPart, MemoryReply},
        refusal, refuse,
    },
};

/// This node waits for the next part of a memory for so many election timeouts and `shutdown_timeout_ms`: before the
/// last parts the sender closes its term.
const PART_TIMEOUTS: u64 = 30;

/// For how many election timeouts this node keeps a memory: a transfer takes no longer.
const KEEP_TIMEOUTS: u64 = 40;

impl LedTerms {
    /// Takes in the memory of the leader that this node follows. Returns what has arrived and is kept.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if a part is missing or damaged. FAILED_PRECONDITION if it is not from the leader that this
    /// node follows, or in another format. RESOURCE_EXHAUSTED if it needs more than what `memory_max_mb` allows. ABORTED
    /// if another one begins to arrive. DEADLINE_EXCEEDED if the next part does not come in time. UNAVAILABLE if this
    /// node stops. INTERNAL if a part makes it panic.
    pub async fn take_memory(
        self: &Arc<Self>, mut parts: impl Stream<Item = Result<MemoryPart, Refusal>> + Send + Unpin,
    ) -> Result<MemoryReply, Refusal> {
        let first = self.next_part(&mut parts).await?;
        let first = first.ok_or_else(|| refusal!(InvalidRequest, "the memory has no parts"))?;
        let (origin, header) = self.group.begin_memory::<MemoryHeader>(&first).await?;
        if header.term != origin.term() {
            refuse!(
                InvalidRequest,
                "the leader of term {} sends the memory of term {}",
                origin.term(),
                header.term
            );
        }
        let bytes_max = 2 * self.config.memory_limits().bytes_max;
        let work = self.group.this_node.store.blocking();
        let mut inheritance =
            Inheritance::begin(&header, bytes_max, work).map_err(|why| self.refuse_memory(why))?;
        let number = self.inheritance.begin();
        let given_up = || refusal!(HandoverLost, "another memory began to arrive");
        while let Some(part) = self.next_part(&mut parts).await? {
            if !self.inheritance.is_latest(number) {
                return Err(given_up());
            }
            let taking = work.run(move || {
                let taken = inheritance.take_part(&part.payload);
                taken.map(|()| inheritance)
            });
            let taken = taking.await;
            let taken = taken.map_err(|e| refusal!(Internal, "a memory was lost: {e}"))?;
            inheritance = taken.map_err(|why| self.refuse_memory(why))?;
        }
        let digest = inheritance.digest().map_err(|why| self.refuse_memory(why))?;
        // Another leader may have come meanwhile; then nobody can leave this to anybody.
        self.group.check_origin(&origin).await?;
        if self.stopping.leaving().is_cancelled() {
            refuse!(NodeStopping, "this node stops");
        }
        if !self.inheritance.keep(number, inheritance, digest) {
            return Err(given_up());
        }
        let terms = self.clone();
        let patience = Duration::from_millis(KEEP_TIMEOUTS * self.config.election_timeout_ms);
        self.group.this_node.tasks.spawn("giving a memory up", async move {
            tokio::select! {
                biased;
                () = tokio::time::sleep(patience) => terms.inheritance.give_up(number),
                () = terms.stopping.leaving().cancelled() => {}
            }
        });
        Ok(MemoryReply { parts: digest.parts, checksum: digest.checksum })
    }

    /// The next part of a memory. `None` at its end.
    async fn next_part(
        &self, parts: &mut (impl Stream<Item = Result<MemoryPart, Refusal>> + Unpin),
    ) -> Result<Option<MemoryPart>, Refusal> {
        let timeouts = PART_TIMEOUTS * self.config.election_timeout_ms;
        let patience = Duration::from_millis(timeouts + self.config.shutdown_timeout_ms);
        let next = tokio::time::timeout(patience, parts.try_next());
        let part = tokio::select! {
            biased;
            () = self.stopping.leaving().cancelled() => return Err(refusal!(NodeStopping, "this node stops")),
            part = next => part,
        };
        part.unwrap_or_else(|_| {
            Err(refusal!(
                DeadlineExceeded,
                "no part of the memory came for {} ms",
                patience.as_millis()
            ))
        })
    }

    /// What the sender of a memory is told.
    fn refuse_memory(&self, why: NotInherited) -> Refusal {
        let (node, max_mb) = (self.config.node_id, 2 * self.config.memory_max_mb);
        let refusal = match why {
            NotInherited::TooLarge => refusal!(
                MemoryFull,
                "the memory takes more than the {max_mb} MB that node {node} gives it, twice its memory_max_mb; give \
                 all nodes the same memory_max_mb"
            ),
            NotInherited::Format(_) => refusal!(WrongState, "{why}"),
            NotInherited::Codec(_) | NotInherited::Damaged(_) => {
                refusal!(InvalidRequest, "{why}")
            }
        };
        tracing::warn!(why = refusal.message(), "the memory of the leader is not taken");
        refusal
    }
}

// Shows how long each phase of this node's last takeover of the leadership took: the timeline of a failover.
//
// Invariant: the phases follow one another, so that they add up to the time without numbers.

impl LedTerms {
    /// The allocator of the term of `lease` was opened: shows the phases up to here.
    pub(super) fn show_takeover(&self, lease: &TermLease) {
        let Some(takeover) = self.group.takeover(lease.term()) else {
            return;
        };
        let opened = self.clock.now();
        let promise = Duration::from_millis(self.config.election_timeout_ms);
        let gauges = &self.group.set_metrics.takeover_seconds;
        for (phase, lasted) in phases(&takeover, promise, opened) {
            gauges.set(phase, lasted.as_secs_f64());
        }
        gauges.set(TakeoverPhase::answer, 0.0);
        self.awaited_answer.begin(opened);
    }

    /// A request was answered from the allocator. Shows the last phase if it is the first one.
    pub(in crate::node) fn show_first_answer(&self) {
        if let Some(opened) = self.awaited_answer.end() {
            let lasted = self.clock.now().since(opened);
            let gauges = &self.group.set_metrics.takeover_seconds;
            gauges.set(TakeoverPhase::answer, lasted.as_secs_f64());
        }
    }
}

/// How long each phase took, up to the opening of the allocator. `promise` is how long a follower keeps out of
/// elections.
fn phases(
    takeover: &Takeover, promise: Duration, opened: Instant,
) -> [(TakeoverPhase, Duration); 5] {
    let stood = takeover.stood.unwrap_or(takeover.elected);
    let silence = takeover.heard.map_or(Duration::ZERO, |at| stood.since(at));
    let promised = silence.min(promise);
    [
        (TakeoverPhase::promise, promised),
        (TakeoverPhase::turn, silence - promised),
        (TakeoverPhase::election, takeover.elected.since(stood)),
        (TakeoverPhase::entry, takeover.applied.since(takeover.elected)),
        (TakeoverPhase::opening, opened.since(takeover.applied)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISE: Duration = Duration::from_millis(300);

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// The phases in milliseconds, of a node that is elected 1 s after its clock's start.
    fn lasted(heard: Option<u64>, stood: Option<u64>) -> [u128; 5] {
        let takeover = Takeover {
            term: 2,
            heard: heard.map(ms),
            stood: stood.map(ms),
            elected: ms(1_000),
            applied: ms(1_007),
        };
        phases(&takeover, PROMISE, ms(1_008)).map(|(_, lasted)| lasted.as_millis())
    }

    #[test]
    fn after_a_crash_the_promise_and_the_turn_are_waited_for() {
        assert_eq!(lasted(Some(650), Some(995)), [300, 45, 5, 7, 1]);
    }

    #[test]
    fn after_a_transfer_the_promise_is_not_waited_for() {
        assert_eq!(lasted(Some(990), Some(995)), [5, 0, 5, 7, 1]);
    }

    #[test]
    fn a_node_that_heard_no_leader_waited_for_none() {
        assert_eq!(lasted(None, Some(995)), [0, 0, 5, 7, 1]);
    }

    #[test]
    fn a_sole_voter_is_elected_at_once() {
        assert_eq!(lasted(None, None), [0, 0, 0, 7, 1]);
    }
}

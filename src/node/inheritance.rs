//! The memory that a leader sends to this node, its successor, while it hands over.
//!
//! At most one is kept: the last that has arrived whole. It is used by the next term that this node leads, or dropped
//! once another node leads, or if no leader follows for long.
//!
//! Invariant: a memory leaves here once. Whether it may be used is decided by the state machine.

use std::{sync::Arc, time::Duration};

use futures::{Stream, TryStreamExt};
use parking_lot::Mutex;
use tonic::Status;

use super::{NodeContext, leader_search::leader_of};
use crate::{
    allocator::{Inheritance, MemoryHeader, NotInherited},
    consensus::Leadership,
    proto::peer::{MemoryPart, MemoryReply},
    sequence::{MemoryDigest, NodeId},
};

/// For how many election timeouts this node waits for the next part of a memory.
const PART_TIMEOUTS: u64 = 30;

/// For how many election timeouts this node keeps a memory: a transfer takes no longer.
const KEEP_TIMEOUTS: u64 = 20;

/// The memory that this node holds for the next term that it leads.
#[derive(Default)]
pub struct HeldInheritance(Mutex<Holding>);

#[derive(Default)]
struct Holding {
    /// How many have begun to arrive.
    begun: u64,
    whole: Option<(Inheritance, MemoryDigest)>,
}

impl HeldInheritance {
    /// Another one begins to arrive: drops what is here. Returns its number.
    fn begin(&self) -> u64 {
        let mut holding = self.0.lock();
        holding.whole = None;
        holding.begun += 1;
        holding.begun
    }

    /// True if none has begun to arrive after number `number`.
    fn is_latest(&self, number: u64) -> bool {
        self.0.lock().begun == number
    }

    /// Keeps number `number`, unless a later one has begun to arrive.
    fn keep(&self, number: u64, inheritance: Inheritance, digest: MemoryDigest) -> bool {
        let mut holding = self.0.lock();
        let is_latest = holding.begun == number;
        if is_latest {
            holding.whole = Some((inheritance, digest));
        }
        is_latest
    }

    /// Drops number `number`, if it is here.
    fn give_up(&self, number: u64) {
        let mut holding = self.0.lock();
        if holding.begun == number && holding.whole.take().is_some() {
            tracing::warn!(
                "no term has come to inherit the memory that the last leader sent; it is dropped"
            );
        }
    }

    /// Takes the memory of a term before `term`, to be inherited by that term.
    pub(super) fn take(&self, term: u64) -> Option<(Inheritance, MemoryDigest)> {
        let whole = self.0.lock().whole.take();
        whole.filter(|(inheritance, _)| inheritance.term() < term)
    }

    /// Drops the memory if a node other than `me` leads a later term.
    pub(super) fn follow(&self, now: &Leadership, me: NodeId) {
        let mut holding = self.0.lock();
        let leads_other = leader_of(now).is_some_and(|leader| leader != me);
        if leads_other
            && holding
                .whole
                .as_ref()
                .is_some_and(|(it, _)| it.term() < now.term)
        {
            holding.whole = None;
        }
    }
}

impl NodeContext {
    /// Takes in the memory of the leader that this node follows. Returns what has arrived and is kept.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if a part is missing or damaged. FAILED_PRECONDITION if it is not from the leader that this
    /// node follows. RESOURCE_EXHAUSTED if it needs more than `inherit_memory_max_mb`. ABORTED if another one begins to
    /// arrive. DEADLINE_EXCEEDED if the next part does not come in time.
    pub async fn take_memory(
        self: &Arc<Self>,
        mut parts: impl Stream<Item = Result<MemoryPart, Status>> + Send + Unpin,
    ) -> Result<MemoryReply, Status> {
        let first = self.next_part(&mut parts).await?;
        let first = first.ok_or_else(|| Status::invalid_argument("the memory has no parts"))?;
        let (origin, header) = self.group.begin_memory::<MemoryHeader>(&first).await?;
        if header.term != origin.term() {
            return Err(Status::invalid_argument(format!(
                "the leader of term {} sends the memory of term {}",
                origin.term(),
                header.term
            )));
        }
        let bytes_max = (self.config.inherit_memory_max_mb << 20) as usize;
        let work = self.group.store().blocking();
        let mut inheritance = Inheritance::begin(&header, bytes_max, work).map_err(refusal)?;
        let number = self.inheritance.begin();
        let given_up = || Status::aborted("another memory began to arrive");
        while let Some(part) = self.next_part(&mut parts).await? {
            if !self.inheritance.is_latest(number) {
                return Err(given_up());
            }
            let taking = work.run(move || {
                let taken = inheritance.take_part(&part.payload);
                taken.map(|()| inheritance)
            });
            let taken = taking.await;
            let taken = taken.map_err(|e| Status::internal(format!("a memory was lost: {e}")))?;
            inheritance = taken.map_err(refusal)?;
        }
        let digest = inheritance.digest().map_err(refusal)?;
        // Another leader may have come meanwhile; then nobody can leave this to anybody.
        self.group.check_origin(&origin).await?;
        if !self.inheritance.keep(number, inheritance, digest) {
            return Err(given_up());
        }
        let context = self.clone();
        let patience = Duration::from_millis(KEEP_TIMEOUTS * self.config.election_timeout_ms);
        self.group.tasks().spawn("giving a memory up", async move {
            tokio::select! {
                () = tokio::time::sleep(patience) => context.inheritance.give_up(number),
                () = context.leaving.cancelled() => {}
            }
        });
        Ok(MemoryReply {
            messages: digest.messages,
            checksum: digest.checksum,
        })
    }

    /// The next part of a memory. `None` at its end.
    async fn next_part(
        &self,
        parts: &mut (impl Stream<Item = Result<MemoryPart, Status>> + Unpin),
    ) -> Result<Option<MemoryPart>, Status> {
        let patience = Duration::from_millis(PART_TIMEOUTS * self.config.election_timeout_ms);
        let part = tokio::time::timeout(patience, parts.try_next()).await;
        part.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(format!(
                "no part of the memory came for {} ms",
                patience.as_millis()
            )))
        })
    }
}

/// What the sender of a memory is told.
fn refusal(why: NotInherited) -> Status {
    match why {
        NotInherited::TooLarge(_) => Status::resource_exhausted(why.to_string()),
        NotInherited::Shards(_) => Status::failed_precondition(why.to_string()),
        NotInherited::Codec(_) | NotInherited::Damaged(_) => {
            Status::invalid_argument(why.to_string())
        }
    }
}

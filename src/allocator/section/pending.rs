//! A bump that a section has asked for and that is not answered yet, and the calls that wait for it.
//!
//! Calls that need more numbers than are left wait in the order of their arrival. A call that must ask
//! the section while others wait stands behind them. A bump is for all that wait when it is proposed;
//! its chunk is shared out to them before any other call takes from it.

use std::{collections::VecDeque, sync::Arc, task::Waker};

use tokio::sync::oneshot;

use super::refill::BumpSize;
use crate::{
    allocator::{
        floor::{Floor, FloorOf, Raised},
        held_numbers::Delivery,
        outcome::Why,
    },
    metrics::NamespaceCounts,
    sequence::{OwnedKey, Range},
    storage::LowDisk,
};

/// A call that waits for a bump.
#[derive(Debug)]
pub struct Waiter {
    /// The hash of its key.
    pub hash: u64,
    /// Its key.
    pub key: OwnedKey,
    /// The answer that it waits for.
    pub want: Want,
}

/// The answer that a call waits for, and its receiver. The sender is dropped without an answer if the term is lost.
#[derive(Debug)]
pub enum Want {
    /// Numbers.
    Numbers {
        /// How many; at least 1.
        count: u64,
        /// Where they go.
        reply: oneshot::Sender<Delivery>,
    },
    /// All numbers up to one, for nobody.
    Floor {
        /// Of the key, or of all keys of its section.
        of: FloorOf,
        /// How far.
        floor: Floor,
        /// The call that waits until it is done.
        reply: oneshot::Sender<Result<Raised, Why>>,
    },
}

impl Waiter {
    /// True if the caller has gone.
    pub fn is_gone(&self) -> bool {
        match &self.want {
            Want::Numbers { reply, .. } => reply.is_closed(),
            Want::Floor { reply, .. } => reply.is_closed(),
        }
    }

    /// The call without what it waited for, because the leader's disk is low.
    pub fn refuse(self, low: LowDisk) -> ServedCall {
        match self.want {
            Want::Numbers { count, reply } => {
                ServedCall::Numbers { count, taken: Err(Why::LowDisk(low)), reply }
            }
            Want::Floor { reply, .. } => {
                ServedCall::Floor { raised: Err(Why::LowDisk(low)), reply }
            }
        }
    }

    fn is_for_floor(&self) -> bool {
        matches!(self.want, Want::Floor { .. })
    }
}

/// A call that waited, and what it gets.
pub enum ServedCall {
    /// Numbers.
    Numbers {
        /// How many it asked for.
        count: u64,
        /// Its numbers, or why it gets none.
        taken: Result<Range, Why>,
        /// Where that goes.
        reply: oneshot::Sender<Delivery>,
    },
    /// A floor.
    Floor {
        /// The outcome.
        raised: Result<Raised, Why>,
        /// The call that waits for it.
        reply: oneshot::Sender<Result<Raised, Why>>,
    },
}

impl ServedCall {
    /// How many numbers a raised floor passed over.
    pub fn passed(&self) -> u64 {
        match self {
            ServedCall::Floor { raised: Ok(raised), .. } => raised.passed,
            ServedCall::Floor { raised: Err(_), .. } | ServedCall::Numbers { .. } => 0,
        }
    }

    /// Sends the caller what it gets. The counts are the namespace's.
    pub fn tell(self, counts: &Arc<NamespaceCounts>) {
        match self {
            ServedCall::Numbers { count, taken, reply } => {
                let delivery = Delivery::new(taken, count, counts.clone());
                // If the caller has gone, the delivery comes back and counts its numbers as skipped.
                drop(reply.send(delivery));
            }
            ServedCall::Floor { raised, reply } => {
                // If the caller has gone, the floor is raised all the same.
                let _ = reply.send(raised);
            }
        }
    }
}

/// The memory of a call that waits alone for a section, in bytes: the pending bump, the call, both ends of the way that its
/// answer takes, and that way, which has the answer, a waker for each end, its state, and two counts of references.
pub const WAITING_CALL_BYTES: usize = size_of::<BumpDemand>()
    + size_of::<Waiter>()
    + 2 * size_of::<(usize, u64, oneshot::Receiver<Delivery>)>()
    + size_of::<Option<Delivery>>()
    + 2 * size_of::<Option<Waker>>()
    + 3 * size_of::<usize>();

/// The calls that wait, in the order of their arrival.
pub type Waiters = VecDeque<Waiter>;

/// A section's bump, if one was asked for and is not answered yet. Boxed, because most sections have
/// none.
#[derive(Debug, Default)]
pub struct PendingBump(Option<Box<BumpDemand>>);

#[derive(Debug, Default)]
struct BumpDemand {
    /// The refill that a call asked for. The call itself was served; numbers ran low.
    refill: Option<BumpSize>,
    waiters: Waiters,
    /// How many of them, from the first on, the bump under way covers.
    proposed: usize,
}

impl BumpDemand {
    /// Drops the calls whose callers have gone. A floor that is in the bump under way stays: the bump raises it.
    fn drop_gone(&mut self) {
        let (mut place, proposed) = (0, self.proposed);
        self.waiters.retain(|waiter| {
            let is_proposed = place < proposed;
            place += 1;
            let stays = !waiter.is_gone() || (is_proposed && waiter.is_for_floor());
            self.proposed -= usize::from(is_proposed && !stays);
            stays
        });
    }
}

impl PendingBump {
    /// True if no bump is pending.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// True if calls wait.
    pub fn has_waiters(&self) -> bool {
        (self.0.as_ref()).is_some_and(|asked| !asked.waiters.is_empty())
    }

    /// How many calls wait.
    pub fn waiters(&self) -> usize {
        (self.0.as_ref()).map_or(0, |asked| asked.waiters.len())
    }

    /// Adds a call that waits. True if the bump must be asked for: none was pending.
    #[must_use]
    pub fn wait(&mut self, waiter: Waiter) -> bool {
        let is_first = self.0.is_none();
        let asked = self.0.get_or_insert_default();
        if asked.waiters.capacity() == 0 {
            // Otherwise the first call takes room for four. At most sections one call waits.
            asked.waiters.reserve_exact(1);
        }
        if asked.waiters.len() == asked.waiters.capacity() {
            // Otherwise a caller that asks and hangs up, time after time, fills the memory.
            asked.drop_gone();
            // So that this look at all of them is seldom.
            if asked.waiters.len() > asked.waiters.capacity() / 2 {
                asked.waiters.reserve(asked.waiters.len());
            }
        }
        asked.waiters.push_back(waiter);
        is_first
    }

    /// Adds the wish for a bump of `size`. True if the bump must be asked for: none was pending.
    #[must_use]
    pub fn refill(&mut self, size: BumpSize) -> bool {
        let is_first = self.0.is_none();
        let asked = self.0.get_or_insert_default();
        asked.refill = Some(asked.refill.map_or(size, |other| size.covering(other)));
        is_first
    }

    /// The numbers that the bump that is proposed now must cover: the refill, if one was asked for, and the calls that still
    /// wait. `None` if no bump is pending.
    pub fn propose(&mut self) -> Option<(Option<BumpSize>, &Waiters)> {
        let asked = self.0.as_mut()?;
        asked.waiters.retain(|waiter| !waiter.is_gone());
        asked.proposed = asked.waiters.len();
        Some((asked.refill.take(), &asked.waiters))
    }

    /// Ends the pending bump, and answers the calls that waited for it. The caller serves them, and
    /// puts those back that must go on waiting ([`PendingBump::wait_on`]).
    pub fn end(&mut self) -> Waiters {
        self.0.take().map(|asked| asked.waiters).unwrap_or_default()
    }

    /// Makes `waiters` wait for a further bump, which the caller must ask for.
    pub fn wait_on(&mut self, waiters: Waiters) {
        let asked = self.0.get_or_insert_default();
        assert!(asked.waiters.is_empty(), "nobody may overtake those who wait");
        asked.waiters = waiters;
    }
}

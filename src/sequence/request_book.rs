//! The book of request ids: which messages a gapless namespace remembers, with what each of them took.
//!
//! It is part of the replicated table. Messages of many keys travel in parts, and each part is remembered by the entry
//! that takes its numbers. Ids of one lifetime form a queue, in the order in which they came.
//!
//! The table's own clock says how old they are. It adds up how long terms lasted, by the leaders' clocks that no
//! operator sets, so no clock that jumps makes it jump, and it never goes back. Time without a leader does not count:
//! an id may be remembered for longer than is stated, never for less.
//!
//! A copy of a message may come after its id was forgotten: a connection that a partition cut holds it, or a paused
//! node. So messages say when they were made, by this clock. One that is older than its id's lifetime takes nothing,
//! and neither does one that was made later than now: if it were remembered, its id would be forgotten while a copy
//! could still take numbers. (Liskov, Shrira and Wroclawski, "Efficient At-Most-Once Messages Based on Synchronized
//! Clocks", 1991.) The configured lifetime may be made longer, and may differ between leaders. So each queue keeps the
//! time up to which it has forgotten ids: whatever is not younger takes nothing, however long ids are kept by now. A queue
//! knows nothing of the others. So all copies of a message have to state the same retry window: one that states a longer
//! window, after its id was forgotten, takes other numbers.
//!
//! The bytes that may be remembered are shared. A caller (a principal, or the callers of one address) may hold as many as are
//! still free, and a namespace twice as many. So a caller that holds much leaves room for others: alone, a caller gets half of
//! all, and a namespace two thirds. (Choudhury and Hahne, "Dynamic Queue Length Thresholds", 1998.) A request that took nothing
//! is remembered without its takes.
//!
//! Invariant: an id is remembered in the entry that takes its numbers, and not forgotten before its time. The bytes of a share
//! are the sum of those of its ids.

use serde::{Deserialize, Serialize};

use super::{
    gapless_take::{IdsFull, MessagePart, Take, Taken},
    identifiers::NamespaceId,
    request_id::{LIFETIMES, Lifetime, PartId},
};
use crate::planted_bugs::{Bug, is_planted};

/// The numbers that a part of a message took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The checksum of the whole message, if it has several parts.
    pub whole: Option<u32>,
    /// The takes that it asked for, and their answers. Empty if nothing was taken.
    pub takes: Vec<(Take, Taken)>,
    /// The parts of the message that took nothing and are remembered here, as bits.
    pub left_out: u64,
}

impl Remembered {
    /// True if it is what this part took.
    pub fn is_of(&self, part: &MessagePart) -> bool {
        self.whole == part.whole && self.takes.iter().map(|(take, _)| take).eq(&part.takes)
    }

    /// True if it says that this part, of a message of several, took nothing.
    pub fn has_left_out(&self, part: &MessagePart) -> bool {
        let bit = part.id.as_ref().map_or(0, |id| Remembered::bit_of(id.part));
        self.whole.is_some() && self.whole == part.whole && self.left_out & bit > 0
    }

    /// The bit of part number `part`. 0 for a part beyond all that a message may have.
    pub fn bit_of(part: u32) -> u64 {
        1_u64.checked_shl(part).unwrap_or(0)
    }

    /// How many bytes a part with these takes counts, on the disks of each node.
    pub fn bytes(id: &PartId, takes: &[Take]) -> u64 {
        // A record and a place: each the id, a header and what RocksDB adds.
        let names = 2 * (id.request.as_bytes().len() + 48);
        // A key and its count, and the first and the last number.
        let takes = takes.iter().map(|take| take.section.bytes() + 24).sum::<usize>();
        (names + takes) as u64
    }
}

/// A part of a message in the order in which ids of one lifetime came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedId {
    /// The namespace. The same id in another namespace is another id.
    pub namespace: NamespaceId,
    /// Its name.
    pub id: PartId,
    /// The id of its caller, a principal or an address, if that is known.
    pub caller: Option<u64>,
    /// When it came, by the table's clock.
    pub at_ms: u64,
    /// How many bytes it counts.
    pub bytes: u64,
}

/// A share of the bytes of remembered ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdShare {
    /// That of all callers who take numbers of a namespace.
    Namespace(NamespaceId),
    /// That of a principal, or of the callers of an address, in all namespaces.
    Caller(u64),
}

impl IdShare {
    /// The shares of a namespace and of a caller.
    pub fn all_of(namespace: NamespaceId, caller: Option<u64>) -> impl Iterator<Item = IdShare> {
        let caller = caller.map(IdShare::Caller).into_iter();
        caller.chain([IdShare::Namespace(namespace)])
    }

    /// How many bytes it may have while `free` are left to all.
    fn bytes_of(self, free: u64) -> u64 {
        match self {
            IdShare::Caller(_) => free,
            IdShare::Namespace(_) => free.saturating_mul(2),
        }
    }
}

/// Where in the queues an id stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdPlace {
    /// The ids that are remembered as long as it.
    pub lifetime: Lifetime,
    /// How many of those came before it, ever.
    pub number: u64,
}

/// The ids of one lifetime: those that came at the places from `first` up to `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct LifetimeQueue {
    /// The place of the oldest id.
    first: u64,
    /// The place of the next id.
    next: u64,
    /// When the oldest id came, or earlier.
    oldest_ms: u64,
    /// No id that came at this time or later was forgotten.
    kept_from_ms: u64,
}

/// The table's clock, and which ids it remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestBook {
    /// For how long numbers were taken, in milliseconds.
    clock_ms: u64,
    /// How many bytes the ids count together.
    bytes: u64,
    queues: [LifetimeQueue; LIFETIMES],
}

/// How request ids are remembered. It travels in each entry, so that every replica comes to the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembering {
    /// How long ago the term's last such entry was proposed, or the term began, in milliseconds.
    pub elapsed_ms: u64,
    /// For how long an id is remembered whose message states no retry window, in milliseconds.
    pub keep_ms: u64,
    /// How many bytes are remembered at most.
    pub bytes_max: u64,
    /// How many ids the entry forgets at most.
    pub forget_max: u64,
}

impl RequestBook {
    /// Lets the clock go on. Returns the ids whose time has passed, and where they stand: the table is to forget them.
    ///
    /// # Errors
    /// That of `queued_id`, which finds the id at a place.
    pub fn advance<E>(
        &mut self, remembering: &Remembering,
        queued_id: impl Fn(IdPlace) -> Result<Option<QueuedId>, E>,
    ) -> Result<Vec<(IdPlace, QueuedId)>, E> {
        self.clock_ms = self.clock_ms.saturating_add(remembering.elapsed_ms);
        let (mut due, mut left) = (Vec::new(), remembering.forget_max);
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let lifetime = Lifetime::at(index);
            assert!(queue.first <= queue.next, "the table is damaged: {lifetime:?} has {queue:?}");
            let is_due = |at_ms: u64| {
                at_ms.saturating_add(lifetime.ms(remembering.keep_ms)) <= self.clock_ms
            };
            while left > 0 && queue.first < queue.next && is_due(queue.oldest_ms) {
                let place = IdPlace { lifetime, number: queue.first };
                if let Some(queued) = queued_id(place)? {
                    queue.oldest_ms = queued.at_ms;
                    if !is_due(queued.at_ms) {
                        break;
                    }
                    self.bytes = self.bytes.saturating_sub(queued.bytes);
                    queue.kept_from_ms = queue.kept_from_ms.max(queued.at_ms.saturating_add(1));
                    due.push((place, queued));
                }
                queue.first += 1;
                left -= 1;
            }
        }
        Ok(due)
    }

    /// `Some(now)` if a message with an id of this `lifetime` that was made at `made_ms` is too old to be served: an earlier
    /// copy may have taken numbers and been forgotten.
    pub fn expired(
        &self, remembering: &Remembering, lifetime: Lifetime, made_ms: u64,
    ) -> Option<u64> {
        let lives_until = made_ms.saturating_add(lifetime.ms(remembering.keep_ms));
        let kept_from_ms = self.queues[usize::from(lifetime.index())].kept_from_ms;
        let is_in_time = (made_ms..lives_until).contains(&self.clock_ms) && made_ms >= kept_from_ms;
        (!is_in_time && !is_planted(Bug::LateCopyTaken)).then_some(self.clock_ms)
    }

    /// Why `bytes` more cannot be remembered for `share`, which has `held`, if so.
    pub fn full(
        &self, remembering: &Remembering, bytes: u64, (share, held): (IdShare, u64),
    ) -> Option<IdsFull> {
        let bytes_max = remembering.bytes_max;
        let free = bytes_max.checked_sub(self.bytes.saturating_add(bytes));
        let may_hold = free.map_or(0, |free| share.bytes_of(free));
        let of_caller = matches!(share, IdShare::Caller(_));
        (held.saturating_add(bytes) > may_hold).then_some(IdsFull { of_caller, held, bytes_max })
    }

    /// Counts the id of a part, or that of its message's left-out parts, which the table is to remember. Returns it as it
    /// stands in its queue, and where.
    pub fn remember(&mut self, part: &MessagePart, id: PartId, bytes: u64) -> (IdPlace, QueuedId) {
        let at_ms = self.clock_ms;
        let (namespace, caller) = (part.namespace, part.caller);
        let queue = &mut self.queues[usize::from(id.lifetime.index())];
        if queue.first == queue.next {
            queue.oldest_ms = at_ms;
        }
        let place = IdPlace { lifetime: id.lifetime, number: queue.next };
        queue.next += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        (place, QueuedId { namespace, id, caller, at_ms, bytes })
    }
}

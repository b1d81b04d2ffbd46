//! Leases of worker ids: the asks of a maker of ids to its leader, and its answers.

/// A lease, as the leader grants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedLease {
    /// The worker id.
    pub worker: u64,
    /// Names this lease among the leases of the worker id.
    pub token: u64,
    /// Ids are made above this time, in milliseconds since 1970.
    pub from_ms: u64,
    /// Ids are made up to this time.
    pub ceiling_ms: u64,
    /// The leader's time.
    pub now_ms: u64,
}

impl GrantedLease {
    /// The lease that was granted.
    pub fn held(&self) -> HeldWorker {
        HeldWorker { worker: self.worker, token: self.token }
    }
}

/// A lease, as the leader knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldWorker {
    /// The worker id.
    pub worker: u64,
    /// Names this lease among the leases of the worker id.
    pub token: u64,
}

/// An ask to the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// A worker id, for a maker that has none.
    Lease,
    /// One more, for a maker that has one: only if enough are left for others.
    Further,
    /// More time for this one.
    Renew(HeldWorker),
}

//! The protocol's parameters, the margins that can be left out, and the bounds of the search.

use Fence::*;
use Kind::*;
use Step::*;

/// The protocol's parameters, and the bounds of the search.
#[derive(Clone, Copy)]
pub struct Rules {
    pub fence: Fence,
    /// The steps of a call. Anything may happen at a `Pause`, nothing elsewhere.
    pub steps: &'static [Step],
    pub calls: &'static [Kind],
    /// The length of a lease, in units of the leader's clock, and of a follower's.
    pub leader_lease: u8,
    pub follower_lease: u8,
    /// By how many units a clock advances in a tick: at least, at most.
    pub rates: (u8, u8),
    /// The margins that are left out.
    pub without: &'static [Margin],
    // The bounds: the last term, the greatest number, how many restarts and handovers.
    pub terms: u8,
    pub numbers: u8,
    pub restarts: u8,
    pub handovers: u8,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Fence {
    Lease,
    Quorum,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Step {
    Invoke,
    Take,
    Pause,
    Check,
    Answer,
}

/// The margins that can be left out. The table in main.rs has the effects of leaving each out.
#[derive(Clone, Copy, PartialEq)]
pub enum Margin {
    LeaseSinceSending,
    AckOfItsOwnMessage,
    SilenceAfterRestart,
    CandidateKeepsPromise,
    LaterTermVoids,
    ChunkFromApply,
    ChunkInItsTerm,
    ClosedToTransfer,
    ClosedForGood,
    TrimInItsTerm,
    TrimByOwner,
    TrimCountsTaken,
}

pub const LEASE: Rules = Rules {
    fence: Lease,
    steps: &[Invoke, Take, Pause, Check, Answer],
    calls: &[Next],
    leader_lease: 2,
    follower_lease: 3,
    rates: (1, 2),
    without: &[],
    terms: 2,
    numbers: 4,
    restarts: 1,
    handovers: 1,
};
pub const QUORUM: Rules = Rules { fence: Quorum, terms: 3, numbers: 6, ..LEASE };
/// The fence is checked before the take, which is wrong.
pub const CHECK_FIRST: &[Step] = &[Invoke, Check, Pause, Take, Answer];
pub const BOTH: &[Kind] = &[Next, Current];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    #[default]
    Next,
    Current,
}

/// With `?`, leaves an action that is not possible.
pub fn possible(yes: bool) -> Option<()> {
    yes.then_some(())
}

impl Rules {
    pub fn keep(&self, margin: Margin) -> bool {
        !self.without.contains(&margin)
    }
}

//! The fence: was this node still the one and only leader when it took the numbers?
//!
//! Invariant: it is asked after the numbers were taken, and a `true` holds for the moment of asking.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::{
    clock::Clock,
    consensus::{Group, TermLease},
    planted::{Bug, is_planted},
};

/// How many answers at most wait for one confirmation round.
const ROUND_ANSWERS_MAX: usize = 16_384;

/// Which fence a node's answers pass when it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FenceKind {
    /// A majority acknowledged this leader less than a lease ago: one atomic load and one clock
    /// read. Sound while clocks drift less than the margin, and while no pause escapes every clock
    /// of the machine.
    #[default]
    Lease,
    /// A majority confirms, after the numbers were taken, that it still follows: one round trip,
    /// shared by all who wait. No clock in the argument.
    Quorum,
}

/// The fence of one term.
pub struct Fence {
    lease: Arc<TermLease>,
    clock: Arc<dyn Clock>,
    rounds: Option<mpsc::UnboundedSender<oneshot::Sender<bool>>>,
    /// Whether it was down when it was last asked.
    fell: AtomicBool,
    /// How many requests were answered; for a planted bug alone.
    vouched_for: AtomicU64,
}

impl Fence {
    /// The fence of `lease`'s term.
    pub fn new(
        kind: FenceKind,
        group: Arc<Group>,
        lease: Arc<TermLease>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let rounds = (kind == FenceKind::Quorum).then(|| {
            let (rounds, waiting) = mpsc::unbounded_channel();
            let asking = confirm_rounds(group.clone(), lease.clone(), waiting);
            group.tasks().spawn("confirmation rounds", asking);
            rounds
        });
        Fence {
            lease,
            clock,
            rounds,
            fell: AtomicBool::new(false),
            vouched_for: AtomicU64::new(0),
        }
    }

    /// Whether it is known that it would be in vain to take numbers now. Says nothing of numbers taken
    /// before. The clock is read only where the fence was down before: once for each answer is enough.
    pub fn is_down(&self) -> bool {
        if is_planted(Bug::NoFence) || is_planted(Bug::FenceBeforeTaking) {
            return false;
        }
        match self.rounds {
            None if self.fell.load(Relaxed) => !self.stands(),
            _ => self.lease.is_void(),
        }
    }

    /// Whether the lease holds just now.
    fn stands(&self) -> bool {
        let stands = self.lease.is_valid(self.clock.now());
        if self.fell.load(Relaxed) == stands {
            self.fell.store(!stands, Relaxed);
        }
        stands
    }

    /// Whether a majority was heard of within a lease.
    pub fn hears_majority(&self) -> bool {
        self.lease.is_valid(self.clock.now())
    }

    /// Whether this node was still the only leader at a moment after the call; `false` where that
    /// is not known before `deadline`.
    pub async fn check(&self, deadline: tokio::time::Instant) -> bool {
        if is_planted(Bug::NoFence) {
            return true;
        }
        if is_planted(Bug::FenceBeforeTaking)
            && !self.vouched_for.fetch_add(1, Relaxed).is_multiple_of(64)
        {
            return true;
        }
        let Some(rounds) = &self.rounds else {
            return self.stands();
        };
        let (answer, confirmed) = oneshot::channel();
        if rounds.send(answer).is_err() {
            return false;
        }
        let confirmed = Box::pin(tokio::time::timeout_at(deadline, confirmed));
        matches!(confirmed.await, Ok(Ok(true)))
    }
}

/// Runs one confirmation round after the other: who arrives while one is under way waits for the
/// next, since its numbers were taken after the questions of this one were sent.
async fn confirm_rounds(
    group: Arc<Group>,
    lease: Arc<TermLease>,
    mut waiting: mpsc::UnboundedReceiver<oneshot::Sender<bool>>,
) {
    let mut answers = Vec::new();
    while waiting.recv_many(&mut answers, ROUND_ANSWERS_MAX).await > 0 {
        let confirmed = group.confirm(&lease).await;
        for answer in answers.drain(..) {
            // One that gave up at its deadline no longer listens.
            let _ = answer.send(confirmed);
        }
    }
}

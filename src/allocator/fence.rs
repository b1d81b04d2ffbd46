//! The fence: checks that no successor had answered when this node took the numbers.
//!
//! Invariant: it is checked after the numbers were taken. `true` means that at some moment after the check began no
//! successor had answered.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::{
    clock::Clock,
    consensus::{Group, TermLease},
    laps::{self, Phase},
    planted_bugs::{Bug, is_planted},
};

/// The most answers that share one confirmation round.
const ROUND_ANSWERS_MAX: usize = 16_384;

/// Which fence a leader's answers pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FenceKind {
    /// A majority acknowledged this leader less than a lease ago. Costs one atomic load and one clock
    /// read. Sound if clocks drift less than the margin, and if every pause of the machine shows in one
    /// of its clocks.
    #[default]
    Lease,
    /// A majority confirms, after the numbers were taken, that it still follows. Costs one round trip,
    /// shared by all answers that wait. Needs no clock.
    Quorum,
}

/// The fence of one term.
pub struct Fence {
    lease: Arc<TermLease>,
    clock: Arc<dyn Clock>,
    rounds: Option<mpsc::UnboundedSender<oneshot::Sender<bool>>>,
    /// True if the lease had run out when it was last checked.
    failed_last: AtomicBool,
    /// How many checks were made; a planted bug alone uses it.
    vouched_for: AtomicU64,
}

impl Fence {
    /// The fence of `lease`'s term.
    pub fn new(
        kind: FenceKind, group: Arc<Group>, lease: Arc<TermLease>, clock: Arc<dyn Clock>,
    ) -> Self {
        let rounds = (kind == FenceKind::Quorum).then(|| {
            let (rounds, waiting) = mpsc::unbounded_channel();
            let asking = confirm_rounds(group.clone(), lease.clone(), waiting);
            group.this_node.tasks.spawn("confirmation rounds", asking);
            rounds
        });
        Fence {
            lease,
            clock,
            rounds,
            failed_last: AtomicBool::new(false),
            vouched_for: AtomicU64::new(0),
        }
    }

    /// Cheap pre-check: true if taking numbers now would surely be wasted. Not a substitute for
    /// [`Fence::check`]: it says nothing of numbers taken before. Reads the clock only if the lease had
    /// run out before, because `check` reads it once for each answer.
    pub fn surely_fails(&self) -> bool {
        if is_planted(Bug::NoFence) || is_planted(Bug::FenceBeforeTaking) {
            return false;
        }
        match self.rounds {
            None if self.failed_last.load(Relaxed) => !self.passes_now(),
            None | Some(_) => self.lease.is_void(),
        }
    }

    /// True if the lease is valid now. Remembers the result for [`Fence::surely_fails`].
    fn passes_now(&self) -> bool {
        let passes = self.lease.is_valid(self.clock.now());
        if self.failed_last.load(Relaxed) == passes {
            self.failed_last.store(!passes, Relaxed);
        }
        passes
    }

    /// True if a majority acknowledged this leader less than a lease ago.
    pub fn hears_majority(&self) -> bool {
        self.lease.is_valid(self.clock.now())
    }

    /// True if no successor had answered at some moment after this call began. False also if that is not known
    /// before `deadline`.
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
            return self.passes_now();
        };
        let (answer, confirmed) = oneshot::channel();
        if rounds.send(answer).is_err() {
            return false;
        }
        let confirmed = Box::pin(tokio::time::timeout_at(deadline, confirmed)).await;
        laps::lap(Phase::Fence);
        matches!(confirmed, Ok(Ok(true)))
    }
}

/// Runs one confirmation round after the other. An answer that arrives while a round is under way waits
/// for the next: its numbers were taken after this round's questions were sent.
async fn confirm_rounds(
    group: Arc<Group>, lease: Arc<TermLease>,
    mut waiting: mpsc::UnboundedReceiver<oneshot::Sender<bool>>,
) {
    let mut answers = Vec::new();
    while waiting.recv_many(&mut answers, ROUND_ANSWERS_MAX).await > 0 {
        let confirmed = group.confirm(&lease).await;
        for answer in answers.drain(..) {
            // A caller whose deadline has passed no longer listens.
            let _ = answer.send(confirmed);
        }
    }
}

//! The outcome of an attempt to have a request answered, and of all attempts so far.

use super::effect::{Effect, outcome_unknown};
use crate::{
    node::told_call::CallEnd,
    proto::{Refusal, refusal},
};

/// The outcome so far of a request that has no answer yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoFar {
    /// Nothing was done.
    NotDone,
    /// It may have been carried out, or may still be.
    MayBeDone,
}

impl SoFar {
    /// As a node that was asked tells it.
    pub fn told(may_be_done: bool) -> SoFar {
        match may_be_done {
            true => SoFar::MayBeDone,
            false => SoFar::NotDone,
        }
    }

    /// The same after a further attempt.
    pub fn after<A>(self, attempt: &Attempt<A>) -> SoFar {
        match attempt {
            Err(Unanswered::Elsewhere(SoFar::MayBeDone)) => SoFar::MayBeDone,
            _ => self,
        }
    }

    /// The refusal for a caller whose request has this effect.
    pub fn refuse(self, effect: Effect, refusal: Refusal) -> Refusal {
        match self {
            SoFar::MayBeDone => effect.told_after(refusal),
            SoFar::NotDone => refusal,
        }
    }
}

/// The outcome of an attempt to have a request answered, here or at another node.
pub type Attempt<A> = Result<A, Unanswered>;

/// Why a request has no answer. `refused.rs` makes it of what a term says; the interfaces make statuses, problems, Redis errors
/// and replies to peers of it.
#[derive(Debug)]
pub enum Unanswered {
    /// It is refused. The refusal says why, and whether it may be done all the same.
    Refused(Refusal),
    /// The node does not lead, or its answer is lost: the node that leads is to be asked, whichever that is by now. Asking it
    /// does no harm. If the request may have been carried out, no refusal that libraries repeat is passed on from here on.
    Elsewhere(SoFar),
    /// The node that passed the request on took its namespace for another one. Nothing was done.
    Mistaken,
}

impl Unanswered {
    /// Nothing was done, and the node that leads is to be asked.
    pub const ELSEWHERE: Unanswered = Unanswered::Elsewhere(SoFar::NotDone);
    /// As [`Unanswered::ELSEWHERE`], and the request may have been carried out.
    pub const MAY_BE_DONE: Unanswered = Unanswered::Elsewhere(SoFar::MayBeDone);
}

impl From<Refusal> for Unanswered {
    fn from(refusal: Refusal) -> Self {
        Unanswered::Refused(refusal)
    }
}

impl From<Unanswered> for Refusal {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Refused(refusal) => refusal,
            // Only a peer's request ends so. Others are forwarded.
            Unanswered::Elsewhere(SoFar::MayBeDone) => outcome_unknown(),
            Unanswered::Elsewhere(SoFar::NotDone) | Unanswered::Mistaken => {
                refusal!(
                    NoLeader,
                    "the node that was asked does not lead; see ratchet status, then ask again"
                )
            }
        }
    }
}

impl From<&Unanswered> for CallEnd {
    fn from(unanswered: &Unanswered) -> Self {
        match unanswered {
            Unanswered::Refused(refusal) => refusal.into(),
            Unanswered::Elsewhere(_) | Unanswered::Mistaken => CallEnd::NotLeader,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Code, v1::Outcome};

    #[test]
    fn what_may_be_done_is_never_told_as_if_nothing_was_done() {
        let outcome = |unanswered: Unanswered| Refusal::from(unanswered).outcome();
        assert_eq!(outcome(Unanswered::MAY_BE_DONE), Outcome::Unknown);
        assert_eq!(outcome(Unanswered::ELSEWHERE), Outcome::NotDone);
        assert_eq!(outcome(Unanswered::Mistaken), Outcome::NotDone);
    }

    #[test]
    fn what_may_be_done_after_one_attempt_may_be_done_after_the_next() {
        let lost = SoFar::NotDone.after::<()>(&Err(Unanswered::MAY_BE_DONE));
        assert_eq!(lost, SoFar::MayBeDone);
        assert_eq!(lost.after::<()>(&Err(Unanswered::ELSEWHERE)), SoFar::MayBeDone);
        assert_eq!(SoFar::NotDone.after::<()>(&Err(Unanswered::ELSEWHERE)), SoFar::NotDone);
        let told = |so_far: SoFar| so_far.refuse(Effect::Change, refusal!(NoLeader, "no")).code();
        assert_eq!((told(SoFar::NotDone), told(lost)), (Code::Unavailable, Code::Unknown));
    }
}

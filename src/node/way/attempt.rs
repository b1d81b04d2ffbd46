//! A request on its way to the leader: where it came from, what an attempt to have it answered came to, and what a caller is
//! told after an attempt whose outcome is not known.

use crate::{
    node::told_call::CallEnd,
    proto::{Code, Refusal, refusal},
    sequence::NamespaceId,
};

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A client: it may be forwarded.
    Client,
    /// A peer that took this node for the leader: it may not.
    Peer {
        /// The namespace that it takes the name for, if the leader is to compare.
        namespace: Option<NamespaceId>,
        /// It has asked before, and the node that was asked may have carried the request out.
        again: bool,
    },
}

impl Origin {
    /// True if a peer takes the `namespace` that this node has for another one.
    pub fn mistakes(self, namespace: NamespaceId) -> bool {
        match self {
            Origin::Client => false,
            Origin::Peer { namespace: taken_for, .. } => {
                taken_for.is_some_and(|id| id != namespace)
            }
        }
    }
}

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

/// The effect of a request that was carried out, if nobody gets the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that shows.
    None,
    /// One that shows. It does no harm to do it again.
    Harmless,
    /// Its answer is kept under the id that the caller gave it, however often it is asked for.
    UnderId,
    /// One that shows. To do it again is another change.
    Change,
}

impl Effect {
    /// The refusal for a caller after an attempt that may have carried the request out.
    pub fn told_after(self, refusal: Refusal) -> Refusal {
        // Libraries repeat some calls by themselves.
        let is_repeated = matches!(refusal.code(), Code::Unavailable | Code::ResourceExhausted);
        match self {
            Effect::None => refusal,
            Effect::Change if is_repeated => outcome_unknown(),
            Effect::UnderId => outcome_unknown(),
            Effect::Harmless | Effect::Change => refusal.may_be_done(),
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
                refusal!(NoLeader, "no leader is known")
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

/// UNKNOWN for a request that may have been carried out.
pub(super) fn outcome_unknown() -> Refusal {
    let why = "a leader that was asked may have carried the request out, and none says so: ask again with the same request \
               id, or look before you ask again";
    refusal!(OutcomeUnknown, "{why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::v1::Outcome;

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

    #[test]
    fn a_refusal_after_a_lost_answer_says_that_nothing_was_done_only_if_nothing_would_show() {
        let refusals = || {
            [refusal!(NamespaceExists, "there"), refusal!(NoLeader, "no"), refusal!(Busy, "full")]
        };
        let told = |effect: Effect| {
            refusals()
                .map(|refusal| effect.told_after(refusal))
                .map(|told| (told.code(), told.outcome()))
        };
        use {Code::*, Outcome::NotDone};
        let unknown = |code: Code| (code, Outcome::Unknown);
        let nothing =
            [(AlreadyExists, NotDone), (Unavailable, NotDone), (ResourceExhausted, NotDone)];
        assert_eq!(told(Effect::None), nothing);
        let harmless = [AlreadyExists, Unavailable, ResourceExhausted].map(unknown);
        assert_eq!(told(Effect::Harmless), harmless);
        // No code that libraries repeat by themselves.
        let change = [AlreadyExists, Unknown, Unknown].map(unknown);
        assert_eq!(told(Effect::Change), change);
        assert_eq!(told(Effect::UnderId), [Unknown; 3].map(unknown));
        let ongoing = refusal!(DeadlineExceeded, "it goes on").ongoing();
        assert_eq!(Effect::Change.told_after(ongoing).outcome(), Outcome::Ongoing);
    }
}

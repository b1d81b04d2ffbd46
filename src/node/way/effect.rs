//! The effect of a request, and what its caller is told after an attempt that may have carried it out.

use crate::proto::{Code, Refusal, refusal};

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

//! The stages of a term: it serves, is closed for good, and ends in one of three ways. Pure.
//!
//! Invariant: a term comes to each stage once, and from its end to no other.

/// How far a term is. ARCHITECTURE.md has a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TermStage {
    /// Calls take numbers.
    Serving,
    /// No call enters any more. The term waits for those inside, and then for the entries that are under way.
    Closing,
    /// Nobody is inside, and no entry is under way that changes the term's sections. So it is known what the term used.
    Closed,
    /// The last entry handed the memory off to the successor.
    HandedOff,
    /// The last entry returned the numbers that the term had not used.
    Returned,
    /// The memory was dropped without such an entry. So nobody knows what the term used.
    Abandoned,
}

impl TermStage {
    /// All of them. Each stands at the place of its number.
    pub const ALL: [TermStage; 6] = [
        TermStage::Serving,
        TermStage::Closing,
        TermStage::Closed,
        TermStage::HandedOff,
        TermStage::Returned,
        TermStage::Abandoned,
    ];

    /// True if a term goes from this stage to `next`.
    pub fn leads_to(self, next: TermStage) -> bool {
        match next {
            TermStage::Serving => false,
            TermStage::Closing => self == TermStage::Serving,
            TermStage::Closed => self == TermStage::Closing,
            TermStage::HandedOff | TermStage::Returned => self == TermStage::Closed,
            TermStage::Abandoned => !self.has_ended(),
        }
    }

    /// True if a task that takes a term from this stage to `next` may come too late: another one has closed the term, or it was
    /// lost. If this is false, and [`TermStage::leads_to`] as well, then nobody may try it: the code is wrong.
    pub fn is_too_late_for(self, next: TermStage) -> bool {
        match next {
            TermStage::Serving => false,
            TermStage::Closing => self != TermStage::Serving,
            // One handover alone closes the term, and logs its last entry.
            TermStage::Closed | TermStage::HandedOff | TermStage::Returned => {
                self == TermStage::Abandoned
            }
            TermStage::Abandoned => self.has_ended(),
        }
    }

    /// True if the term is closed, or has ended: nobody waits for that any more.
    pub fn is_past_closing(self) -> bool {
        self == TermStage::Closed || self.has_ended()
    }

    /// True if the memory is of no use to the term any more. It may be empty.
    pub fn has_ended(self) -> bool {
        matches!(self, TermStage::HandedOff | TermStage::Returned | TermStage::Abandoned)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_term_serves_closes_and_ends_once() {
        let mut table = String::new();
        for from in TermStage::ALL {
            let those = |fits: &dyn Fn(TermStage) -> bool| {
                let fitting = TermStage::ALL.into_iter().filter(|next| fits(*next));
                let names: Vec<String> = fitting.map(|next| format!("{next:?}")).collect();
                names.join(", ")
            };
            let next = those(&|next| from.leads_to(next));
            let late = those(&|next| from.is_too_late_for(next));
            table += &format!("{from:?} leads to [{next}]; too late for [{late}]\n");
        }
        expect![[r#"
            Serving leads to [Closing, Abandoned]; too late for []
            Closing leads to [Closed, Abandoned]; too late for [Closing]
            Closed leads to [HandedOff, Returned, Abandoned]; too late for [Closing]
            HandedOff leads to []; too late for [Closing, Abandoned]
            Returned leads to []; too late for [Closing, Abandoned]
            Abandoned leads to []; too late for [Closing, Closed, HandedOff, Returned, Abandoned]
        "#]]
        .assert_eq(&table);
    }

    #[test]
    fn each_stage_stands_at_the_place_of_its_number() {
        for (place, stage) in TermStage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, place);
        }
    }

    #[test]
    fn what_a_term_used_is_known_only_past_its_closing_and_its_memory_ends_with_it() {
        let past = TermStage::ALL.map(TermStage::is_past_closing);
        assert_eq!(past, [false, false, true, true, true, true]);
        let ended = TermStage::ALL.map(TermStage::has_ended);
        assert_eq!(ended, [false, false, false, true, true, true]);
    }
}

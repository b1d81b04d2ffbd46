//! Which terms an honest peer can name, and which later ones Raft may know of.

// Which terms an honest peer can name.
//
// Raft obeys every term that is higher than its own: it stores that term, and adds one to it in the next
// election. One confused node that names the highest number there is would end all elections.

/// How far the term of a message may lie above the term that this node knows of.
///
/// Terms grow only by elections, one at a time. A node that was away is behind by the elections that were
/// held meanwhile: at a thousand elections per second it takes 34 years to pass this bound. From zero, the
/// highest number of all is 16 million such steps away.
const TERM_STEP_MAX: u64 = 1 << 40;

/// No term is accepted above this, so that there is always a next one.
const TERM_MAX: u64 = 1 << 63;

/// Refuses the term `claimed` in a message if no honest node has come to it. `known` is the term that
/// this node knows of.
///
/// # Errors
/// If `claimed` is more than [`TERM_STEP_MAX`] above `known`, or above [`TERM_MAX`]: a text that says what
/// to do.
pub fn check(known: u64, claimed: u64) -> Result<(), String> {
    let max = known.saturating_add(TERM_STEP_MAX).min(TERM_MAX);
    if claimed <= max {
        return Ok(());
    }
    Err(format!(
        "it speaks of term {claimed}; the term here is {known}, and no cluster holds so many \
         elections: its data directory or its memory is damaged; stop that node"
    ))
}

// Which later terms Raft may know of: a lease of an earlier term must not be valid.
//
// Invariant: the highest term that Raft has adopted never goes down.

/// The later terms that Raft was told of.
#[derive(Debug, Default)]
pub struct LaterTerms {
    /// Raft may follow this term. No lease of an earlier one is valid, not even a lease that begins
    /// later because a watcher lags.
    adopted: u64,
    /// The terms that Raft has been told of and has not decided on. They count like `adopted`.
    pending: Vec<u64>,
}

impl LaterTerms {
    /// Raft is about to be told of `term`.
    pub fn add_pending(&mut self, term: u64) {
        self.pending.push(term);
    }

    /// Raft has decided on `term`, which was pending: it may have adopted it, or has kept to an earlier
    /// term.
    pub fn decide(&mut self, term: u64, adopted: bool) {
        if let Some(at) = self.pending.iter().position(|pending| *pending == term) {
            self.pending.swap_remove(at);
        }
        if adopted {
            self.adopted = term.max(self.adopted);
        }
    }

    /// True if no lease of `term` may be valid.
    pub fn forbid(&self, term: u64) -> bool {
        let pending = self.pending.iter().copied().max();
        term < self.adopted.max(pending.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_away_for_years_is_heard_and_an_absurd_term_is_not() {
        assert_eq!(check(3, 4), Ok(()));
        assert_eq!(check(7, 3), Ok(()), "Raft itself refuses earlier terms");
        assert_eq!(check(3, 3 + TERM_STEP_MAX), Ok(()));
        assert!(check(3, 4 + TERM_STEP_MAX).is_err());
        assert!(check(3, u64::MAX).is_err());
        assert!(check(TERM_MAX - 1, TERM_MAX).is_ok());
        assert!(check(TERM_MAX, TERM_MAX + 1).is_err());
    }
}

//! Which terms an honest peer can name.
//!
//! Raft obeys every term that is higher than its own: it stores that term, and adds one to it in the next
//! election. One confused node that names the highest number there is would end all elections.

/// How far the term of a message may lie above the term that this node knows of.
///
/// Terms grow only by elections, one at a time. A node that was away is behind by the elections that were
/// held meanwhile: at a thousand elections per second it takes 34 years to pass this bound. From zero, the
/// highest number of all is 16 million such steps away.
const TERM_STEP_MAX: u64 = 1 << 40;

/// No term is accepted above this, so that there is always a next one.
const TERM_MAX: u64 = 1 << 63;

/// Refuses the term `named` in a message if no honest node has come to it. `known` is the term that
/// this node knows of.
///
/// # Errors
/// If `named` is more than [`TERM_STEP_MAX`] above `known`, or above [`TERM_MAX`]: a text that says what
/// to do.
pub fn check(known: u64, named: u64) -> Result<(), String> {
    let max = known.saturating_add(TERM_STEP_MAX).min(TERM_MAX);
    if named <= max {
        return Ok(());
    }
    Err(format!(
        "it speaks of term {named}; the term here is {known}, and no cluster holds so many \
         elections: its data directory or its memory is damaged; stop that node"
    ))
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

//! Which terms a peer can honestly speak of.
//!
//! Raft obeys any term that is higher than its own, writes it down, and adds one to it in the next
//! election. One confused node that spoke of the highest number there is would end all elections.

/// How far the term of a message may lie above the term that this node knows of.
///
/// Terms grow by elections alone, one at a time. A node that was away is behind by as many as there
/// were meanwhile: were there a thousand every second, it would take 34 years to pass this bound.
/// And from zero, the highest number of all lies 16 million such steps away.
pub const TERM_STEP_MAX: u64 = 1 << 40;

/// No term is higher, so that there always is a next one.
const TERM_MAX: u64 = 1 << 63;

/// Refuses a term that no honest node has come to.
///
/// # Errors
/// What is wrong with it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_away_for_years_is_heard_and_an_absurd_term_is_not() {
        assert_eq!(check(3, 4), Ok(()));
        assert_eq!(check(7, 3), Ok(()), "Raft itself refuses what is past");
        assert_eq!(check(3, 3 + TERM_STEP_MAX), Ok(()));
        assert!(check(3, 4 + TERM_STEP_MAX).is_err());
        assert!(check(3, u64::MAX).is_err());
        assert!(check(TERM_MAX - 1, TERM_MAX).is_ok());
        assert!(check(TERM_MAX, TERM_MAX + 1).is_err());
    }
}

//! A change that goes on when its caller's deadline passes, and what the caller is told then.

use tokio::time::{Instant, timeout_at};

use crate::{
    node::way::patience::time_to_tell,
    proto::{Refusal, refusal},
};

/// How a change is told of that goes on.
pub(in crate::node) struct OngoingChange {
    /// What it is called.
    pub name: &'static str,
    /// Those of whom a majority must write it down.
    pub voters: &'static str,
    /// The command that shows what became of it.
    pub shown_by: &'static str,
}

/// The outcome of a change, if it is through in time: its caller must hear before the deadline that it goes on.
///
/// # Errors
/// DEADLINE_EXCEEDED if the change goes on.
pub(in crate::node) async fn through_in_time<T>(
    changing: impl Future<Output = T>, deadline: Instant, change: OngoingChange,
) -> Result<T, Refusal> {
    let through = timeout_at(time_to_tell(deadline), changing).await;
    let OngoingChange { name, voters, shown_by } = change;
    through.map_err(|_| {
        refusal!(
            DeadlineExceeded,
            "{name} is not through yet, and goes on: a majority of {voters} must write it down; \
             see {shown_by}"
        )
        .ongoing()
    })
}

#[cfg(test)]
mod tests {
    use std::{future, time::Duration};

    use super::*;
    use crate::proto::v1::Outcome;

    #[tokio::test(start_paused = true)]
    async fn a_change_that_is_not_through_is_told_before_the_deadline_as_one_that_goes_on() {
        let deadline = Instant::now() + Duration::from_secs(1);
        let change = || OngoingChange {
            name: "the change",
            voters: "its voters",
            shown_by: "ratchet status",
        };
        let through = through_in_time(future::ready(7), deadline, change()).await;
        assert_eq!(through.expect("it is through"), 7);
        let late = through_in_time(future::pending::<()>(), deadline, change()).await;
        let late = late.expect_err("it goes on");
        assert!(Instant::now() < deadline);
        assert_eq!(late.outcome(), Outcome::Ongoing);
        assert_eq!(
            late.message(),
            "the change is not through yet, and goes on: a majority of its voters must write it \
             down; see ratchet status"
        );
    }
}

//! The books of a namespace: what was handed out and skipped on each day, told by the leader.

use tokio::time::Instant;

use super::{
    NodeContext, formats::hands_out_ids, leader_search::Attempt, sequence_request::failed,
};
use crate::{
    allocator::{Term, read_books},
    proto::{peer::administer_reply::Reply, refusal, v1},
    sequence::{DAYS_KEPT, DayBooks},
};

impl NodeContext {
    /// What was handed out and skipped of a namespace on the last days.
    pub(super) async fn gaps(
        &self, term: &Term, asked: v1::GapsRequest, deadline: Instant,
    ) -> Attempt<Reply> {
        let days = asked.days;
        if days > DAYS_KEPT {
            return Err(refusal!(
                InvalidRequest,
                "days is {days}; the books of {DAYS_KEPT} days are kept: give 1 to {DAYS_KEPT}"
            )
            .into());
        }
        let namespace = self.namespace_named(&asked.namespace)?;
        if let Some(format) = &namespace.config.format {
            return Err(hands_out_ids(&namespace, format).into());
        }
        let books = read_books(term, &namespace, days, deadline).await;
        let books = books.map_err(|error| failed(error, &namespace, term, 0))?;
        Ok(Reply::Gaps(v1::GapsResponse { days: books.into_iter().map(of_day).collect() }))
    }
}

fn of_day((day, books): (u32, DayBooks)) -> v1::GapsOfDay {
    let skipped = [
        ("leader_change", books.leader_change),
        ("shared_section", books.shared_section),
        ("fence", books.fence),
        ("deadline", books.deadline),
        ("floor", books.floor),
    ];
    v1::GapsOfDay {
        day,
        handed_out: books.handed_out,
        skipped: skipped
            .map(|(cause, numbers)| v1::Skipped { cause: cause.to_owned(), numbers })
            .to_vec(),
    }
}

//! The accounts of a namespace: what was handed out and skipped on each day, told by the leader.

use tokio::time::Instant;

use super::Namespaces;
use crate::{
    allocator::{Term, read_accounts},
    node::{
        access::Asker,
        formats::hands_out_ids,
        requests::{checks::namespace_named, operation::ByLeader, refused::failed},
        way::attempt::Attempt,
    },
    proto::{refuse, v1},
    sequence::{DAYS_KEPT, DayAccounts},
};

/// About how many bytes a day's accounts have as a message and encoded.
const DAY_BYTES: usize = 512;

impl ByLeader for v1::GapsRequest {
    type Service = Namespaces;

    async fn carry_out(
        self, namespaces: &Namespaces, (term, _): (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::GapsResponse> {
        let days = self.days;
        if days > DAYS_KEPT {
            refuse!(
                InvalidRequest,
                "days is {days}; the accounts of {DAYS_KEPT} days are kept: give at most so many, or 0 for all"
            );
        }
        let namespace = namespace_named(&namespaces.group, &self.namespace)?;
        if let Some(format) = &namespace.config.format {
            return Err(hands_out_ids(&namespace, format).into());
        }
        let accounts = read_accounts(term, &namespace, days, deadline).await;
        let accounts = accounts.map_err(|error| failed(error, &namespace, term, 0))?;
        Ok(v1::GapsResponse { days: accounts.into_iter().map(of_day).collect() })
    }

    fn answer_bytes(&self, _: &Namespaces) -> usize {
        DAYS_KEPT as usize * DAY_BYTES
    }
}

fn of_day((day, accounts): (u32, DayAccounts)) -> v1::GapsOfDay {
    let skipped = [
        ("leader_change", accounts.leader_change),
        ("shared_section", accounts.shared_section),
        ("fence", accounts.fence),
        ("deadline", accounts.deadline),
        ("floor", accounts.floor),
    ];
    v1::GapsOfDay {
        day,
        handed_out: accounts.handed_out,
        skipped: skipped
            .map(|(cause, numbers)| v1::Skipped { cause: cause.to_owned(), numbers })
            .to_vec(),
    }
}

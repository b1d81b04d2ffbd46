//! Calls with a request id in ordinary namespaces: a retry gets the numbers of its first try while the term lasts.
//!
//! An id is remembered once its first call has passed the fence. A retry then answers what was answered before, so
//! its numbers may lie below those of calls that came between: they are the first call's. The fence is checked again,
//! so that a deposed leader, whose successor knows nothing of the id, does not answer.

use tokio::time::Instant;

use super::{held::Held, next_error::NextError, request_ids::Begun, term::Term};
use crate::sequence::{Key, Namespace, Range, RequestId};

impl Term {
    /// Hands out the next `count` (at least 1) numbers of a key, or those that the first call with this `request` id
    /// got in this term.
    ///
    /// # Errors
    /// As [`Term::next`]; [`NextError::Reused`] and [`NextError::IdsFull`] for the request id.
    pub async fn next_once(
        &self, namespace: &Namespace, key: Key<'_>, count: u64, request: &RequestId,
        deadline: Instant,
    ) -> Result<Range, NextError> {
        loop {
            let ids = self.request_ids();
            match ids.begin(namespace.id, request, key, count, self.now()) {
                Begun::First(first) => {
                    let range = self.next(namespace, key, count, deadline).await?;
                    first.answered(range, self.now());
                    return Ok(range);
                }
                Begun::Answered(range) => {
                    let _inside = self.enter()?;
                    let nothing = Held::new(self.metrics(), 0);
                    self.pass_fence(namespace, nothing, 1, deadline).await?;
                    self.metrics().requests_repeated.inc();
                    return Ok(range);
                }
                Begun::UnderWay(mut first) => {
                    // It ends with an error once the first call has ended.
                    let ended = tokio::time::timeout_at(deadline, first.changed());
                    if ended.await.is_err() {
                        return Err(NextError::DeadlineExceeded);
                    }
                }
                Begun::Reused { key, count } => return Err(NextError::Reused { key, count }),
                Begun::Full(ids_max) => return Err(NextError::IdsFull { ids_max }),
            }
        }
    }
}

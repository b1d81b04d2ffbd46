//! Requests for the next numbers of one key.

use tokio::time::Instant;

use super::sequence_request::{Limits, SequenceRequest, bytes_of, of_namespace};
use crate::{
    allocator::{Term, WAITING_KEY_BYTES},
    node::{
        members::KnownRoute,
        requests::{
            checks::{check_count, check_count_of, check_kind},
            keys::{heap_bytes, key_of},
            refused::{failed, failed_under},
            request_id::{check_id, message_id},
        },
        way::attempt::Attempt,
    },
    proto::{
        Refusal,
        v1::{NextRequest, NextResponse, Route},
    },
    sequence::{MessageId, Namespace},
};

/// How many numbers a message for one key asks for.
fn count_of(message: &NextRequest) -> u64 {
    message.count.unwrap_or(1)
}

impl SequenceRequest for NextRequest {
    of_namespace!();

    fn check(&self) -> Result<Option<MessageId>, Refusal> {
        key_of(&self.key)?;
        message_id(self.request_id.as_deref(), self.retry_window_ms, self.made_ms)
    }

    fn check_counts(&self, most: u64) -> Result<(), Refusal> {
        check_count(count_of(self), most)
    }

    fn numbers(&self) -> u64 {
        count_of(self)
    }

    fn bytes(&self) -> usize {
        let id = bytes_of(self.request_id.as_deref());
        let others = self.namespace.len() + heap_bytes(&self.key) + id;
        2 * (size_of::<Self>() + others) + WAITING_KEY_BYTES
    }

    async fn answer(
        &self, id: Option<&MessageId>, term: &Term, namespace: &Namespace, limits: Limits<'_>,
        deadline: Instant,
    ) -> Attempt<NextResponse> {
        let (key, count) = (key_of(&self.key)?, count_of(self));
        check_kind(namespace, key)?;
        check_id(namespace, id.is_some())?;
        if id.is_none() {
            check_count_of(namespace, limits.config, count)?;
        }
        let range = match namespace.config.gapless {
            false => (term.next(namespace, key, count, deadline).await)
                .map_err(|why| failed(why, namespace, term, count))?,
            // Boxed, like every rare path: the future of the common path stays small.
            true => Box::pin(term.next_gapless(namespace, key, count, id, deadline))
                .await
                .map_err(|why| failed_under(id, why, namespace, term, count))?,
        };
        let (first, last, increment) = (range.first, range.last, range.increment);
        Ok(NextResponse { first, last, increment, route: None })
    }

    fn counts_to_burn(&self) -> Option<Vec<u64>> {
        self.request_id.is_none().then(|| vec![count_of(self)])
    }

    fn firsts(answer: &NextResponse) -> &[u64] {
        std::slice::from_ref(&answer.first)
    }
}

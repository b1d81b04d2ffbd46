//! Requests for the last numbers of keys, of one or of many.

use tokio::time::Instant;

use super::sequence_request::{Limits, SequenceRequest, bytes_of_many, of_namespace};
use crate::{
    allocator::Term,
    node::{
        members::KnownRoute,
        requests::{
            checks::check_kind,
            keys::{Keys, heap_bytes, key_of},
            refused::failed,
        },
        way::attempt::Attempt,
    },
    proto::{
        Refusal,
        v1::{CurrentManyRequest, CurrentManyResponse, CurrentRequest, CurrentResponse, Route},
    },
    sequence::{MessageId, Namespace},
};

impl SequenceRequest for CurrentRequest {
    of_namespace!();

    fn numbers(&self) -> u64 {
        0
    }

    fn check(&self) -> Result<Option<MessageId>, Refusal> {
        key_of(&self.key).map(|_| None)
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn bytes(&self) -> usize {
        2 * (size_of::<Self>() + self.namespace.len() + heap_bytes(&self.key))
    }

    async fn answer(
        &self, _: Option<&MessageId>, term: &Term, namespace: &Namespace, _: Limits<'_>,
        deadline: Instant,
    ) -> Attempt<CurrentResponse> {
        let key = key_of(&self.key)?;
        check_kind(namespace, key)?;
        let read = term.current(namespace, key, deadline).await;
        let last = read.map_err(|why| failed(why, namespace, term, 0))?;
        Ok(CurrentResponse { last, route: None })
    }
}

impl SequenceRequest for CurrentManyRequest {
    of_namespace!();

    fn numbers(&self) -> u64 {
        0
    }

    fn check(&self) -> Result<Option<MessageId>, Refusal> {
        Keys::checked(&self.ids, &self.names).map(|_| None)
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn keys(&self) -> usize {
        Keys::of(&self.ids, &self.names).len()
    }

    fn bytes(&self) -> usize {
        bytes_of_many::<Self>(&self.namespace, Keys::of(&self.ids, &self.names))
    }

    async fn answer(
        &self, _: Option<&MessageId>, term: &Term, namespace: &Namespace, _: Limits<'_>,
        deadline: Instant,
    ) -> Attempt<CurrentManyResponse> {
        let keys = Keys::of(&self.ids, &self.names);
        // All are of one kind.
        check_kind(namespace, keys.at(0))?;
        let key = |place: usize| keys.at(place);
        let read = term.current_many(namespace, keys.len(), key, deadline);
        let last = read.await.map_err(|why| failed(why, namespace, term, 0))?;
        Ok(CurrentManyResponse { last, route: None })
    }
}

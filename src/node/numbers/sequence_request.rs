//! Requests of sequences: a trait for them all, and its implementations for `Next`, `NextMany` and `Current`. `floors.rs` has
//! the others. A request is a message of the public API, and so is its answer.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tokio::time::Instant;

use super::lost::LostAnswer;
use crate::{
    allocator::{RefusedPlaces, Term, WAITING_KEY_BYTES, Why},
    metrics::NamespaceCounts,
    node::{
        Config,
        access::{Guarded, LostNumbers},
        members::KnownRoute,
        request_memory::RequestMemory,
        requests::{
            checks::{check_count, check_count_of, check_kind},
            keys::{Keys, heap_bytes, key_of},
            late_keys::{add_late, late},
            refused::{failed, failed_under},
            refused_keys::{many_ranges, refused, within_count_max},
            request_id::{check_id, message_id},
            waiting_keys::{WaitingKeys, no_answer},
        },
        settings::COUNT_MAX_MAX,
        way::{attempt::Attempt, forward::LostWithReply},
    },
    proto::{
        Operation, Refusal,
        peer::{Asker, ForwardRequest},
        refuse,
        v1::{
            CurrentRequest, CurrentResponse, Failure, NextManyRequest, NextManyResponse,
            NextRequest, NextResponse, Reason, Route,
        },
    },
    sequence::{MessageId, Namespace, NamespaceId},
};

/// The limits of a request at the node that leads.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// Its settings.
    pub config: &'a Config,
    /// The memory that requests hold there while they wait.
    pub memory: &'a Arc<RequestMemory>,
}

/// A message that is answered out of the sequences of one namespace.
pub trait SequenceRequest: Operation + Guarded {
    /// Checks all of it that depends neither on settings nor on the namespace. Returns what its caller calls it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for keys, counts, floors or a request id outside of their limits.
    fn check(&self) -> Result<Option<MessageId>, Refusal>;

    /// Checks the counts, if it has any, of which this node allows `most`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if a count is 0, or greater than `most`.
    fn check_counts(&self, _most: u64) -> Result<(), Refusal> {
        Ok(())
    }

    /// The namespace's name.
    fn namespace(&self) -> &str;

    /// The route that the caller knows.
    fn known(&self) -> KnownRoute;

    /// Sees that its answer tells no route.
    fn leave_route_out(&mut self);

    /// How many numbers it asks for. A request for none is asked again if its answer is lost.
    fn numbers(&self) -> u64;

    /// How many keys it has.
    fn keys(&self) -> usize {
        1
    }

    /// Its cost for the leader, in keys.
    fn cost(&self) -> usize {
        self.keys()
    }

    /// True if it takes no number and raises no floor.
    fn only_reads(&self) -> bool {
        false
    }

    /// True if it raises floors. The part of it that was done shows, even if nobody is answered. It does no harm to do it
    /// again.
    fn raises(&self) -> bool {
        self.numbers() == 0 && !self.only_reads()
    }

    /// True if it may be made of a namespace whose ids have this format.
    fn fits_ids(&self, _format: &str) -> bool {
        self.only_reads()
    }

    /// How many bytes it holds while it waits, with the copy that is forwarded; without what many keys hold that wait in a
    /// term's memory.
    fn bytes(&self) -> usize;

    /// Answers it from a term's memory, within the limits of this node, which leads. `id` is what its caller calls it. The
    /// memory that many keys hold while they wait is reserved.
    ///
    /// # Errors
    /// Those of an [`Attempt`].
    fn answer(
        &self, id: Option<&MessageId>, term: &Term, namespace: &Namespace, limits: Limits<'_>,
        deadline: Instant,
    ) -> impl Future<Output = Attempt<Self::Answer>> + Send;

    /// The rest of it that the leader has left to the next one, as its answer says. Nothing was done of that.
    fn rest(&self, _answer: &Self::Answer) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Completes an answer with that to its rest, or with why there is none.
    fn add_rest(&self, _answer: &mut Self::Answer, _rest: Result<Self::Answer, Refusal>) {}

    /// How many keys an answer refuses while it answers others, by the reason.
    fn refused_keys(_answer: &Self::Answer) -> Vec<(Reason, u64)> {
        Vec::new()
    }

    /// How many numbers an answer that leaves a rest gives.
    fn numbers_in(&self, _answer: &Self::Answer) -> u64 {
        0
    }

    /// Where an answer tells the route.
    fn route_in(answer: &mut Self::Answer) -> &mut Option<Box<Route>>;

    /// How many numbers of each key are lost with its answer, or one of each if there are no counts. `None`: none, since what
    /// was taken under a request id is given to a caller that asks again.
    fn counts_to_lose(&self) -> Option<Vec<u64>> {
        None
    }

    /// The first number of each key in an answer, 0 for a key without any.
    fn firsts(_answer: &Self::Answer) -> &[u64] {
        &[]
    }
}

/// The methods that all messages have alike.
macro_rules! of_namespace {
    () => {
        fn namespace(&self) -> &str {
            &self.namespace
        }

        fn known(&self) -> KnownRoute {
            KnownRoute { version: self.route_version, members_version: self.members_version }
        }

        fn leave_route_out(&mut self) {
            self.route_version = crate::node::members::ROUTE_UNWANTED;
            self.members_version = None;
        }

        fn route_in(answer: &mut Self::Answer) -> &mut Option<Box<Route>> {
            &mut answer.route
        }
    };
}
pub(in crate::node) use of_namespace;

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

    fn counts_to_lose(&self) -> Option<Vec<u64>> {
        self.request_id.is_none().then(|| vec![count_of(self)])
    }

    fn firsts(answer: &NextResponse) -> &[u64] {
        std::slice::from_ref(&answer.first)
    }
}

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

/// The keys of a message that was checked.
fn keys_of(message: &NextManyRequest) -> Keys<'_> {
    Keys::of(&message.ids, &message.names)
}

impl SequenceRequest for NextManyRequest {
    of_namespace!();

    fn check(&self) -> Result<Option<MessageId>, Refusal> {
        let keys = Keys::checked(&self.ids, &self.names)?.len();
        let counted = self.counts.len();
        if counted != 0 && counted != keys {
            refuse!(
                InvalidRequest,
                "the message has {keys} keys and {counted} counts; give a count for each key, or none at \
                 all for one number of each"
            );
        }
        message_id(self.request_id.as_deref(), self.retry_window_ms, self.made_ms)
    }

    fn check_counts(&self, most: u64) -> Result<(), Refusal> {
        self.counts.iter().try_for_each(|&count| check_count(count, most))
    }

    fn numbers(&self) -> u64 {
        match self.counts.is_empty() {
            true => self.keys() as u64,
            false => self.counts.iter().sum(),
        }
    }

    fn keys(&self) -> usize {
        keys_of(self).len()
    }

    fn bytes(&self) -> usize {
        let (counts, id) = (size_of_val(&self.counts[..]), bytes_of(self.request_id.as_deref()));
        let others = self.namespace.len() + keys_of(self).bytes() + id;
        // The counts wait for the reply as well.
        2 * (size_of::<Self>() + others + counts) + counts
    }

    async fn answer(
        &self, id: Option<&MessageId>, term: &Term, namespace: &Namespace, limits: Limits<'_>,
        deadline: Instant,
    ) -> Attempt<NextManyResponse> {
        let all = keys_of(self);
        // All are of one kind.
        check_kind(namespace, all.at(0))?;
        check_id(namespace, id.is_some())?;
        if namespace.config.gapless {
            return Box::pin(answer_gapless(self, id, term, namespace, limits, deadline)).await;
        }
        let count = |place| self.counts.get(place).copied().unwrap_or(1);
        let (given, refused) = within_count_max(&self.counts, namespace, limits.config);
        let at = |place: usize| given.as_ref().map_or(place, |given| given[place]);
        let keys = given.as_ref().map_or(all.len(), Vec::len);
        let ask = |place| (all.at(at(place)), count(at(place)));
        let mut waiting = WaitingKeys::new(limits.memory, all);
        let may_wait = |keys| waiting.add(keys);
        let taken = term.next_many(namespace, keys, ask, may_wait, deadline).await;
        let failed = |why| failed(why, namespace, term, self.numbers());
        let taken = taken.map_err(|why| no_answer(why, 0, failed))?;
        Ok(many_ranges(namespace, term.term(), taken, all.len(), at, refused))
    }

    #[inline]
    fn rest(&self, answer: &NextManyResponse) -> Option<NextManyRequest> {
        match answer.refused.is_empty() {
            true => None,
            false => late(self, answer),
        }
    }

    fn add_rest(&self, answer: &mut NextManyResponse, rest: Result<NextManyResponse, Refusal>) {
        add_late(answer, rest);
    }

    fn refused_keys(answer: &NextManyResponse) -> Vec<(Reason, u64)> {
        let exhausted = answer.exhausted.iter().map(|one| (&one.failure, &one.places));
        let refused = answer.refused.iter().map(|one| (&one.failure, &one.places));
        let keys = exhausted.chain(refused).map(|(failure, places)| {
            let reason = failure.as_deref().map_or(Reason::Unspecified, Failure::reason);
            (reason, places.len() as u64)
        });
        keys.collect()
    }

    fn numbers_in(&self, answer: &NextManyResponse) -> u64 {
        numbers_of(&answer.firsts, &self.counts)
    }

    fn counts_to_lose(&self) -> Option<Vec<u64>> {
        self.request_id.is_none().then(|| self.counts.clone())
    }

    fn firsts(answer: &NextManyResponse) -> &[u64] {
        &answer.firsts
    }
}

/// A request as it is forwarded to the leader, which is to compare the `namespace` with its own; and what is lost with the
/// reply. `caller` names the address of a client, and `by` says who asks. The lost numbers are `counted`, and in `counts`.
pub(in crate::node) fn forwarded<Q: SequenceRequest>(
    request: &Q, namespace: Option<NamespaceId>, (caller, by): (Option<u64>, Option<Asker>),
    (counted, counts): (Option<LostNumbers>, Arc<NamespaceCounts>),
) -> (ForwardRequest, Box<dyn LostWithReply>) {
    let forwarded = ForwardRequest {
        method: Bytes::from_static(Q::METHOD.as_bytes()),
        message: request.encode_to_vec().into(),
        namespace_id: namespace.map(|id| id.0),
        caller,
        by,
        ..ForwardRequest::default()
    };
    let lost = LostAnswer {
        counts: request.counts_to_lose(),
        numbers_of: numbers_of_answer::<Q>,
        counted,
        namespace: counts,
    };
    (forwarded, Box::new(lost))
}

fn numbers_of_answer<Q: SequenceRequest>(answer: &Bytes, counts: &[u64]) -> u64 {
    // One that cannot be read says nothing.
    Q::Answer::decode(answer.clone()).map_or(0, |answer| numbers_of(Q::firsts(&answer), counts))
}

/// How many numbers the keys have together whose first numbers are `firsts`, 0 for a key without any. Each has as many as
/// `counts` says at its place, or one if there are no counts.
fn numbers_of(firsts: &[u64], counts: &[u64]) -> u64 {
    let given = firsts.iter().enumerate().filter(|(_, first)| **first > 0);
    given.map(|(place, _)| counts.get(place).copied().unwrap_or(1)).sum()
}

/// As [`SequenceRequest::answer`], of a gapless namespace. The entry that takes the numbers refuses counts that are too
/// large, unless an earlier try took them.
async fn answer_gapless(
    message: &NextManyRequest, id: Option<&MessageId>, term: &Term, namespace: &Namespace,
    limits: Limits<'_>, deadline: Instant,
) -> Attempt<NextManyResponse> {
    let all = keys_of(message);
    let ask = |place| (all.at(place), message.counts.get(place).copied().unwrap_or(1));
    let too_large = |place| check_count_of(namespace, limits.config, ask(place).1).err();
    let taken = term.next_many_gapless(namespace, all.len(), ask, id, deadline).await;
    let mut taken =
        taken.map_err(|why| failed_under(id, why, namespace, term, message.numbers()))?;
    let mut refused_now = Vec::new();
    if let Some(RefusedPlaces { why, places }) =
        taken.take_out(|why| matches!(why, Why::TooLarge { .. }))
    {
        let (now, before): (Vec<_>, Vec<_>) =
            places.into_iter().partition(|(place, _)| too_large(*place).is_some());
        if let Some(why) = now.first().and_then(|(place, _)| too_large(*place)) {
            refused_now.push(refused(now.iter().map(|(place, _)| *place), why));
        }
        if !before.is_empty() {
            taken.refused.push(RefusedPlaces { why, places: before });
        }
    }
    Ok(many_ranges(namespace, term.term(), taken, all.len(), |place| place, refused_now))
}

/// The most numbers of a key that a request may ask this node for. Numbers that were taken under an id are the answer to it,
/// whatever the limit is now: the entry that takes the numbers checks that.
pub(in crate::node) fn count_max(has_id: bool, config: &Config) -> u64 {
    if has_id { COUNT_MAX_MAX } else { config.count_max }
}

fn bytes_of(request_id: Option<&[u8]>) -> usize {
    request_id.map_or(0, <[u8]>::len)
}

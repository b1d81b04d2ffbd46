//! How each kind of request is checked, answered out of a term's memory, and carried to the leader. A request is a message of
//! the public API, and so is its answer: the leader gets the one, and gives the other.

use tokio::time::Instant;

use super::{
    Config, NodeContext,
    forward::numbers_of,
    late_keys::{add_late, late},
    leader_search::{Attempt, NoAnswer},
    message_parts::{Keys, heap_bytes, key_of, message_id},
    refused_keys::{
        check_count, check_count_of, end_of, low_disk, many_ranges, memory_full, over_quota,
        refused, too_large, within_count_max,
    },
    route::KnownRoute,
    settings::COUNT_MAX_MAX,
    waiting_keys::WaitingKeys,
};
use crate::{
    allocator::{NextError, Term, WAITING_KEY_BYTES},
    proto::{
        Refusal,
        peer::{forward_reply::Reply, forward_request::Request as Forward},
        refusal,
        v1::{
            CurrentRequest, CurrentResponse, NextManyRequest, NextManyResponse, NextRequest,
            NextResponse, Route,
        },
    },
    sequence::{Key, KeyKind, MessageId, Namespace},
};

/// How soon to ask again while nothing more can be remembered under request ids: ids that are old enough are forgotten all the time.
const IDS_RETRY_AFTER_MS: u64 = 1_000;

/// A message that is answered out of the sequences of one namespace.
pub trait SequenceRequest: Send + Sync {
    /// The message that answers it.
    type Answer: Send;

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

    /// How many numbers it asks for.
    fn numbers(&self) -> u64 {
        0
    }

    /// How many keys it has.
    fn keys(&self) -> usize {
        1
    }

    /// True if it takes no number and raises no floor.
    fn only_reads(&self) -> bool {
        false
    }

    /// True if it may be made of a namespace whose ids have this format.
    fn fits_ids(&self, _format: &str) -> bool {
        self.only_reads()
    }

    /// How many bytes it holds while it waits, with the copy that is forwarded; without what many keys hold that wait in a
    /// term's memory.
    fn bytes(&self) -> usize;

    /// Answers it from a term's memory, on the `node` that leads. `id` is what its caller calls it. What many keys hold that
    /// have to wait is reserved there.
    ///
    /// # Errors
    /// What the request comes to otherwise.
    fn answer(
        &self, id: Option<&MessageId>, term: &Term, namespace: &Namespace, node: &NodeContext,
        deadline: Instant,
    ) -> impl Future<Output = Attempt<Self::Answer>> + Send;

    /// What of it the leader has left to the next one, as its answer says. Nothing was done of that.
    fn rest(&self, _answer: &Self::Answer) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Completes an answer with that to its rest, or with why there is none.
    fn add_rest(&self, _answer: &mut Self::Answer, _rest: Result<Self::Answer, Refusal>) {}

    /// How many numbers an answer that leaves a rest gives.
    fn numbers_in(&self, _answer: &Self::Answer) -> u64 {
        0
    }

    /// Where an answer tells the route.
    fn route_in(answer: &mut Self::Answer) -> &mut Option<Route>;

    /// The message, as it is forwarded to the leader.
    fn to_forward(&self) -> Forward;

    /// The answer in the leader's reply; `None` if that is the answer to another kind of request.
    fn from_reply(reply: Reply) -> Option<Self::Answer>;
}

/// What all messages have alike, but for what forwards one, and the reply that answers it.
macro_rules! carried_as {
    ($forward:ident, $reply:ident) => {
        fn namespace(&self) -> &str {
            &self.namespace
        }

        fn known(&self) -> KnownRoute {
            KnownRoute { version: self.route_version, members_version: self.members_version }
        }

        fn route_in(answer: &mut Self::Answer) -> &mut Option<Route> {
            &mut answer.route
        }

        fn to_forward(&self) -> Forward {
            Forward::$forward(self.clone())
        }

        fn from_reply(reply: Reply) -> Option<Self::Answer> {
            match reply {
                Reply::$reply(answer) => Some(answer),
                _ => None,
            }
        }
    };
}
pub(super) use carried_as;

/// How many numbers a message for one key asks for.
fn count_of(message: &NextRequest) -> u64 {
    message.count.unwrap_or(1)
}

impl SequenceRequest for NextRequest {
    type Answer = NextResponse;

    carried_as!(Next, Next);

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
        &self, id: Option<&MessageId>, term: &Term, namespace: &Namespace, node: &NodeContext,
        deadline: Instant,
    ) -> Attempt<NextResponse> {
        let (key, count) = (key_of(&self.key)?, count_of(self));
        check_kind(namespace, key)?;
        check_id(namespace, id.is_some())?;
        if id.is_none() {
            check_count_of(namespace, &node.config, count)?;
        }
        let taken = match namespace.config.gapless {
            false => term.next(namespace, key, count, deadline).await,
            // Boxed, as is every way that is seldom gone.
            true => Box::pin(term.next_gapless(namespace, key, count, id, deadline)).await,
        };
        let range = taken.map_err(|error| match error {
            // The next leader knows.
            NextError::Unknown if id.is_some() => NoAnswer::Unknown,
            error => failed(error, namespace, term, count),
        })?;
        let (first, last, increment) = (range.first, range.last, range.increment);
        Ok(NextResponse { first, last, increment, route: None })
    }
}

impl SequenceRequest for CurrentRequest {
    type Answer = CurrentResponse;

    carried_as!(Current, Current);

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
        &self, _: Option<&MessageId>, term: &Term, namespace: &Namespace, _: &NodeContext,
        deadline: Instant,
    ) -> Attempt<CurrentResponse> {
        let key = key_of(&self.key)?;
        check_kind(namespace, key)?;
        let read = term.current(namespace, key, deadline).await;
        let last = read.map_err(|error| failed(error, namespace, term, 0))?;
        Ok(CurrentResponse { last, route: None })
    }
}

/// The keys of a message that was checked.
fn keys_of(message: &NextManyRequest) -> Keys<'_> {
    Keys::of(&message.ids, &message.names)
}

impl SequenceRequest for NextManyRequest {
    type Answer = NextManyResponse;

    carried_as!(NextMany, NextMany);

    fn check(&self) -> Result<Option<MessageId>, Refusal> {
        let keys = Keys::checked(&self.ids, &self.names)?.len();
        let counted = self.counts.len();
        if counted != 0 && counted != keys {
            return Err(refusal!(
                InvalidRequest,
                "the message has {keys} keys and {counted} counts; give a count for each key, or none at \
                 all for one number of each"
            ));
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
        &self, id: Option<&MessageId>, term: &Term, namespace: &Namespace, node: &NodeContext,
        deadline: Instant,
    ) -> Attempt<NextManyResponse> {
        let all = keys_of(self);
        // All are of one kind.
        check_kind(namespace, all.at(0))?;
        check_id(namespace, id.is_some())?;
        if namespace.config.gapless {
            return Box::pin(answer_gapless(self, id, term, namespace, node, deadline)).await;
        }
        let count = |place| self.counts.get(place).copied().unwrap_or(1);
        let (given, refused) = within_count_max(&self.counts, namespace, &node.config);
        let at = |place: usize| given.as_ref().map_or(place, |given| given[place]);
        let keys = given.as_ref().map_or(all.len(), Vec::len);
        let ask = |place| (all.at(at(place)), count(at(place)));
        let mut waiting = WaitingKeys::new(&node.request_memory, all);
        let may_wait = |keys| waiting.add(keys);
        let taken = term.next_many(namespace, keys, ask, may_wait, deadline).await;
        let failed = |error| failed(error, namespace, term, self.numbers());
        let taken = taken.map_err(|error| error.no_answer(failed))?;
        Ok(many_ranges(namespace, taken, all.len(), at, refused))
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

    fn numbers_in(&self, answer: &NextManyResponse) -> u64 {
        numbers_of(&answer.firsts, &self.counts)
    }
}

/// As [`SequenceRequest::answer`], of a gapless namespace. The entry that takes the numbers refuses counts that are too
/// large, unless an earlier try took them.
async fn answer_gapless(
    message: &NextManyRequest, id: Option<&MessageId>, term: &Term, namespace: &Namespace,
    node: &NodeContext, deadline: Instant,
) -> Attempt<NextManyResponse> {
    let all = keys_of(message);
    let ask = |place| (all.at(place), message.counts.get(place).copied().unwrap_or(1));
    let why = |place| check_count_of(namespace, &node.config, ask(place).1).err();
    match term.next_many_gapless(namespace, all.len(), ask, id, deadline).await {
        Ok(taken) => {
            let (now, before): (Vec<usize>, Vec<usize>) =
                taken.too_large.iter().partition(|place| why(**place).is_some());
            let mut too_large = Vec::new();
            for places in [before, now].into_iter().filter(|places| !places.is_empty()) {
                let why = why(places[0]).unwrap_or_else(left_out);
                too_large.push(refused(places, why));
            }
            Ok(many_ranges(namespace, taken, all.len(), |place| place, too_large))
        }
        Err(NextError::Unknown) if id.is_some() => Err(NoAnswer::Unknown),
        Err(error) => Err(failed(error, namespace, term, message.numbers())),
    }
}

/// Why a key gets nothing although its count is allowed by now.
fn left_out() -> Refusal {
    refusal!(
        InvalidRequest,
        "the try that took the numbers left the key out, because its count was above count_max then; ask for this key with \
         another request id"
    )
}

/// The most numbers of a key that a request may ask this node for. What was taken under an id is answered with it whatever the
/// limit is now: the entry that takes the numbers checks that.
pub(super) fn count_max(has_id: bool, config: &Config) -> u64 {
    if has_id { COUNT_MAX_MAX } else { config.count_max }
}

/// Refuses a key that is not of the namespace's kind.
///
/// # Errors
/// INVALID_ARGUMENT, with what to give instead.
pub(super) fn check_kind(namespace: &Namespace, key: Key<'_>) -> Result<(), Refusal> {
    if key.kind() == namespace.config.key_kind {
        return Ok(());
    }
    let give = match namespace.config.key_kind {
        KeyKind::Id => "give an id (key.id)",
        KeyKind::Name => "give a name (key.name, ratchet next --name)",
    };
    Err(refusal!(
        InvalidRequest,
        "namespace {:?} takes keys of kind {}; {key} is of kind {}: {give}",
        namespace.config.name,
        namespace.config.key_kind,
        key.kind()
    ))
}

/// Why a term did not answer a request for `count` numbers, or that another node is to be asked.
pub(super) fn failed(error: NextError, namespace: &Namespace, term: &Term, count: u64) -> NoAnswer {
    NoAnswer::Refused(match error {
        NextError::NotLeading => return NoAnswer::Unanswered,
        NextError::Exhausted { left } => refusal!(
            NumbersExhausted,
            "count is {count}: only {left} numbers are left below {}",
            end_of(namespace)
        ),
        NextError::Unknown => outcome_unknown(&error, &namespace.config.name),
        NextError::DeadlineExceeded if namespace.config.gapless && count > 0 => {
            outcome_unknown(&error, &namespace.config.name)
        }
        NextError::Reused { keys, key, count: used } => {
            let others = match keys.saturating_sub(1) {
                0 => String::new(),
                others => format!(", and for {others} other keys"),
            };
            refusal!(
                RequestIdReused,
                "the request id was used for {used} numbers of key {} of namespace {:?}{others}; give another request \
                 another id",
                key.as_key(),
                namespace.config.name
            )
        }
        NextError::IdsFull { bytes_max } => refusal!(
            RequestIdsFull,
            "{} MB of request ids are remembered, as many as may be (request_ids_max_mb); ask again later",
            bytes_max >> 20
        )
        .retry_after(IDS_RETRY_AFTER_MS),
        NextError::IdExpired { made_ms, clock_ms } => refusal!(
            RequestIdExpired,
            "made_ms is {made_ms}, and the clock of request ids shows {clock_ms}: the message was made later than now, or so \
             long ago that its request id may be forgotten. It took nothing. If it was not sent before, send it with made_ms \
             {clock_ms}; otherwise an earlier copy may have taken its numbers: look before you ask again"
        )
        .at_request_clock(clock_ms),
        NextError::OverQuota { .. } => over_quota(namespace),
        NextError::TooLarge { count_max } => too_large(namespace, count, count_max),
        NextError::MemoryFull { max_mb } => memory_full(max_mb),
        NextError::LowDisk(low) => low_disk(low),
        // It was checked before, so `max` was lowered meanwhile.
        NextError::AboveMax => refusal!(
            NumbersExhausted,
            "a floor is above max {} of namespace {:?}, which was lowered meanwhile; raise it with: ratchet namespace \
             update {} --max N",
            namespace.config.max,
            namespace.config.name,
            namespace.config.name
        ),
        NextError::DeadlineExceeded => refusal!(
            DeadlineExceeded,
            "namespace {:?}: the deadline passed while the ceiling was being raised, or read, in term {}",
            namespace.config.name,
            term.term()
        ),
        NextError::Store(error) => refusal!(Internal, "{error}"),
    })
}

/// What a caller is told that may have taken numbers of a gapless key.
pub fn outcome_unknown(why: &impl std::fmt::Display, namespace: &str) -> Refusal {
    refusal!(
        OutcomeUnknown,
        "{why}: namespace {namespace:?} is gapless, and the numbers may be taken; with a request id it is safe to \
             ask again"
    )
}

fn bytes_of(request_id: Option<&[u8]>) -> usize {
    request_id.map_or(0, <[u8]>::len)
}

/// Refuses a request id where none is known, and a request without one where it could leave a gap.
///
/// # Errors
/// FAILED_PRECONDITION, with what to do.
pub(super) fn check_id(namespace: &Namespace, has_id: bool) -> Result<(), Refusal> {
    let config = &namespace.config;
    let name = &config.name;
    match (config.gapless, has_id) {
        (false, true) => Err(refusal!(
            RequestIdUnsupported,
            "namespace {name:?} is not gapless, and knows no request ids: ask without one; a retry takes new numbers, \
                 which costs nothing there"
        )),
        (true, false) if !config.request_id_optional => Err(refusal!(
            RequestIdRequired,
            "namespace {name:?} is gapless: give a request id (request_id, Idempotency-Key, --request-id), so that \
                 asking again after a lost answer leaves no gap; or allow such requests with: ratchet namespace update \
                 {name} --request-id-optional true"
        )),
        (false, false) | (true, _) => Ok(()),
    }
}

//! How each kind of request is checked, answered out of a term's memory, and carried to the leader.

use tokio::time::Instant;

use super::{
    Config, NodeContext,
    forward::numbers_of,
    leader_search::{Attempt, NoAnswer},
    refused_keys::{
        check_count, check_count_of, end_of, low_disk, many_ranges, memory_full, over_quota,
        too_large, within_count_max,
    },
    request::{Answered, Current, ManyRanges, Next, NextMany, RefusedKeys},
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
    },
    sequence::{Key, KeyKind, MessageId, Namespace, NamespaceId, Range},
};

/// How soon to ask again while nothing more can be remembered under request ids: ids that are old enough are forgotten all the time.
const IDS_RETRY_AFTER_MS: u64 = 1_000;

/// A request that is answered out of the sequences of one namespace.
pub trait SequenceRequest: Send + Sync {
    /// What it is answered with.
    type Answer: Send;

    /// The namespace's name.
    fn namespace(&self) -> &str;

    /// The route that the caller knows.
    fn known(&self) -> KnownRoute;

    /// Checks the counts, if it has any, against this node's `count_max`. What was taken under an id is answered with it
    /// whatever the limit is now: the entry that takes the numbers checks that.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if a count is 0, or greater than `count_max` without an id.
    fn check(&self, _config: &Config) -> Result<(), Refusal> {
        Ok(())
    }

    /// The only namespace that may answer it, if that is not any that has the name.
    fn meant(&self) -> Option<NamespaceId> {
        None
    }

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

    /// True if the caller has given it a name: numbers of a gapless key are taken once for it, however often it is
    /// carried out.
    fn has_id(&self) -> bool {
        self.id().is_some()
    }

    /// The name that the caller has given it.
    fn id(&self) -> Option<&MessageId> {
        None
    }

    /// How many bytes it holds while it waits, with the copy that is forwarded; without what many keys hold that wait in a
    /// term's memory.
    fn bytes(&self) -> usize;

    /// Answers it from a term's memory, on the `node` that leads. What many keys hold that have to wait is reserved there.
    ///
    /// # Errors
    /// What the request comes to otherwise.
    fn answer(
        &self, term: &Term, namespace: &Namespace, node: &NodeContext, deadline: Instant,
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

    /// The message that forwards it to the leader.
    fn to_forward(&self) -> Forward;

    /// The answer in the leader's reply; `None` if that is the answer to another kind of request.
    fn from_reply(reply: Reply) -> Option<Answered<Self::Answer>>;

    /// Notes in the leader's answer the namespace that it is of, if the leader was told to compare it with its own.
    fn note_namespace(_answer: &mut Self::Answer, _namespace: Option<NamespaceId>) {}
}

/// What all requests have alike, but for the reply that answers one.
macro_rules! answered_by {
    ($reply:ident) => {
        fn namespace(&self) -> &str {
            &self.namespace
        }

        fn known(&self) -> KnownRoute {
            self.known
        }

        fn from_reply(reply: Reply) -> Option<Answered<Self::Answer>> {
            match reply {
                Reply::$reply(answer) => Some(answer.into()),
                _ => None,
            }
        }
    };
}
pub(super) use answered_by;

impl SequenceRequest for Next {
    type Answer = Range;

    answered_by!(Next);

    fn check(&self, config: &Config) -> Result<(), Refusal> {
        check_count(self.count, count_max(self.has_id(), config))
    }

    fn numbers(&self) -> u64 {
        self.count
    }

    fn id(&self) -> Option<&MessageId> {
        self.id.as_ref()
    }

    fn bytes(&self) -> usize {
        let id = bytes_of(&self.id);
        2 * (size_of::<Self>() + self.namespace.len() + self.key.heap_bytes() + id)
            + WAITING_KEY_BYTES
    }

    async fn answer(
        &self, term: &Term, namespace: &Namespace, node: &NodeContext, deadline: Instant,
    ) -> Attempt<Range> {
        let key = self.key.as_key();
        check_kind(namespace, key)?;
        check_id(namespace, self.has_id())?;
        if !self.has_id() {
            check_count_of(namespace, &node.config, self.count)?;
        }
        let taken = match namespace.config.gapless {
            false => term.next(namespace, key, self.count, deadline).await,
            true => {
                let id = self.id.as_ref();
                // Boxed, as is every way that is seldom gone.
                Box::pin(term.next_gapless(namespace, key, self.count, id, deadline)).await
            }
        };
        taken.map_err(|error| match error {
            // The next leader knows.
            NextError::Unknown if self.has_id() => NoAnswer::Unknown,
            error => failed(error, namespace, term, self.count),
        })
    }

    fn to_forward(&self) -> Forward {
        Forward::Next(self.into())
    }
}

impl SequenceRequest for Current {
    type Answer = Option<u64>;

    answered_by!(Current);

    fn only_reads(&self) -> bool {
        true
    }

    fn bytes(&self) -> usize {
        2 * (size_of::<Self>() + self.namespace.len() + self.key.heap_bytes())
    }

    async fn answer(
        &self, term: &Term, namespace: &Namespace, _: &NodeContext, deadline: Instant,
    ) -> Attempt<Option<u64>> {
        let key = self.key.as_key();
        check_kind(namespace, key)?;
        let read = term.current(namespace, key, deadline).await;
        read.map_err(|error| failed(error, namespace, term, 0))
    }

    fn to_forward(&self) -> Forward {
        Forward::Current(self.into())
    }
}

impl SequenceRequest for NextMany {
    type Answer = ManyRanges;

    answered_by!(NextMany);

    fn meant(&self) -> Option<NamespaceId> {
        self.meant
    }

    fn keys(&self) -> usize {
        self.keys.len()
    }

    fn check(&self, config: &Config) -> Result<(), Refusal> {
        let most = count_max(self.has_id(), config);
        self.counts.iter().try_for_each(|&count| check_count(count, most))
    }

    fn numbers(&self) -> u64 {
        match self.counts.is_empty() {
            true => self.keys.len() as u64,
            false => self.counts.iter().sum(),
        }
    }

    fn id(&self) -> Option<&MessageId> {
        self.id.as_ref()
    }

    fn bytes(&self) -> usize {
        let counts = size_of_val(&self.counts[..]);
        let others = self.namespace.len() + self.keys.bytes() + bytes_of(&self.id);
        // The counts wait for the reply as well.
        2 * (size_of::<Self>() + others + counts) + counts
    }

    async fn answer(
        &self, term: &Term, namespace: &Namespace, node: &NodeContext, deadline: Instant,
    ) -> Attempt<ManyRanges> {
        // All are of one kind.
        check_kind(namespace, self.keys.at(0))?;
        check_id(namespace, self.has_id())?;
        let count = |place| self.counts.get(place).copied().unwrap_or(1);
        if namespace.config.gapless {
            return Box::pin(self.answer_gapless(term, namespace, node, deadline)).await;
        }
        let (given, refused) = within_count_max(&self.counts, namespace, &node.config);
        let at = |place: usize| given.as_ref().map_or(place, |given| given[place]);
        let keys = given.as_ref().map_or(self.keys.len(), Vec::len);
        let ask = |place| (self.keys.at(at(place)), count(at(place)));
        let mut waiting = WaitingKeys::new(&node.request_memory, &self.keys);
        let may_wait = |keys| waiting.add(keys);
        let taken = term.next_many(namespace, keys, ask, may_wait, deadline).await;
        let failed = |error| failed(error, namespace, term, self.numbers());
        let taken = taken.map_err(|error| error.no_answer(failed))?;
        Ok(many_ranges(namespace, taken, self.keys.len(), at, refused))
    }

    #[inline]
    fn rest(&self, answer: &ManyRanges) -> Option<NextMany> {
        match answer.refused.is_empty() {
            true => None,
            false => self.late(answer),
        }
    }

    fn add_rest(&self, answer: &mut ManyRanges, rest: Result<ManyRanges, Refusal>) {
        answer.add_late(rest);
    }

    fn numbers_in(&self, answer: &ManyRanges) -> u64 {
        numbers_of(&answer.firsts, &self.counts)
    }

    fn to_forward(&self) -> Forward {
        Forward::NextMany(self.into())
    }

    fn note_namespace(answer: &mut ManyRanges, namespace: Option<NamespaceId>) {
        answer.namespace = namespace;
    }
}

impl NextMany {
    /// As [`SequenceRequest::answer`], of a gapless namespace. The entry that takes the numbers refuses counts that are too
    /// large, unless an earlier try took them.
    async fn answer_gapless(
        &self, term: &Term, namespace: &Namespace, node: &NodeContext, deadline: Instant,
    ) -> Attempt<ManyRanges> {
        let keys = self.keys.len();
        let ask = |place| (self.keys.at(place), self.counts.get(place).copied().unwrap_or(1));
        let why = |place| check_count_of(namespace, &node.config, ask(place).1).err();
        match term.next_many_gapless(namespace, keys, ask, self.id.as_ref(), deadline).await {
            Ok(taken) => {
                let (now, before): (Vec<usize>, Vec<usize>) =
                    taken.too_large.iter().partition(|place| why(**place).is_some());
                let mut refused = Vec::new();
                for places in [before, now].into_iter().filter(|places| !places.is_empty()) {
                    let why = why(places[0]).unwrap_or_else(left_out);
                    let places = places.into_iter().map(|place| place as u32).collect();
                    refused.push(RefusedKeys { places, why });
                }
                Ok(many_ranges(namespace, taken, keys, |place| place, refused))
            }
            Err(NextError::Unknown) if self.has_id() => Err(NoAnswer::Unknown),
            Err(error) => Err(failed(error, namespace, term, self.numbers())),
        }
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

/// The most numbers of a key that a request may ask this node for.
fn count_max(has_id: bool, config: &Config) -> u64 {
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

fn bytes_of(id: &Option<MessageId>) -> usize {
    id.as_ref().map_or(0, |id| id.id.as_bytes().len())
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

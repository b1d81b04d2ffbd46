//! How each kind of request is checked, answered out of a term's memory, and carried to the leader.

use tokio::time::Instant;
use tonic::Status;

use super::{
    Config,
    leader_search::Attempt,
    request::{Answered, Current, Exhausted, ManyRanges, Next, NextMany},
    route::KnownRoute,
};
use crate::{
    allocator::{NextError, Term},
    proto::peer::{forward_reply::Reply, forward_request::Request as Forward},
    sequence::{Key, KeyKind, Namespace, Range},
};

/// A request that is answered out of the sequences of one namespace.
pub trait SequenceRequest: Send + Sync {
    /// What it is answered with.
    type Answer: Send;

    /// The namespace's name.
    fn namespace(&self) -> &str;

    /// The route that the caller knows.
    fn known(&self) -> KnownRoute;

    /// Checks the counts against this node's `count_max`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if a count is 0 or greater than `count_max`.
    fn check(&self, config: &Config) -> Result<(), Status>;

    /// How many numbers it asks for.
    fn numbers(&self) -> u64;

    /// How many bytes it holds while it waits, with the copy that is forwarded.
    fn bytes(&self) -> usize;

    /// Answers it from a term's memory.
    fn answer(
        &self,
        term: &Term,
        namespace: &Namespace,
        deadline: Instant,
    ) -> impl Future<Output = Attempt<Self::Answer>> + Send;

    /// The message that forwards it to the leader.
    fn to_forward(&self) -> Forward;

    /// The answer in the leader's reply; `None` if that is the answer to another kind of request.
    fn from_reply(reply: Reply) -> Option<Answered<Self::Answer>>;
}

impl SequenceRequest for Next {
    type Answer = Range;

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn known(&self) -> KnownRoute {
        self.known
    }

    fn check(&self, config: &Config) -> Result<(), Status> {
        check_count(self.count, config.count_max)
    }

    fn numbers(&self) -> u64 {
        self.count
    }

    fn bytes(&self) -> usize {
        2 * (size_of::<Self>() + self.namespace.len() + self.key.heap_bytes())
    }

    async fn answer(
        &self,
        term: &Term,
        namespace: &Namespace,
        deadline: Instant,
    ) -> Attempt<Range> {
        let key = self.key.as_key();
        if let Err(status) = check_kind(namespace, key) {
            return Attempt::Refused(status);
        }
        match term.next(namespace, key, self.count, deadline).await {
            Ok(range) => Attempt::Answered(range),
            Err(error) => failed(error, namespace, term, self.count),
        }
    }

    fn to_forward(&self) -> Forward {
        Forward::Next(self.into())
    }

    fn from_reply(reply: Reply) -> Option<Answered<Range>> {
        match reply {
            Reply::Next(answer) => Some(answer.into()),
            Reply::Current(_) | Reply::NextMany(_) | Reply::Error(_) | Reply::NotLeader(_) => None,
        }
    }
}

impl SequenceRequest for Current {
    type Answer = Option<u64>;

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn known(&self) -> KnownRoute {
        self.known
    }

    fn check(&self, _config: &Config) -> Result<(), Status> {
        Ok(())
    }

    fn numbers(&self) -> u64 {
        0
    }

    fn bytes(&self) -> usize {
        2 * (size_of::<Self>() + self.namespace.len() + self.key.heap_bytes())
    }

    async fn answer(
        &self,
        term: &Term,
        namespace: &Namespace,
        deadline: Instant,
    ) -> Attempt<Option<u64>> {
        let key = self.key.as_key();
        if let Err(status) = check_kind(namespace, key) {
            return Attempt::Refused(status);
        }
        match term.current(namespace, key, deadline).await {
            Ok(last) => Attempt::Answered(last),
            Err(error) => failed(error, namespace, term, 0),
        }
    }

    fn to_forward(&self) -> Forward {
        Forward::Current(self.into())
    }

    fn from_reply(reply: Reply) -> Option<Answered<Option<u64>>> {
        match reply {
            Reply::Current(answer) => Some(answer.into()),
            Reply::Next(_) | Reply::NextMany(_) | Reply::Error(_) | Reply::NotLeader(_) => None,
        }
    }
}

impl SequenceRequest for NextMany {
    type Answer = ManyRanges;

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn known(&self) -> KnownRoute {
        self.known
    }

    fn check(&self, config: &Config) -> Result<(), Status> {
        self.counts
            .iter()
            .try_for_each(|&count| check_count(count, config.count_max))
    }

    fn numbers(&self) -> u64 {
        match self.counts.is_empty() {
            true => self.keys.len() as u64,
            false => self.counts.iter().sum(),
        }
    }

    fn bytes(&self) -> usize {
        let counts = size_of_val(&self.counts[..]);
        2 * (size_of::<Self>() + self.namespace.len() + self.keys.bytes() + counts)
    }

    async fn answer(
        &self,
        term: &Term,
        namespace: &Namespace,
        deadline: Instant,
    ) -> Attempt<ManyRanges> {
        // All are of one kind.
        if let Err(status) = check_kind(namespace, self.keys.at(0)) {
            return Attempt::Refused(status);
        }
        let count = |place| self.counts.get(place).copied().unwrap_or(1);
        let ask = |place| (self.keys.at(place), count(place));
        let taken = term.next_many(namespace, self.keys.len(), ask, deadline);
        match taken.await {
            Ok(taken) => Attempt::Answered(ManyRanges {
                firsts: taken.firsts,
                increment: namespace.config.increment,
                exhausted: exhausted(namespace, &taken.exhausted),
            }),
            Err(error) => failed(error, namespace, term, 0),
        }
    }

    fn to_forward(&self) -> Forward {
        Forward::NextMany(self.into())
    }

    fn from_reply(reply: Reply) -> Option<Answered<ManyRanges>> {
        match reply {
            Reply::NextMany(answer) => Some(answer.into()),
            Reply::Next(_) | Reply::Current(_) | Reply::Error(_) | Reply::NotLeader(_) => None,
        }
    }
}

fn check_count(count: u64, most: u64) -> Result<(), Status> {
    if (1..=most).contains(&count) {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "count is {count}; it must lie between 1 and {most}"
    )))
}

/// Refuses a key that is not of the namespace's kind.
///
/// # Errors
/// INVALID_ARGUMENT, with what to give instead.
pub(super) fn check_kind(namespace: &Namespace, key: Key<'_>) -> Result<(), Status> {
    if key.kind() == namespace.config.key_kind {
        return Ok(());
    }
    let give = match namespace.config.key_kind {
        KeyKind::Id => "give an id (key.id)",
        KeyKind::Name => "give a name (key.name, ratchet next --name)",
    };
    Err(Status::invalid_argument(format!(
        "namespace {:?} takes keys of kind {}; {key} is of kind {}: {give}",
        namespace.config.name,
        namespace.config.key_kind,
        key.kind()
    )))
}

/// What an attempt comes to that failed with `error` in a term.
pub(super) fn failed<A>(
    error: NextError,
    namespace: &Namespace,
    term: &Term,
    count: u64,
) -> Attempt<A> {
    Attempt::Refused(match error {
        NextError::NotLeading => return Attempt::Unanswered,
        NextError::Exhausted { left } => Status::out_of_range(format!(
            "count is {count}: only {left} numbers are left below {}",
            end_of(namespace)
        )),
        NextError::DeadlineExceeded => Status::deadline_exceeded(format!(
            "namespace {:?}: the deadline passed while the ceiling was being raised, or read, in term {}",
            namespace.config.name,
            term.term()
        )),
        NextError::Store(error) => Status::internal(error.to_string()),
    })
}

/// The places of a request whose numbers are used up, and how many numbers each has left.
fn exhausted(namespace: &Namespace, exhausted: &[(usize, u64)]) -> Option<Exhausted> {
    if exhausted.is_empty() {
        return None;
    }
    Some(Exhausted {
        places: exhausted.iter().map(|(place, _)| *place as u32).collect(),
        left: exhausted.iter().map(|(_, left)| *left).collect(),
        why: Status::out_of_range(format!(
            "fewer numbers than were asked for are left below {}",
            end_of(namespace)
        )),
    })
}

fn end_of(namespace: &Namespace) -> String {
    let config = &namespace.config;
    format!(
        "max {} of namespace {:?}; ask for fewer, or raise it with: ratchet namespace update {} --max N",
        config.max, config.name, config.name
    )
}

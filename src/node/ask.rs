//! What can be asked of a key's sequence, one kind of message each: how it is checked, answered out of a
//! term's memory, and carried to the leader.

use tokio::time::Instant;
use tonic::Status;

use super::{Config, forward::Forwarded};
use crate::{
    allocator::{NextError, Term},
    proto::{
        peer::forward_request::Request as Forward,
        v1::{
            CurrentRequest, CurrentResponse, Exhausted, Key as WireKey, NextRequest, NextResponse,
            NextStreamRequest, NextStreamResponse, Route, key::Kind,
        },
    },
    sequence::{InvalidKey, Key, KeyKind, Namespace},
};

/// How many keys a message has at most.
const MESSAGE_KEYS_MAX: usize = 65_536;

/// Why a term did not answer.
#[derive(Debug)]
pub enum Unanswered {
    /// The term is over, or its lease has run out for now: ask the leader, whoever that is.
    NotLeading,
    /// This is the answer.
    Status(Status),
}

impl From<Status> for Unanswered {
    fn from(status: Status) -> Self {
        Unanswered::Status(status)
    }
}

/// A request that is answered out of sequences, as it travels.
pub trait Message: Clone + Send + Sync {
    /// What it is answered with.
    type Answer: Send;

    /// The namespace.
    fn namespace(&self) -> &str;
    /// The route's version that the caller knows.
    fn route_version(&self) -> u64;
    /// The members' version that the caller knows; `None` if it does not want to be told.
    fn members_version(&self) -> Option<u64>;
    /// Adds the route to an answer.
    fn set_route(answer: &mut Self::Answer, route: Route);
    /// The message that forwards it.
    fn forward(self) -> Forward;
    /// Its answer in the leader's reply.
    fn forwarded(reply: Forwarded) -> Option<Self::Answer>;
}

/// A request that is answered out of sequences.
pub trait Ask: Message {
    /// Refuses what no leader could answer.
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    fn check(&self, config: &Config) -> Result<(), Status>;

    /// How many bytes it holds while it waits, with the copy that is forwarded.
    fn bytes(&self) -> usize;

    /// Answers it from a term's memory.
    ///
    /// # Errors
    /// [`Unanswered`].
    fn answer(
        &self,
        term: &Term,
        namespace: &Namespace,
        deadline: Instant,
    ) -> impl Future<Output = Result<Self::Answer, Unanswered>> + Send;
}

macro_rules! messages {
    ($($request:ident => $answer:ident, $variant:ident;)*) => {
        $(impl Message for $request {
            type Answer = $answer;

            fn namespace(&self) -> &str {
                &self.namespace
            }

            fn route_version(&self) -> u64 {
                self.route_version
            }

            fn members_version(&self) -> Option<u64> {
                self.members_version
            }

            fn set_route(answer: &mut $answer, route: Route) {
                answer.route = Some(route);
            }

            fn forward(self) -> Forward {
                Forward::$variant(self)
            }

            fn forwarded(reply: Forwarded) -> Option<$answer> {
                match reply {
                    Forwarded::$variant(answer) => Some(answer),
                    _ => None,
                }
            }
        })*
    };
}

messages! {
    NextRequest => NextResponse, Next;
    NextStreamRequest => NextStreamResponse, NextMany;
    CurrentRequest => CurrentResponse, Current;
}

impl Ask for NextRequest {
    fn check(&self, config: &Config) -> Result<(), Status> {
        check_count(self.count.unwrap_or(1), config.count_max)?;
        key_of(self.key.as_ref()).map(drop)
    }

    fn bytes(&self) -> usize {
        2 * (size_of::<Self>() + self.namespace.len() + name_bytes(self.key.as_ref()))
    }

    async fn answer(
        &self,
        term: &Term,
        namespace: &Namespace,
        deadline: Instant,
    ) -> Result<NextResponse, Unanswered> {
        let key = key_for(namespace, self.key.as_ref())?;
        let count = self.count.unwrap_or(1);
        let range = term.next(namespace, key, count, deadline).await;
        let range = range.map_err(|error| unanswered(error, namespace, term, count))?;
        Ok(NextResponse {
            first: range.first,
            last: range.last,
            increment: range.increment,
            route: None,
        })
    }
}

impl Ask for CurrentRequest {
    fn check(&self, _config: &Config) -> Result<(), Status> {
        key_of(self.key.as_ref()).map(drop)
    }

    fn bytes(&self) -> usize {
        2 * (size_of::<Self>() + self.namespace.len() + name_bytes(self.key.as_ref()))
    }

    async fn answer(
        &self,
        term: &Term,
        namespace: &Namespace,
        deadline: Instant,
    ) -> Result<CurrentResponse, Unanswered> {
        let key = key_for(namespace, self.key.as_ref())?;
        let last = term.current(namespace, key, deadline).await;
        let last = last.map_err(|error| unanswered(error, namespace, term, 0))?;
        Ok(CurrentResponse { last, route: None })
    }
}

impl Ask for NextStreamRequest {
    fn check(&self, config: &Config) -> Result<(), Status> {
        let (ids, names, counts) = (self.ids.len(), self.names.len(), self.counts.len());
        let keys = ids + names;
        if keys == 0 || keys > MESSAGE_KEYS_MAX || (ids > 0 && names > 0) {
            return Err(Status::invalid_argument(format!(
                "the message has {ids} ids and {names} names; give between 1 and \
                 {MESSAGE_KEYS_MAX} keys, all of one kind"
            )));
        }
        if counts != 0 && counts != keys {
            return Err(Status::invalid_argument(format!(
                "the message has {keys} keys and {counts} counts; give a count for each key, or none \
                 at all for one number of each"
            )));
        }
        for &count in &self.counts {
            check_count(count, config.count_max)?;
        }
        self.names
            .iter()
            .try_for_each(|name| Key::name(name).map(drop).map_err(invalid_key))
    }

    fn bytes(&self) -> usize {
        let names: usize = self
            .names
            .iter()
            .map(|name| size_of_val(name) + name.len())
            .sum();
        let numbers = 8 * (self.ids.len() + self.counts.len());
        2 * (size_of::<Self>() + self.namespace.len() + names + numbers)
    }

    async fn answer(
        &self,
        term: &Term,
        namespace: &Namespace,
        deadline: Instant,
    ) -> Result<NextStreamResponse, Unanswered> {
        // All are of one kind.
        check_kind(namespace, self.key(0))?;
        let count = |place| self.counts.get(place).copied().unwrap_or(1);
        let ask = |place| (self.key(place), count(place));
        let keys = self.ids.len() + self.names.len();
        let granted = term.next_many(namespace, keys, ask, deadline).await;
        let granted = granted.map_err(|error| unanswered(error, namespace, term, 0))?;
        let exhausted = granted.exhausted;
        Ok(NextStreamResponse {
            id: self.id,
            firsts: granted.firsts,
            increment: namespace.config.increment,
            exhausted: (!exhausted.is_empty()).then(|| all_used_up(namespace, &exhausted)),
            failure: None,
            route: None,
        })
    }
}

impl NextStreamRequest {
    fn key(&self, place: usize) -> Key<'_> {
        match self.ids.get(place) {
            Some(&id) => Key::Id(id),
            None => Key::Name(&self.names[place]),
        }
    }
}

fn name_bytes(key: Option<&WireKey>) -> usize {
    match key.and_then(|key| key.kind.as_ref()) {
        Some(Kind::Name(name)) => name.len(),
        Some(Kind::Id(_)) | None => 0,
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

fn invalid_key(invalid: InvalidKey) -> Status {
    Status::invalid_argument(invalid.to_string())
}

/// A key as it came over the wire.
fn key_of(key: Option<&WireKey>) -> Result<Key<'_>, Status> {
    match key.and_then(|key| key.kind.as_ref()) {
        Some(Kind::Id(id)) => Ok(Key::Id(*id)),
        Some(Kind::Name(name)) => Key::name(name).map_err(invalid_key),
        None => Err(Status::invalid_argument(
            "the key is missing; give key.id (an unsigned 64-bit integer) or key.name (bytes)",
        )),
    }
}

/// The key, if it is of the namespace's kind.
fn key_for<'k>(namespace: &Namespace, key: Option<&'k WireKey>) -> Result<Key<'k>, Status> {
    let key = key_of(key)?;
    check_kind(namespace, key).map(|()| key)
}

/// Refuses a key that is not of the namespace's kind.
fn check_kind(namespace: &Namespace, key: Key<'_>) -> Result<(), Status> {
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

fn unanswered(error: NextError, namespace: &Namespace, term: &Term, count: u64) -> Unanswered {
    match error {
        NextError::NotLeading => Unanswered::NotLeading,
        NextError::Exhausted { left } => used_up(namespace, count, left).into(),
        NextError::DeadlineExceeded => Status::deadline_exceeded(format!(
            "namespace {:?}: the deadline passed while the ceiling was being raised, or read, in term {}",
            namespace.config.name,
            term.term()
        ))
        .into(),
        NextError::Store(error) => Status::internal(error.to_string()).into(),
    }
}

fn used_up(namespace: &Namespace, count: u64, left: u64) -> Status {
    Status::out_of_range(format!(
        "count is {count}: only {left} numbers are left below {}",
        end_of(namespace)
    ))
}

/// The places of a message whose numbers are used up, and how many each has left. One text serves all
/// of them: a message has up to 65 536.
fn all_used_up(namespace: &Namespace, exhausted: &[(usize, u64)]) -> Exhausted {
    let why = Status::out_of_range(format!(
        "fewer numbers than were asked for are left below {}",
        end_of(namespace)
    ));
    Exhausted {
        places: exhausted.iter().map(|(place, _)| *place as u32).collect(),
        left: exhausted.iter().map(|(_, left)| *left).collect(),
        failure: Some((&why).into()),
    }
}

fn end_of(namespace: &Namespace) -> String {
    let config = &namespace.config;
    format!(
        "max {} of namespace {:?}; ask for fewer, or raise it with: ratchet namespace update {} --max N",
        config.max, config.name, config.name
    )
}

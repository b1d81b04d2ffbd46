//! Requests that raise the floors of keys: how they are checked, answered out of a term's memory, and carried.
//!
//! Invariant: all of a request is checked before any floor is raised.

use tokio::time::Instant;

use super::{
    NodeContext,
    formats::counts_orders,
    leader_search::Attempt,
    request::{Answered, Keys},
    route::KnownRoute,
    sequence_request::{SequenceRequest, answered_by, check_kind, failed},
    waiting_keys::WaitingKeys,
};
use crate::{
    allocator::{FloorOf, RaiseOf, Raised, Term, WAITING_KEY_BYTES},
    proto::{
        Refusal,
        peer::{forward_reply::Reply, forward_request::Request as Forward},
        refusal,
    },
    sequence::{Key, Namespace, OwnedKey},
};

/// A key whose floor is to be raised. Answered with [`Raised`].
#[derive(Debug, Clone)]
pub struct Raise {
    /// The namespace's name.
    pub namespace: String,
    /// The key.
    pub key: OwnedKey,
    /// Every number that is handed out later is greater.
    pub at_least: u64,
    /// The route that the caller knows.
    pub known: KnownRoute,
}

/// Many keys of one namespace whose floors are to be raised, or those of their sections. Answered with the floors in force.
#[derive(Debug, Clone)]
pub struct RaiseMany {
    pub(super) namespace: String,
    pub(super) keys: Keys,
    pub(super) at_least: Vec<u64>,
    pub(super) of: FloorOf,
    pub(super) known: KnownRoute,
}

/// The last numbers of many keys of one namespace. Answered with those numbers, 0 before the first one.
#[derive(Debug, Clone)]
pub struct CurrentMany {
    pub(super) namespace: String,
    pub(super) keys: Keys,
    pub(super) known: KnownRoute,
}

impl RaiseMany {
    /// A request to raise each of `keys`, or of their sections, to the number at its place.
    ///
    /// # Errors
    /// INVALID_ARGUMENT unless there are 1 to `REQUEST_KEYS_MAX` keys, each name has 1 to 256 bytes, and there are as
    /// many floors as keys.
    pub fn new(
        namespace: String, keys: Keys, at_least: Vec<u64>, of: FloorOf, known: KnownRoute,
    ) -> Result<Self, Refusal> {
        keys.check()?;
        let (asked, given) = (keys.len(), at_least.len());
        if asked != given {
            return Err(refusal!(
                InvalidRequest,
                "the message has {asked} keys and {given} floors (at_least); give one for each key"
            ));
        }
        Ok(RaiseMany { namespace, keys, at_least, of, known })
    }
}

impl CurrentMany {
    /// A request for the last numbers of `keys`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT unless there are 1 to `REQUEST_KEYS_MAX` keys, and each name has 1 to 256 bytes.
    pub fn new(namespace: String, keys: Keys, known: KnownRoute) -> Result<Self, Refusal> {
        keys.check()?;
        Ok(CurrentMany { namespace, keys, known })
    }
}

/// How many bytes a request for many keys holds while it waits, with the copy that is forwarded.
fn bytes_of_many<R>(namespace: &str, keys: &Keys) -> usize {
    // What is asked of each key, or which keys are looked up in the table, and the answers.
    let each = 2 * size_of::<u64>();
    2 * (size_of::<R>() + namespace.len() + keys.bytes()) + keys.len() * each
}

/// Refuses a gapless namespace: a floor passes over numbers.
fn check_gaps(namespace: &Namespace) -> Result<(), Refusal> {
    let config = &namespace.config;
    match config.gapless {
        false => Ok(()),
        true => Err(refusal!(
            WrongState,
            "namespace {:?} is gapless, and a raised floor leaves a gap; create the namespace with a start above the \
             numbers that are in use",
            config.name
        )),
    }
}

/// Refuses to raise sections of a namespace whose keys do not share them.
fn check_sections(namespace: &Namespace, of: FloorOf) -> Result<(), Refusal> {
    let config = &namespace.config;
    match of {
        FloorOf::Section if !config.shares_sections() => Err(refusal!(
            WrongState,
            "each key of namespace {:?} has a section of its own (section_size 1); raise the keys instead",
            config.name
        )),
        FloorOf::Section | FloorOf::Key => Ok(()),
    }
}

/// Why a key's floor cannot be `at_least`, if it cannot.
fn check_floor(namespace: &Namespace, key: Key<'_>, at_least: u64) -> Result<(), String> {
    let config = &namespace.config;
    if (1..=config.max).contains(&at_least) {
        return Ok(());
    }
    Err(format!(
        "the floor of key {key} is {at_least}; it must lie between 1 and {}, the max of namespace {:?}",
        config.max, config.name
    ))
}

impl SequenceRequest for Raise {
    type Answer = Raised;

    answered_by!(Raise);

    fn fits_ids(&self, format: &str) -> bool {
        counts_orders(format)
    }

    fn bytes(&self) -> usize {
        2 * (size_of::<Self>() + self.namespace.len() + self.key.heap_bytes()) + WAITING_KEY_BYTES
    }

    async fn answer(
        &self, term: &Term, namespace: &Namespace, _: &NodeContext, deadline: Instant,
    ) -> Attempt<Raised> {
        let key = self.key.as_key();
        check_kind(namespace, key)?;
        check_gaps(namespace)?;
        check_floor(namespace, key, self.at_least)
            .map_err(|why| refusal!(NumbersExhausted, "{why}"))?;
        let raised = term.raise(namespace, key, self.at_least, deadline).await;
        raised.map_err(|error| failed(error, namespace, term, 0))
    }

    fn to_forward(&self) -> Forward {
        Forward::Raise(self.into())
    }
}

impl SequenceRequest for RaiseMany {
    type Answer = Vec<u64>;

    answered_by!(RaiseMany);

    fn keys(&self) -> usize {
        self.keys.len()
    }

    fn fits_ids(&self, format: &str) -> bool {
        counts_orders(format)
    }

    fn bytes(&self) -> usize {
        bytes_of_many::<Self>(&self.namespace, &self.keys)
    }

    async fn answer(
        &self, term: &Term, namespace: &Namespace, node: &NodeContext, deadline: Instant,
    ) -> Attempt<Vec<u64>> {
        // All are of one kind.
        check_kind(namespace, self.keys.at(0))?;
        check_gaps(namespace)?;
        check_sections(namespace, self.of)?;
        for (place, at_least) in self.at_least.iter().enumerate() {
            check_floor(namespace, self.keys.at(place), *at_least)
                .map_err(|why| refusal!(NumbersExhausted, "place {place}: {why}"))?;
        }
        let of = |place: usize| match (self.of, self.keys.at(place)) {
            (FloorOf::Section, Key::Id(id)) => RaiseOf::SectionOf(id),
            // Names share no sections: they were refused.
            (FloorOf::Key, key) | (FloorOf::Section, key @ Key::Name(_)) => RaiseOf::Key(key),
        };
        let ask = |place: usize| (of(place), self.at_least[place]);
        let mut waiting = WaitingKeys::new(&node.request_memory, &self.keys);
        let may_wait = |keys| waiting.add(keys);
        let raised = term.raise_many(namespace, self.keys.len(), ask, may_wait, deadline);
        let failed = |error| failed(error, namespace, term, 0);
        raised.await.map_err(|error| error.no_answer(failed))
    }

    fn to_forward(&self) -> Forward {
        // A variant of its own: a leader that does not raise sections must not take their ids for keys.
        match self.of {
            FloorOf::Key => Forward::RaiseMany(self.into()),
            FloorOf::Section => Forward::RaiseSections(self.into()),
        }
    }
}

impl SequenceRequest for CurrentMany {
    type Answer = LastNumbers;

    answered_by!(CurrentMany);

    fn only_reads(&self) -> bool {
        true
    }

    fn keys(&self) -> usize {
        self.keys.len()
    }

    fn bytes(&self) -> usize {
        bytes_of_many::<Self>(&self.namespace, &self.keys)
    }

    async fn answer(
        &self, term: &Term, namespace: &Namespace, _: &NodeContext, deadline: Instant,
    ) -> Attempt<LastNumbers> {
        // All are of one kind.
        check_kind(namespace, self.keys.at(0))?;
        let key = |place: usize| self.keys.at(place);
        let read = term.current_many(namespace, self.keys.len(), key, deadline);
        read.await.map(LastNumbers).map_err(|error| failed(error, namespace, term, 0))
    }

    fn to_forward(&self) -> Forward {
        Forward::CurrentMany(self.into())
    }
}

/// The last numbers of keys, in their order; 0 for one that has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastNumbers(pub Vec<u64>);

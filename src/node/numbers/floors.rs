//! Requests that raise the floors of keys: how they are checked, answered out of a term's memory, and carried.
//!
//! Invariant: all of a request is checked before any floor is raised.

use tokio::time::Instant;

use super::sequence_request::{Limits, SequenceRequest, bytes_of_many, of_namespace};
use crate::{
    allocator::{FloorOf, SECTION_COUNTS, Term, WAITING_KEY_BYTES},
    node::{
        formats::counts_orders,
        members::KnownRoute,
        requests::{
            checks::check_kind,
            keys::{Keys, heap_bytes, key_of},
            refused::failed,
            waiting_keys::{WaitingKeys, no_answer},
        },
        way::attempt::Attempt,
    },
    proto::{
        Refusal, refusal, refuse,
        v1::{
            RaiseManyRequest, RaiseManyResponse, RaiseRequest, RaiseResponse, RaiseSectionsRequest,
            Route,
        },
    },
    sequence::{Key, MessageId, Namespace, NamespaceConfig},
};

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
        // Names never do.
        FloorOf::Section if !config.shares_sections() => Err(refusal!(
            WrongState,
            "each key of namespace {:?} has a section of its own (section_size 1); raise the keys instead",
            config.name
        )),
        FloorOf::Section | FloorOf::Key => Ok(()),
    }
}

/// Refuses a namespace that does not tell new keys from others, or whose numbers do not begin right above 0.
fn check_new(namespace: &Namespace) -> Result<(), Refusal> {
    let config = &namespace.config;
    if config.shares_sections() {
        refuse!(
            WrongState,
            "keys of namespace {:?} share sections (section_size {}): after a crash nobody knows whether one had a number, so \
             that none can be raised only if it is new; raise it to 1 or more, whether it is new or not",
            config.name,
            config.section_size
        );
    }
    match config.start == config.increment || begins_above_lost_numbers(namespace) {
        true => Ok(()),
        false => Err(refusal!(
            WrongState,
            "numbers of namespace {:?} begin with start {}, and not with increment {}, so that no key can be raised only if it \
             is new; raise it to 1 or more, whether it is new or not",
            config.name,
            config.start,
            config.increment
        )),
    }
}

/// Whether the namespace begins where it does, and not with `increment`, because numbers below may have been handed out: before
/// a recovery, or by a namespace of this name that was deleted. Nobody knows which keys had them: there no key counts as new.
fn begins_above_lost_numbers(namespace: &Namespace) -> bool {
    let NamespaceConfig { start, increment, .. } = namespace.config;
    start != increment && namespace.floor > 0 && start.saturating_sub(increment) <= namespace.floor
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

/// Whether a key is new: it never had a number, and was never raised. If it may have had one that was lost, it is not new, and
/// its floor is that of the namespace. A floor from `start` on is above all that was lost, and raises such a key.
///
/// # Errors
/// Those of [`Term::current`].
async fn newness(
    term: &Term, namespace: &Namespace, key: Key<'_>, deadline: Instant,
) -> Attempt<RaiseResponse> {
    let last = term.current(namespace, key, deadline).await;
    let last = last.map_err(|why| failed(why, namespace, term, 0))?;
    let raised = last.is_none() && !begins_above_lost_numbers(namespace);
    Ok(RaiseResponse { floor: last.unwrap_or(namespace.floor), raised, route: None })
}

/// Why a new key is not raised below its first number.
fn leaves_no_trace(namespace: &Namespace, key: Key<'_>, at_least: u64) -> Refusal {
    let NamespaceConfig { name, start, .. } = &namespace.config;
    refusal!(
        NumbersExhausted,
        "a floor of {at_least} would leave no trace at key {key}: the first number in namespace {name:?} is {start}, and the \
         next caller would find the key new, too; raise it to {start} or more, or to 0 to ask whether it is new"
    )
}

impl SequenceRequest for RaiseRequest {
    of_namespace!();

    fn numbers(&self) -> u64 {
        0
    }

    fn check(&self) -> Result<Option<MessageId>, Refusal> {
        key_of(&self.key).map(|_| None)
    }

    fn fits_ids(&self, format: &str) -> bool {
        counts_orders(format)
    }

    fn bytes(&self) -> usize {
        2 * (size_of::<Self>() + self.namespace.len() + heap_bytes(&self.key)) + WAITING_KEY_BYTES
    }

    async fn answer(
        &self, _: Option<&MessageId>, term: &Term, namespace: &Namespace, _: Limits<'_>,
        deadline: Instant,
    ) -> Attempt<RaiseResponse> {
        let key = key_of(&self.key)?;
        check_kind(namespace, key)?;
        if self.only_if_new {
            check_new(namespace)?;
            if self.at_least == 0 {
                return newness(term, namespace, key, deadline).await;
            }
        }
        check_gaps(namespace)?;
        check_floor(namespace, key, self.at_least)
            .map_err(|why| refusal!(NumbersExhausted, "{why}"))?;
        let raised = match self.only_if_new {
            false => term.raise(namespace, key, self.at_least, deadline).await,
            true if self.at_least < namespace.config.start => {
                let known = newness(term, namespace, key, deadline).await?;
                return match known.raised {
                    true => Err(leaves_no_trace(namespace, key, self.at_least).into()),
                    false => Ok(known),
                };
            }
            true => term.raise_new(namespace, key, self.at_least, deadline).await,
        };
        let raised = raised.map_err(|why| failed(why, namespace, term, 0))?;
        Ok(RaiseResponse { floor: raised.floor, raised: raised.is_higher, route: None })
    }
}

/// The floors that a message asks for.
#[derive(Clone, Copy)]
struct Floors<'a> {
    keys: Keys<'a>,
    at_least: &'a [u64],
    of: FloorOf,
}

impl Floors<'_> {
    /// Checks that there is one for each key.
    fn check(self) -> Result<(), Refusal> {
        let (asked, given) = (self.keys.len(), self.at_least.len());
        match asked == given {
            true => Ok(()),
            false => Err(refusal!(
                InvalidRequest,
                "the message has {asked} keys and {given} floors (at_least); give one for each key"
            )),
        }
    }

    /// Raises each of the keys, or of their sections, to the number at its place.
    async fn raise(
        self, term: &Term, namespace: &Namespace, limits: Limits<'_>, deadline: Instant,
    ) -> Attempt<RaiseManyResponse> {
        // All are of one kind.
        check_kind(namespace, self.keys.at(0))?;
        check_gaps(namespace)?;
        check_sections(namespace, self.of)?;
        for (place, at_least) in self.at_least.iter().enumerate() {
            check_floor(namespace, self.keys.at(place), *at_least)
                .map_err(|why| refusal!(NumbersExhausted, "place {place}: {why}"))?;
        }
        let ask = |place: usize| (self.keys.at(place), self.at_least[place]);
        let mut waiting = WaitingKeys::new(limits.memory, self.keys);
        let (floors, may_wait) = ((self.of, self.keys.len()), |keys| waiting.add(keys));
        let raised = term.raise_many(namespace, floors, ask, may_wait, deadline).await;
        let failed = |why| failed(why, namespace, term, 0);
        let floors = raised.map_err(|(why, may_be)| no_answer(why, may_be, failed))?;
        Ok(RaiseManyResponse { floors, route: None })
    }
}

/// The messages that raise the floors of many keys, or of sections. A row has the message, the kind of its floors, and its
/// names. Sections are ids, and have a message of their own: a leader that does not raise sections must not take their ids for
/// keys.
macro_rules! raise_many {
    ($($message:ident, $of:ident, |$self:ident| $names:expr;)*) => {
        $(impl SequenceRequest for $message {
            of_namespace!();

            fn numbers(&self) -> u64 {
                0
            }

            fn check(&$self) -> Result<Option<MessageId>, Refusal> {
                let keys = Keys::checked(&$self.ids, $names)?;
                Floors { keys, at_least: &$self.at_least, of: FloorOf::$of }.check()?;
                Ok(None)
            }

            fn keys(&$self) -> usize {
                Keys::of(&$self.ids, $names).len()
            }

            fn cost(&$self) -> usize {
                match FloorOf::$of {
                    FloorOf::Key => $self.keys(),
                    FloorOf::Section => SECTION_COUNTS * $self.keys(),
                }
            }

            fn fits_ids(&self, format: &str) -> bool {
                counts_orders(format)
            }

            fn bytes(&$self) -> usize {
                bytes_of_many::<Self>(&$self.namespace, Keys::of(&$self.ids, $names))
            }

            async fn answer(
                &$self, _: Option<&MessageId>, term: &Term, namespace: &Namespace,
                limits: Limits<'_>, deadline: Instant,
            ) -> Attempt<RaiseManyResponse> {
                let keys = Keys::of(&$self.ids, $names);
                let floors = Floors { keys, at_least: &$self.at_least, of: FloorOf::$of };
                floors.raise(term, namespace, limits, deadline).await
            }
        })*
    };
}

raise_many! {
    RaiseManyRequest, Key, |self| &self.names;
    RaiseSectionsRequest, Section, |self| &[];
}

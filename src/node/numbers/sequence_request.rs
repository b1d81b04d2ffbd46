//! A request of a sequence: what each kind of them says of itself, and how it is answered out of a term's memory. A request is
//! a message of the public API, and so is its answer.

use std::sync::Arc;

use tokio::time::Instant;

use crate::{
    allocator::Term,
    node::{
        Config, access::Guarded, members::KnownRoute, request_memory::RequestMemory,
        requests::keys::Keys, settings::COUNT_MAX_MAX, way::attempt::Attempt,
    },
    proto::{
        Operation, Refusal,
        v1::{Reason, Route},
    },
    sequence::{MessageId, Namespace},
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

    /// How many numbers of each key are burnt if its answer is lost, or one of each if there are no counts. `None`: none, since
    /// what was taken under a request id is given to a caller that asks again.
    fn counts_to_burn(&self) -> Option<Vec<u64>> {
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

/// The most numbers of a key that a request may ask this node for. Numbers that were taken under an id are the answer to it,
/// whatever the limit is now: the entry that takes the numbers checks that.
pub(super) fn count_max(has_id: bool, config: &Config) -> u64 {
    if has_id { COUNT_MAX_MAX } else { config.count_max }
}

/// How many bytes a request id has.
pub(super) fn bytes_of(request_id: Option<&[u8]>) -> usize {
    request_id.map_or(0, <[u8]>::len)
}

/// How many bytes a message of many keys holds while it waits, with the copy that is forwarded.
pub(super) fn bytes_of_many<R>(namespace: &str, keys: Keys<'_>) -> usize {
    // The floors that are asked for, or the keys that are looked up in the table, and the answers.
    let each = 2 * size_of::<u64>();
    2 * (size_of::<R>() + namespace.len() + keys.bytes()) + keys.len() * each
}

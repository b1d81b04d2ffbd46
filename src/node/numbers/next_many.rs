//! Requests for the next numbers of many keys, gapless ones or others.

use tokio::time::Instant;

use super::{
    forward_request::numbers_of,
    sequence_request::{Limits, SequenceRequest, bytes_of, of_namespace},
};
use crate::{
    allocator::{RefusedPlaces, Term, Why},
    node::{
        members::KnownRoute,
        requests::{
            checks::{check_count, check_count_of, check_kind},
            keys::Keys,
            late_keys::{add_late, late},
            refused::{failed, failed_under},
            refused_keys::{many_ranges, refused, within_count_max},
            request_id::{check_id, message_id},
            waiting_keys::{WaitingKeys, no_answer},
        },
        way::attempt::Attempt,
    },
    proto::{
        Refusal, refuse,
        v1::{Failure, NextManyRequest, NextManyResponse, Reason, Route},
    },
    sequence::{MessageId, Namespace},
};

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

    fn counts_to_burn(&self) -> Option<Vec<u64>> {
        self.request_id.is_none().then(|| self.counts.clone())
    }

    fn firsts(answer: &NextManyResponse) -> &[u64] {
        &answer.firsts
    }
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

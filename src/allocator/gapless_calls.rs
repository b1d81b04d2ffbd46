//! Calls for numbers of gapless keys.
//!
//! A call is inside the term's gate while it waits. If its caller goes, its entry may still be under way when the gate
//! is empty: it is applied before the term's last entry, or refused after it. Either way nothing is left to hand over.

use tokio::{sync::oneshot, time::Instant};

use super::{
    gapless::{Call, Given, NotTaken, Refused},
    held::{Delivery, Held},
    next_error::NextError,
    next_many::NextMany,
    term::Term,
};
use crate::{
    planted_bugs::{Bug, is_planted},
    sequence::{Key, MessageId, MessagePart, Namespace, PartId, Range, SectionKey, Take},
};

/// How many keys of a message are taken by one entry. The next ones follow once those are answered.
const PART_TAKES_MAX: usize = 1_024;

impl Term {
    /// Takes the next `count` (at least 1) numbers of a gapless key. If the message has an `id` that is known, answers the
    /// numbers of its first try.
    ///
    /// # Errors
    /// [`NextError::NotLeading`] if nothing was taken, [`NextError::Unknown`] or [`NextError::DeadlineExceeded`] if that
    /// is not known, [`NextError::Exhausted`] if too few numbers are left, [`NextError::OverQuota`] for a key beyond the
    /// quota, [`NextError::Reused`], [`NextError::IdsFull`] and [`NextError::IdExpired`] for the request id.
    pub async fn next_gapless(
        &self, namespace: &Namespace, key: Key<'_>, count: u64, id: Option<&MessageId>,
        deadline: Instant,
    ) -> Result<Range, NextError> {
        let _inside = self.enter()?;
        let takes = vec![Take { section: namespace.section_of(key).key, count }];
        let part = message_part(namespace, id, 0, takes);
        let mut given = self.take_gapless(part, deadline).await?;
        let given = given.pop().ok_or(NextError::Unknown)?;
        let (taken, numbers) = given.accept_counted();
        let range = taken.map_err(NextError::from)?;
        self.metrics().numbers.inc_by(numbers);
        self.metrics().answers.inc();
        self.hot_keys().note(namespace, key, count);
        Ok(range)
    }

    /// Takes numbers of many gapless keys, as [`Term::next_many`] does of others: `ask` tells the key at a place and its
    /// count. If the message has an `id`, each part of it that an earlier try took is answered as then. Otherwise the keys
    /// whose counts are not `is_allowed` are left out.
    ///
    /// A handover waits for what was proposed. If the term ends meanwhile, a message without an id gets none of the keys whose
    /// turn is still to come ([`NextMany::late`]): what the others were given would be a gap if nobody got it.
    ///
    /// # Errors
    /// As [`Term::next_gapless`], for all keys together, but for exhausted keys. [`NextError::Unknown`] also if some keys
    /// were given numbers. Without an id, these are lost then.
    pub async fn next_many_gapless<'k>(
        &self, namespace: &Namespace, keys: usize, ask: impl Fn(usize) -> (Key<'k>, u64),
        is_allowed: impl Fn(u64) -> bool, id: Option<&MessageId>, deadline: Instant,
    ) -> Result<NextMany, NextError> {
        let _inside = self.enter()?;
        let mut answer = NextMany { firsts: vec![0; keys], ..NextMany::default() };
        // If a later part fails, or the caller leaves, nobody gets these.
        let mut held = Held::new(self.metrics(), 0);
        let places = (0..keys).step_by(PART_TAKES_MAX);
        let has_id = id.is_some();
        for (number, place) in places.enumerate() {
            let part = |places: &[usize]| {
                let takes = places.iter().map(|place| {
                    let (key, count) = ask(*place);
                    Take { section: namespace.section_of(key).key, count }
                });
                message_part(namespace, id, number as u32, takes.collect())
            };
            let places: Vec<usize> = (place..keys.min(place + PART_TAKES_MAX)).collect();
            let counts = (|place| ask(place).1, &is_allowed);
            let (given, left_out) = match self.take_part(&places, part, counts, deadline).await {
                // Nothing was taken of it. With an id, the next leader answers the parts before alike, and takes the others.
                Err(NextError::NotLeading) if place > 0 && !has_id => {
                    answer.late.extend(place..keys);
                    break;
                }
                Err(NextError::DeadlineExceeded) => return Err(NextError::DeadlineExceeded),
                // The parts before were taken.
                Err(_) if place > 0 => return Err(NextError::Unknown),
                given => given?,
            };
            for (place, given) in given {
                let (taken, numbers) = given.accept_counted();
                held.add(numbers);
                answer.note(place, taken, ask(place).1);
            }
            answer.too_large.extend(left_out);
        }
        let answered = keys - answer.refused();
        self.metrics().numbers.inc_by(held.release());
        self.metrics().answers.inc_by(answered as u64);
        let taken = |place| (answer.firsts[place] > 0).then(|| ask(place));
        self.hot_keys().note_many(namespace, keys, taken);
        Ok(answer)
    }

    /// What an earlier try took of the next `count` numbers of a gapless key under the message's `id`; `None` if nothing is
    /// remembered. Takes nothing.
    ///
    /// # Errors
    /// As [`Term::next_gapless`], for the request id and for want of an answer.
    pub async fn taken_before(
        &self, namespace: &Namespace, key: Key<'_>, count: u64, id: &MessageId, deadline: Instant,
    ) -> Result<Option<Range>, NextError> {
        let _inside = self.enter()?;
        let takes = vec![Take { section: namespace.section_of(key).key, count }];
        let part = message_part(namespace, Some(id), 0, takes);
        let Some(mut given) = self.ask_gapless(part, deadline).await? else {
            return Ok(None);
        };
        let given = given.pop().ok_or(NextError::Unknown)?;
        let (taken, _) = given.accept_counted();
        let range = taken.map_err(NextError::from)?;
        self.metrics().answers.inc();
        Ok(Some(range))
    }

    /// Takes the part of a message that has the keys at `places`: `part` makes it of some of them. If an earlier try took it
    /// under the message's id, that is the answer, whatever was allowed then. Returns what keys got, by their places, and the
    /// places of those that were left out.
    async fn take_part(
        &self, places: &[usize], part: impl Fn(&[usize]) -> MessagePart,
        (count, is_allowed): (impl Fn(usize) -> u64, impl Fn(u64) -> bool), deadline: Instant,
    ) -> Result<(Vec<(usize, Delivery)>, Vec<usize>), NextError> {
        let allowed: Vec<usize> =
            places.iter().copied().filter(|place| is_allowed(count(*place))).collect();
        let taken = match allowed.is_empty() {
            true => Ok(Vec::new()),
            false => self.take_gapless(part(&allowed), deadline).await,
        };
        let whole = (allowed.len() < places.len()).then(|| part(places));
        let given = match (taken, whole.filter(|whole| whole.id.is_some())) {
            // More may have been allowed when an earlier try took it.
            (Err(reused @ NextError::Reused { .. }), Some(whole)) => {
                self.ask_gapless(whole, deadline).await?.ok_or(reused)?
            }
            (Ok(none), Some(whole)) if none.is_empty() => {
                self.ask_gapless(whole, deadline).await?.unwrap_or_default()
            }
            (taken, _) => taken?,
        };
        let mut counts: Vec<u64> = places.iter().map(|place| count(*place)).collect();
        counts.sort_unstable();
        // Then and now, those with the greatest counts are left out.
        let most = given.len().checked_sub(1).and_then(|last| counts.get(last));
        let (taken, left_out): (Vec<usize>, Vec<usize>) =
            places.iter().partition(|place| Some(&count(**place)) <= most);
        debug_assert_eq!(given.len(), taken.len(), "every take has an answer");
        Ok((taken.into_iter().zip(given).collect(), left_out))
    }

    /// Has the term's task take numbers, and waits for its answers.
    async fn take_gapless(
        &self, part: MessagePart, deadline: Instant,
    ) -> Result<Vec<Delivery>, NextError> {
        given_or_refused(self.call_gapless(part, false, deadline).await?)
    }

    /// Asks the term's task what was taken under the part's id; `None` if nothing is remembered.
    async fn ask_gapless(
        &self, part: MessagePart, deadline: Instant,
    ) -> Result<Option<Vec<Delivery>>, NextError> {
        match self.call_gapless(part, true, deadline).await? {
            Err(Refused::IdsFull(_)) => Ok(None),
            given => given_or_refused(given).map(Some),
        }
    }

    async fn call_gapless(
        &self, part: MessagePart, only_asks: bool, deadline: Instant,
    ) -> Result<Given, NextError> {
        let (reply, answer) = oneshot::channel();
        let call = Call { part, only_asks, reply };
        self.gapless().send(call).map_err(|_| NextError::NotLeading)?;
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(Ok(given))) => Ok(given),
            Ok(Ok(Err(NotTaken::NotProposed))) => Err(NextError::NotLeading),
            // The task has ended without a word: what it did is not known.
            Ok(Ok(Err(NotTaken::Unknown)) | Err(_)) => Err(NextError::Unknown),
            Err(_) => Err(NextError::DeadlineExceeded),
        }
    }
}

/// Part number `part` of a message, with what it takes.
fn message_part(
    namespace: &Namespace, id: Option<&MessageId>, part: u32, takes: Vec<Take>,
) -> MessagePart {
    let is_ignored =
        |id: &&MessageId| id.lifetime.window_ms().is_some() && is_planted(Bug::RetryWindowIgnored);
    let id = id.filter(|id| !is_ignored(id));
    MessagePart {
        namespace: namespace.id,
        made_ms: id.and_then(|id| id.made_ms),
        id: id.map(|id| PartId { request: id.id.clone(), part, lifetime: id.lifetime }),
        takes,
    }
}

fn given_or_refused(given: Given) -> Result<Vec<Delivery>, NextError> {
    given.map_err(|refused| match refused {
        Refused::Reused(used) => NextError::Reused {
            keys: used.keys,
            key: match used.first.section {
                SectionKey::Id(id) => Key::Id(id).into(),
                SectionKey::Name(name) => Key::Name(&name).into(),
            },
            count: used.first.count,
        },
        Refused::IdsFull(bytes_max) => NextError::IdsFull { bytes_max },
        Refused::Expired { made_ms, clock_ms } => NextError::IdExpired { made_ms, clock_ms },
        // Whoever asks again is told that it does not exist.
        Refused::NoNamespace => NextError::NotLeading,
    })
}

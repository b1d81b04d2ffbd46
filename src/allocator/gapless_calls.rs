//! Calls for numbers of gapless keys.
//!
//! A call is inside the term's gate while it waits. If its caller goes, its entry may still be under way when the gate
//! is empty: it is applied before the term's last entry, or refused after it. Either way nothing is left to hand over.

use tokio::{sync::oneshot, time::Instant};

use super::{
    gapless::{Call, Given, NotTaken, Refused},
    held::Taken,
    next_error::NextError,
    next_many::NextMany,
    term::Term,
};
use crate::sequence::{Key, Namespace, Range, RequestId, SectionKey, Take};

/// How many keys of a message are taken by one call. The next ones follow once those are answered.
const CALL_TAKES_MAX: usize = 1_024;

impl Term {
    /// Takes the next `count` (at least 1) numbers of a gapless key. With a `request` id that is known, answers the
    /// numbers of its first try.
    ///
    /// # Errors
    /// [`NextError::NotLeading`] if nothing was taken, [`NextError::Unknown`] or [`NextError::DeadlineExceeded`] if that
    /// is not known, [`NextError::Exhausted`] if too few numbers are left, [`NextError::OverQuota`] for a key beyond the
    /// quota, [`NextError::Reused`] and [`NextError::IdsFull`] for the request id.
    pub async fn next_gapless(
        &self, namespace: &Namespace, key: Key<'_>, count: u64, request: Option<RequestId>,
        deadline: Instant,
    ) -> Result<Range, NextError> {
        let _inside = self.enter()?;
        let take = Take { section: namespace.section_of(key), count, request };
        let mut given = self.take_gapless(vec![take], deadline).await?;
        let given = given.pop().ok_or(NextError::Unknown)?;
        let range = self.accept(given)?.map_err(NextError::from)?;
        self.metrics().answers.inc();
        self.hot_keys().note(namespace, key, count);
        Ok(range)
    }

    /// Takes the next numbers of many gapless keys, as [`Term::next_many`] does of others.
    ///
    /// # Errors
    /// As [`Term::next_gapless`], for all keys together, but for exhausted keys. [`NextError::Unknown`] also if some
    /// keys were given numbers, which are lost then.
    pub async fn next_many_gapless<'k>(
        &self, namespace: &Namespace, keys: usize, ask: impl Fn(usize) -> (Key<'k>, u64),
        deadline: Instant,
    ) -> Result<NextMany, NextError> {
        let _inside = self.enter()?;
        let mut answer = NextMany { firsts: vec![0; keys], ..NextMany::default() };
        let mut place = 0;
        while place < keys {
            let until = keys.min(place + CALL_TAKES_MAX);
            let takes = (place..until).map(|place| {
                let (key, count) = ask(place);
                Take { section: namespace.section_of(key), count, request: None }
            });
            let taken = self.take_gapless(takes.collect(), deadline).await;
            let given = taken.map_err(|error| match error {
                NextError::NotLeading if place > 0 => NextError::Unknown,
                error => error,
            })?;
            for given in given {
                let taken = self.accept(given)?;
                answer.note(place, taken, ask(place).1);
                place += 1;
            }
            debug_assert_eq!(place, until, "every take has an answer");
        }
        let answered = keys - answer.refused();
        self.metrics().answers.inc_by(answered as u64);
        let taken = |place| (answer.firsts[place] > 0).then(|| ask(place));
        self.hot_keys().note_many(namespace, keys, taken);
        Ok(answer)
    }

    /// Has the term's task take numbers, and waits for its answers.
    async fn take_gapless(
        &self, takes: Vec<Take>, deadline: Instant,
    ) -> Result<Vec<Given>, NextError> {
        let (reply, answer) = oneshot::channel();
        self.gapless().send(Call { takes, reply }).map_err(|_| NextError::NotLeading)?;
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(Ok(given))) => Ok(given),
            Ok(Ok(Err(NotTaken::NotProposed))) => Err(NextError::NotLeading),
            // The task has ended without a word: what it did is not known.
            Ok(Ok(Err(NotTaken::Unknown)) | Err(_)) => Err(NextError::Unknown),
            Err(_) => Err(NextError::DeadlineExceeded),
        }
    }

    /// Takes over what a take was given, and counts it.
    fn accept(&self, given: Given) -> Result<Taken, NextError> {
        match given {
            Ok(delivery) => {
                let (taken, numbers) = delivery.accept_counted();
                self.metrics().numbers.inc_by(numbers);
                Ok(taken)
            }
            Err(Refused::Reused(used)) => Err(NextError::Reused {
                key: match used.key {
                    SectionKey::Id(id) => Key::Id(id).into(),
                    SectionKey::Name(name) => Key::Name(&name).into(),
                },
                count: used.count,
            }),
            Err(Refused::IdsFull(ids_max)) => Err(NextError::IdsFull { ids_max }),
            // Whoever asks again is told that it does not exist.
            Err(Refused::NoNamespace) => Err(NextError::NotLeading),
        }
    }
}

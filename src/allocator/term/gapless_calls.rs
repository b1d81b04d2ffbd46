//! Calls for numbers of gapless keys.
//!
//! A call is inside the term's gate while it waits. If its caller goes, its entry may still be under way when the gate
//! is empty: it is applied before the term's last entry, or refused after it. Either way nothing is left to hand over.

use std::time::Duration;

use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

use super::{Term, gapless::TakeCall};
use crate::{
    allocator::{
        held_numbers::{Delivery, HeldNumbers},
        outcome::{ManyNumbers, Unserved, Why},
    },
    laps::{self, Phase},
    planted_bugs::{Bug, is_planted},
    sequence::{Key, MessageId, MessagePart, Namespace, PartId, Range, Take},
};

/// How many keys of a message are taken by one entry. The next ones follow once those are answered.
const PART_TAKES_MAX: usize = 1_024;
/// After how long room for another request id is looked for again.
const ROOM_PAUSE: Duration = Duration::from_secs(1);

impl Term {
    /// Takes the next `count` (at least 1) numbers of a gapless key. If the message has an `id` that is known, answers the
    /// numbers of its first try.
    ///
    /// # Errors
    /// [`Why::AskLeader`] if the term is over, [`Why::DeadlineExceeded`] if the entry took too long, [`Why::Exhausted`] if
    /// too few numbers are left, [`Why::OverKeysMax`] for a key beyond `keys_max`, [`Why::Reused`], [`Why::IdsFull`] and
    /// [`Why::IdExpired`] for the request id. If it is not known whether the numbers were taken, it may be done.
    pub async fn next_gapless(
        &self, namespace: &Namespace, key: Key<'_>, count: u64, id: Option<&MessageId>,
        deadline: Instant,
    ) -> Result<Range, Unserved> {
        let _inside = self.enter()?;
        let takes = vec![Take { section: namespace.section_of(key).key, count }];
        let part = message_part(namespace, id, 0, takes);
        let mut given = self.take_gapless(part, deadline).await?;
        let given = given.pop().ok_or(Unserved { why: Why::AskLeader, may_be_done: 1 })?;
        let (taken, numbers) = given.accept_counted();
        let range = taken?;
        self.counts(namespace).hand_out(numbers, 1);
        self.hot_keys().note(namespace, key, count);
        Ok(range)
    }

    /// Takes numbers of many gapless keys, as [`Term::next_many`] does of others: `ask` tells the key at a place and its
    /// count. If the message has an `id`, each part of it that an earlier try took is answered as then.
    ///
    /// A handover waits for what was proposed. If the term ends meanwhile, a message without an id gets none of the keys whose
    /// turn is still to come, with [`Why::LeftToNextLeader`]: what the others were given would be a gap if nobody got it.
    ///
    /// # Errors
    /// As [`Term::next_gapless`], for all keys together, but for the keys that [`ManyNumbers`] names. Keys that were given
    /// numbers may be done. Without an id, these numbers are burnt then.
    pub async fn next_many_gapless<'k>(
        &self, namespace: &Namespace, keys: usize, ask: impl Fn(usize) -> (Key<'k>, u64),
        id: Option<&MessageId>, deadline: Instant,
    ) -> Result<ManyNumbers, Unserved> {
        let _inside = self.enter()?;
        let mut answer = ManyNumbers::of(keys);
        // If a later part fails, or the caller leaves, nobody gets these.
        let counts = self.counts(namespace);
        let mut held = HeldNumbers::new(&*counts, 0);
        let has_parts = id.is_some() && keys > PART_TAKES_MAX;
        let whole = has_parts.then(|| checksum((0..keys).map(&ask)));
        for (number, place) in (0..keys).step_by(PART_TAKES_MAX).enumerate() {
            let places = place..keys.min(place + PART_TAKES_MAX);
            let takes = places.clone().map(|place| {
                let (key, count) = ask(place);
                Take { section: namespace.section_of(key).key, count }
            });
            let part = message_part(namespace, id, number as u32, takes.collect());
            let part = MessagePart { whole, ..part };
            let given = match self.take_part(part, place > 0, deadline).await {
                Ok(given) => given,
                // Nothing was taken of it. With an id, the next leader answers the parts before alike, and takes the others.
                Err(Unserved { why: Why::AskLeader, may_be_done: 0 })
                    if place > 0 && id.is_none() =>
                {
                    (place..keys).for_each(|place| answer.refuse(place, Why::LeftToNextLeader));
                    break;
                }
                Err(Unserved { why, may_be_done }) => {
                    let why = match why {
                        Why::DeadlineExceeded => why,
                        // The parts before were taken. The id may also name an older message, whose first part is forgotten
                        // already: the rest will be soon. The next leader knows.
                        _ if place > 0 => Why::AskLeader,
                        _ => why,
                    };
                    return Err(Unserved { why, may_be_done: place + may_be_done });
                }
            };
            for (place, given) in places.zip(given) {
                let (taken, numbers) = given.accept_counted();
                held.add(numbers);
                answer.note(place, taken, ask(place).1);
            }
        }
        let answered = keys - answer.refused();
        held.answer(answered as u64);
        let taken = |place| (answer.firsts[place] > 0).then(|| ask(place));
        self.hot_keys().note_many(namespace, keys, taken);
        Ok(answer)
    }

    /// As [`Term::take_gapless`]. Of a message that `is_begun` it waits for room for the part's id, which comes as others are
    /// forgotten: a caller that asked for the message again would have the parts before written once more.
    async fn take_part(
        &self, part: MessagePart, is_begun: bool, deadline: Instant,
    ) -> Result<Vec<Delivery>, Unserved> {
        loop {
            match self.take_gapless(part.clone(), deadline).await {
                Err(Unserved { why: Why::IdsFull(_), .. })
                    if is_begun && Instant::now() < deadline => {}
                taken => return taken,
            }
            tokio::select! {
                biased;
                () = sleep_until(deadline.min(Instant::now() + ROOM_PAUSE)) => {
                    laps::lap(Phase::Queue);
                }
                () = self.memory.gate().closed() => return Err(Why::AskLeader.into()),
            }
        }
    }

    /// Has the term's task take numbers, and waits for its answers.
    async fn take_gapless(
        &self, part: MessagePart, deadline: Instant,
    ) -> Result<Vec<Delivery>, Unserved> {
        let (reply, answer) = oneshot::channel();
        let may_be_done = part.takes.len();
        self.gapless().send(TakeCall { part, reply }).map_err(|_| Why::AskLeader)?;
        let given = tokio::time::timeout_at(deadline, answer).await;
        laps::lap_of_entry(|| self.memory.last_entry());
        match given {
            Ok(Ok(given)) => given,
            // The task has ended without an answer: nobody knows what it did.
            Ok(Err(_)) => Err(Unserved { why: Why::AskLeader, may_be_done }),
            Err(_) => Err(Unserved { why: Why::DeadlineExceeded, may_be_done }),
        }
    }
}

/// The checksum that tells apart messages of several parts under one request id. It is remembered with the id, so every
/// release must compute the same.
fn checksum<'k>(asked: impl Iterator<Item = (Key<'k>, u64)>) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    for (key, count) in asked {
        match key {
            Key::Id(id) => crc.update(&id.to_be_bytes()),
            Key::Name(name) => crc.update(name),
        }
        crc.update(&count.to_be_bytes());
    }
    crc.finalize()
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
        caller: id.and_then(|id| id.caller),
        id: id.map(|id| PartId { request: id.id.clone(), part, lifetime: id.lifetime }),
        whole: None,
        takes,
    }
}

//! What waits becomes one message, and its answer is shared out. Pure: no I/O, and time is an argument.
//!
//! Invariant: the requests of a message for one key get their numbers in the order in which they were
//! made, and all get numbers above those that their key was seen to get before.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::{ClientError, Key, Numbers, lane::Asked, seen::Seen};
use crate::proto::v1::{NextStreamRequest, NextStreamResponse};

/// How many requests one message carries at most.
pub const MESSAGE_ASKS_MAX: usize = 8_192;
/// How many bytes their keys have at most; a server takes messages of 1 MiB.
const MESSAGE_KEY_BYTES_MAX: usize = 512 << 10;
/// How many numbers of one key are asked for as one range at most, unless one request wants more: below
/// any server's limit that is of use.
const RANGE_NUMBERS_MAX: u64 = 10_000;

/// The namespaces by number, so that a request need not carry a name.
#[derive(Clone, Default)]
pub struct Names(Arc<ArcSwap<Known>>);

#[derive(Clone, Default)]
struct Known {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl Names {
    /// The number of a namespace: the same for as long as the client lives.
    pub fn number_of(&self, name: &str) -> u32 {
        if let Some(&number) = self.0.load().numbers.get(name) {
            return number;
        }
        self.0.rcu(|known| {
            let mut known = Known::clone(known);
            if !known.numbers.contains_key(name) {
                let name: Arc<str> = name.into();
                known.numbers.insert(name.clone(), known.names.len() as u32);
                known.names.push(name);
            }
            known
        });
        self.number_of(name)
    }

    /// The namespace of a number.
    pub fn name_of(&self, number: u32) -> String {
        let known = self.0.load();
        let name = known.names.get(number as usize);
        name.map(ToString::to_string).unwrap_or_default()
    }
}

/// What waits, by namespace and kind of key: what one message can carry.
#[derive(Default)]
pub struct Waiting {
    queues: HashMap<(u32, bool), VecDeque<Asked>>,
    /// The queues that are not empty, by turns.
    turns: VecDeque<(u32, bool)>,
}

impl Waiting {
    /// Adds a request behind the others of its kind.
    pub fn push(&mut self, asked: Asked) {
        self.queue(&asked).push_back(asked);
    }

    /// Puts requests back before the others of their kind, in their order.
    pub fn put_back(&mut self, asked: Vec<Asked>) {
        for asked in asked.into_iter().rev() {
            self.queue(&asked).push_front(asked);
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The requests that the next message carries: all of one namespace and kind.
    pub fn next(&mut self) -> Option<Vec<Asked>> {
        let turn = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&turn)?;
        let together = match queue.front() {
            Some(first) if first.alone => 1,
            _ => {
                let mut bytes = 0;
                let fits = |asked: &&Asked| {
                    bytes += asked.key.bytes();
                    bytes <= MESSAGE_KEY_BYTES_MAX && !asked.alone
                };
                let first = queue.iter().take(MESSAGE_ASKS_MAX);
                first.take_while(fits).count().max(1)
            }
        };
        let asked = queue.drain(..together).collect();
        if !queue.is_empty() {
            self.turns.push_back(turn);
        }
        Some(asked)
    }

    /// Takes out all that nobody waits for any more at `now`, and tells when the next one is due.
    pub fn expired(&mut self, now: Instant) -> (Vec<Asked>, Option<Instant>) {
        let (mut expired, mut next) = (Vec::new(), None::<Instant>);
        for queue in self.queues.values_mut() {
            // What was put back is older than what came since.
            let over = queue.iter().take_while(|asked| asked.deadline <= now);
            let over = over.count();
            expired.extend(queue.drain(..over));
            let first = queue.front().map(|asked| asked.deadline);
            next = next.into_iter().chain(first).min();
        }
        self.turns
            .retain(|turn| self.queues.get(turn).is_some_and(|queue| !queue.is_empty()));
        (expired, next)
    }

    fn queue(&mut self, asked: &Asked) -> &mut VecDeque<Asked> {
        let turn = (asked.namespace, matches!(asked.key, Key::Name(_)));
        let queue = self.queues.entry(turn).or_default();
        if queue.is_empty() {
            self.turns.push_back(turn);
        }
        queue
    }
}

/// One message's requests, as they wait for its answer.
pub struct Message {
    namespace: u32,
    asked: Vec<Asked>,
    /// The place in the message of each request's key.
    places: Vec<u32>,
    /// What was seen of the key at each place when the message was made.
    floors: Vec<u64>,
}

/// What an answer leaves to be done.
#[derive(Default)]
pub struct Left {
    /// To be asked again.
    pub again: Vec<Asked>,
    /// Why, where the server or its leader is to blame.
    pub failed: Option<Status>,
}

impl Message {
    /// Makes a message of requests of one namespace and kind of key; merges those of one key.
    pub fn new(asked: Vec<Asked>, seen: &Seen, request: &mut NextStreamRequest) -> Message {
        let mut message = Message {
            namespace: asked.first().map_or(0, |first| first.namespace),
            places: Vec::with_capacity(asked.len()),
            floors: Vec::new(),
            asked: Vec::new(),
        };
        let mut known: HashMap<&Key, u32> = HashMap::with_capacity(asked.len());
        let mut plain = true;
        for ask in &asked {
            let place = known.get(&ask.key).copied().filter(|&place| {
                let count = &mut request.counts[place as usize];
                let fits = count.saturating_add(ask.count) <= RANGE_NUMBERS_MAX;
                *count += if fits { ask.count } else { 0 };
                fits
            });
            plain &= place.is_none() && ask.count == 1;
            let place = place.unwrap_or_else(|| {
                let place = request.counts.len() as u32;
                known.insert(&ask.key, place);
                request.counts.push(ask.count);
                match &ask.key {
                    Key::Id(id) => request.ids.push(*id),
                    Key::Name(name) => request.names.push(name.clone()),
                }
                let floor = seen.last(&(message.namespace, ask.key.clone()));
                message.floors.push(floor);
                place
            });
            message.places.push(place);
        }
        if plain {
            request.counts.clear();
        }
        drop(known);
        message.asked = asked;
        message
    }

    /// The namespace, by the client's numbering.
    pub fn namespace(&self) -> u32 {
        self.namespace
    }

    /// When the first of its requests is not waited for any more.
    pub fn deadline(&self) -> Option<Instant> {
        self.asked.iter().map(|asked| asked.deadline).min()
    }

    /// The requests, to be asked again.
    pub fn into_asked(self) -> Vec<Asked> {
        self.asked
    }

    /// Shares an answer out.
    pub fn settle(
        self,
        answer: NextStreamResponse,
        server: &str,
        names: &Names,
        seen: &mut Seen,
        now: Instant,
    ) -> Left {
        if let Some(failure) = answer.failure {
            return self.fail(failure.into(), server, now);
        }
        if answer.firsts.len() != self.floors.len() {
            let (keys, firsts) = (self.floors.len(), answer.firsts.len());
            let odd = format!("asked for numbers of {keys} keys, it answered for {firsts}");
            return self.fail(Status::internal(odd), server, now);
        }
        let failures: HashMap<u32, Status> = (answer.failures.into_iter())
            .filter_map(|failure| Some((failure.place, failure.failure?.into())))
            .collect();
        let mut next = answer.firsts;
        for (asked, place) in self.asked.into_iter().zip(self.places) {
            if !failures.is_empty()
                && let Some(status) = failures.get(&place)
            {
                asked.answer(Err(ClientError::status(server, status.clone())));
                continue;
            }
            let (first, last) = (next[place as usize], self.floors[place as usize]);
            if first <= last {
                asked.answer(Err(ClientError::Disorder {
                    server: server.to_owned(),
                    namespace: names.name_of(self.namespace),
                    last,
                    number: first,
                }));
                continue;
            }
            let span = (asked.count.saturating_sub(1)).saturating_mul(answer.increment);
            let numbers = Numbers {
                first,
                // Whatever a server answers, nothing here overflows.
                last: first.saturating_add(span),
                increment: answer.increment,
            };
            next[place as usize] = numbers.last.saturating_add(answer.increment);
            seen.note((self.namespace, asked.key.clone()), numbers.last);
            asked.answer(Ok(numbers));
        }
        Left::default()
    }

    /// Tells the requests of a message that failed as a whole, or has them asked again.
    pub fn fail(self, status: Status, server: &str, now: Instant) -> Left {
        let several = self.asked.len() > 1;
        match status.code() {
            Code::Unavailable => Left {
                again: self.asked,
                failed: Some(status),
            },
            // The message had the time of the request that waits least.
            Code::DeadlineExceeded => {
                let (over, again) = (self.asked.into_iter())
                    .partition(|asked| asked.deadline <= now + Duration::from_millis(1));
                tell(over, server, &status);
                Left {
                    again,
                    failed: Some(status),
                }
            }
            // One of them is wrong; which, each learns for itself.
            Code::InvalidArgument if several => Left {
                again: (self.asked.into_iter())
                    .map(|asked| Asked {
                        alone: true,
                        ..asked
                    })
                    .collect(),
                failed: None,
            },
            _ => {
                tell(self.asked, server, &status);
                Left::default()
            }
        }
    }
}

/// Tells all of them why they were not answered.
pub fn tell(asked: Vec<Asked>, server: &str, status: &Status) {
    for asked in asked {
        asked.answer(Err(ClientError::status(server, status.clone())));
    }
}

//! What waits becomes one message, and its answer is shared out. Pure: no I/O, and time is an argument.
//!
//! Invariant: the requests that are merged into one range get its numbers in the order in which they were
//! made, and nobody else's lie between; all get numbers above those that their key was seen to get before.
//! Nothing follows for requests for one key that are under way at the same time in several ranges, which
//! is so where a range would grow too large, where messages overtake each other, and where a request is
//! asked again: any of them may get the lower numbers.

use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::{
    api::{Exhausted, Failure, NextStreamRequest, NextStreamResponse},
    error::Error,
    high_water_marks::Seen,
    key::Key,
    namespaces::Names,
    numbers::Numbers,
    request::{Asked, Travels, tell},
};

/// How many numbers of one key are asked for as one range at most, unless one request wants more: below
/// any server's limit that is of use.
const RANGE_NUMBERS_MAX: u64 = 10_000;

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
            let others = match ask.travels {
                Travels::Merged => known.get(&ask.key).copied(),
                Travels::Apart | Travels::Alone => None,
            };
            let place = others.filter(|&place| {
                let count = &mut request.counts[place as usize];
                let fits = count.saturating_add(ask.count) <= RANGE_NUMBERS_MAX;
                *count += if fits { ask.count } else { 0 };
                fits
            });
            plain &= place.is_none() && ask.count == 1;
            let place = place.unwrap_or_else(|| {
                let place = request.counts.len() as u32;
                if ask.travels == Travels::Merged {
                    known.insert(&ask.key, place);
                }
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
            return self.fail(failure.into_status(), server, now);
        }
        if answer.firsts.len() != self.floors.len() {
            let (keys, firsts) = (self.floors.len(), answer.firsts.len());
            let odd = format!("asked for numbers of {keys} keys, it answered for {firsts}");
            return self.fail(Status::internal(odd), server, now);
        }
        if answer.increment == 0 {
            let odd = Status::internal("it answered with numbers whose increment is 0");
            return self.fail(odd, server, now);
        }
        let used_up = answer.exhausted.map(|exhausted| self.used_up(exhausted));
        let mut left = Left::default();
        let mut next = answer.firsts;
        for (asked, place) in self.asked.into_iter().zip(self.places) {
            if let Some(used_up) = &used_up
                && let Some(&(numbers, several)) = used_up.places.get(&place)
            {
                if several && asked.count <= numbers {
                    // There is enough for this one; for how many of them, the leader knows.
                    left.again.push(Asked {
                        travels: Travels::Apart,
                        ..asked
                    });
                } else {
                    let why = used_up.tell(asked.count, numbers);
                    asked.answer(Err(Error::status(server, &why)));
                }
                continue;
            }
            let (first, last) = (next[place as usize], self.floors[place as usize]);
            if first <= last {
                asked.answer(Err(Error::Disorder {
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
        left
    }

    fn used_up(&self, exhausted: Exhausted) -> UsedUp {
        let mut requests = vec![0u32; self.floors.len()];
        for place in &self.places {
            requests[*place as usize] += 1;
        }
        let several = |place: u32| requests.get(place as usize).is_some_and(|n| *n > 1);
        let places = exhausted.places.into_iter().zip(exhausted.left);
        UsedUp {
            places: places
                .map(|(place, left)| (place, (left, several(place))))
                .collect(),
            why: exhausted.failure.map(Failure::into_status),
        }
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
                        travels: Travels::Alone,
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

/// Where the numbers of a namespace are used up.
struct UsedUp {
    /// How many numbers the key at a place has left, and whether several requests share the place.
    places: HashMap<u32, (u64, bool)>,
    why: Option<Status>,
}

impl UsedUp {
    /// Why a request for `count` numbers of a key that has `left` numbers left got none.
    fn tell(&self, count: u64, left: u64) -> Status {
        let why = self.why.as_ref();
        let code = why.map_or(Code::OutOfRange, Status::code);
        let text = why.map_or("the numbers of the namespace are used up", Status::message);
        Status::new(
            code,
            format!("count is {count}, and {left} numbers are left: {text}"),
        )
    }
}

#[cfg(test)]
mod tests;

//! What waits becomes one message, and its answer is shared out. Pure: no I/O, and time is an argument.
//!
//! Invariant: the requests that are merged into one range get its numbers in the order in which they were
//! made, and nobody else's lie between; all get numbers above those that their key was seen to get before.
//! Nothing follows for requests for one key that are under way at the same time in several ranges, which
//! is so where a range would grow too large, where messages overtake each other, and where a request is
//! asked again: any of them may get the lower numbers.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::{
    Error, Key, Numbers,
    lane::{Asked, Travels},
    seen::Seen,
};
use crate::api::{Exhausted, Failure, NextStreamRequest, NextStreamResponse};

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
            Some(first) if first.travels == Travels::Alone => 1,
            _ => {
                let mut bytes = 0;
                let fits = |asked: &&Asked| {
                    bytes += asked.key.bytes();
                    bytes <= MESSAGE_KEY_BYTES_MAX && asked.travels != Travels::Alone
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

/// Tells all of them why they were not answered.
pub fn tell(asked: Vec<Asked>, server: &str, status: &Status) {
    for asked in asked {
        asked.answer(Err(Error::status(server, status)));
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    type Answer = oneshot::Receiver<Result<Numbers, Error>>;

    fn ask(key: u64, count: u64) -> (Asked, Answer) {
        let (reply, answer) = oneshot::channel();
        let asked = Asked {
            namespace: 0,
            key: Key::Id(key),
            count,
            deadline: Instant::now() + Duration::from_secs(5),
            travels: Travels::Merged,
            reply,
        };
        (asked, answer)
    }

    fn message(asked: Vec<Asked>) -> (Message, NextStreamRequest) {
        let mut request = NextStreamRequest::default();
        let message = Message::new(asked, &Seen::default(), &mut request);
        (message, request)
    }

    fn settle(message: Message, answer: NextStreamResponse) -> Left {
        let (names, mut seen) = (Names::default(), Seen::default());
        names.number_of("few");
        message.settle(answer, "a:1", &names, &mut seen, Instant::now())
    }

    fn used_up(firsts: &[u64], places: &[u32], left: &[u64]) -> NextStreamResponse {
        NextStreamResponse {
            firsts: firsts.to_vec(),
            increment: 1,
            exhausted: Some(Exhausted {
                places: places.to_vec(),
                left: left.to_vec(),
                failure: Some(Failure {
                    code: Code::OutOfRange.into(),
                    message: "raise it".to_owned(),
                }),
            }),
            ..NextStreamResponse::default()
        }
    }

    fn first(answer: &mut Answer) -> u64 {
        let numbers = answer.try_recv().expect("answered").expect("numbers");
        numbers.first
    }

    fn refusal(answer: &mut Answer) -> String {
        let refused = answer.try_recv().expect("answered").expect_err("refused");
        assert_eq!(refused.code(), Some(crate::Code::OutOfRange));
        refused.to_string()
    }

    #[test]
    fn a_range_is_shared_out_in_the_order_of_asking_and_one_too_large_goes_on_elsewhere() {
        let counts = [1, 2, RANGE_NUMBERS_MAX - 3, 1];
        let (asked, mut answers): (Vec<_>, Vec<_>) =
            counts.map(|count| ask(7, count)).into_iter().unzip();
        let (message, request) = message(asked);
        assert_eq!(request.ids, [7, 7]);
        assert_eq!(request.counts, [RANGE_NUMBERS_MAX, 1]);
        // The second range may lie below the first.
        let answer = NextStreamResponse {
            firsts: vec![101, 5],
            increment: 1,
            ..NextStreamResponse::default()
        };
        assert!(settle(message, answer).again.is_empty());
        let firsts: Vec<u64> = answers.iter_mut().map(first).collect();
        assert_eq!(firsts, [101, 102, 104, 5]);
    }

    #[test]
    fn where_numbers_are_left_for_some_of_a_range_each_request_asks_for_its_own() {
        let (asked, mut answers): (Vec<_>, Vec<_>) =
            [1, 4, 9, 2].map(|count| ask(7, count)).into_iter().unzip();
        let (all, request) = message(asked);
        assert_eq!(request.counts, [16]);
        let left = settle(all, used_up(&[0], &[0], &[6]));
        assert!(left.failed.is_none());
        // Too much in any case.
        assert_eq!(
            refusal(&mut answers[2]),
            "a:1: count is 9, and 6 numbers are left: raise it"
        );
        let (apart, request) = message(left.again);
        assert_eq!(
            (&request.ids[..], &request.counts[..]),
            (&[7; 3][..], &[1, 4, 2][..])
        );
        let left = settle(apart, used_up(&[11, 12, 0], &[2], &[1]));
        assert!(left.again.is_empty(), "asked for its own already");
        assert_eq!([first(&mut answers[0]), first(&mut answers[1])], [11, 12]);
        assert!(refusal(&mut answers[3]).contains("count is 2, and 1 numbers are left"));
    }

    #[test]
    fn where_nothing_is_left_nobody_asks_again_and_other_keys_get_their_numbers() {
        let (asked, mut answers): (Vec<_>, Vec<_>) = [(7, 1), (8, 3), (7, 1)]
            .map(|(key, count)| ask(key, count))
            .into_iter()
            .unzip();
        let (all, request) = message(asked);
        assert_eq!(
            (&request.ids[..], &request.counts[..]),
            (&[7, 8][..], &[2, 3][..])
        );
        let left = settle(all, used_up(&[0, 40], &[0], &[0]));
        assert!(left.again.is_empty());
        assert_eq!(first(&mut answers[1]), 40);
        for place in [0, 2] {
            assert!(refusal(&mut answers[place]).contains("0 numbers are left"));
        }
    }

    #[test]
    fn a_server_that_answers_for_places_that_were_not_asked_for_does_no_harm() {
        let (asked, mut answers): (Vec<_>, Vec<_>) =
            [1, 1].map(|count| ask(7, count)).into_iter().unzip();
        let left = settle(message(asked).0, used_up(&[3], &[9, u32::MAX], &[5]));
        assert!(left.again.is_empty());
        assert_eq!([first(&mut answers[0]), first(&mut answers[1])], [3, 4]);
    }
}

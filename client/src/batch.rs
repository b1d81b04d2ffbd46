//! Makes one message of many requests, and shares its answer out. Pure: no I/O, and time is an argument.
//!
//! A message of a gapless namespace has an id. Until it is answered it is sent again as it is: the servers take its numbers
//! once. The messages of a namespace of which nothing is known begin with an id: a server that knows none there says so.
//!
//! Requests for one key are merged into one range. They get its numbers in the order in which they were
//! made.
//!
//! Invariant: numbers of a merged range go to its requests alone, without a hole between them. Every
//! request gets numbers above the key's high-water mark at the time the batch was made.
//!
//! No order holds between requests for one key that are in flight in several ranges. This happens if a
//! range would grow too large, if batches overtake each other, or if a request is sent again. Each of the
//! requests may then get the lower numbers.

use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::{
    api::{Exhausted, Failure, NextManyRequest, NextManyResponse, Outcome, Reason, RefusedKeys},
    error::Error,
    high_water_marks::HighWaterMarks,
    key::Key,
    named_message::{Mode, NamedMessage, NextStep},
    namespaces::{InternedNamespace, Namespaces},
    numbers::Numbers,
    request::{PendingRequest, fail_requests},
    request_clock::RequestClock,
};

/// The largest merged range, in numbers. A single request may want more. Lower than any limit that a
/// server would sensibly have.
const RANGE_NUMBERS_MAX: u64 = 10_000;
/// The reason and the outcome of a failure if a server gives an answer that no server should give.
const UNKNOWN: (Reason, Outcome) = (Reason::Unspecified, Outcome::Unknown);
/// A request whose deadline is nearer than this has expired: no message could be answered in the time.
const EXPIRY_MARGIN: Duration = Duration::from_millis(1);

/// The requests of one message, while they wait for its answer.
pub struct Batch {
    namespace: InternedNamespace,
    requests: Vec<PendingRequest>,
    /// For each request, the place of its range in the message.
    places: Vec<u32>,
    /// For each place, the high-water mark of its key when the batch was made.
    marks_before: Vec<u64>,
    /// The message, if it has an id.
    named: Option<Box<NamedMessage>>,
}

/// The work that remains after a batch was answered.
#[derive(Default)]
pub struct Leftover {
    /// Requests to send again, in other messages.
    pub retry: Vec<PendingRequest>,
    /// The batch, if its message is to be sent again as it is.
    pub resend: Option<Batch>,
    /// The kind of the namespace, if the answer tells it.
    pub mode: Option<Mode>,
    /// The failure, if the server or its leader is to blame and another server should be asked.
    pub server_failure: Option<Status>,
}

impl Batch {
    /// Makes a batch of requests for keys of one namespace and one kind, and fills `message` with their
    /// keys and counts.
    pub fn new(
        requests: Vec<PendingRequest>, marks: &HighWaterMarks, message: &mut NextManyRequest,
    ) -> Batch {
        let namespace = requests.first().map(|first| first.namespace);
        let namespace = namespace.unwrap_or_default();
        let mut places = Vec::with_capacity(requests.len());
        let mut marks_before = Vec::new();
        let mut ranges: HashMap<&Key, u32> = HashMap::with_capacity(requests.len());
        let mut one_each = true;
        for request in &requests {
            assert_eq!(request.namespace, namespace, "one namespace in a batch");
            let range = ranges.get(&request.key).filter(|_| request.may_share).copied();
            let range = range.filter(|&place| {
                let count = &mut message.counts[place as usize];
                let fits = count.saturating_add(request.count) <= RANGE_NUMBERS_MAX;
                *count += if fits { request.count } else { 0 };
                fits
            });
            one_each &= range.is_none() && request.count == 1;
            let place = range.unwrap_or_else(|| {
                let place = message.counts.len() as u32;
                if request.may_share {
                    ranges.insert(&request.key, place);
                }
                message.counts.push(request.count);
                match &request.key {
                    Key::Id(id) => message.ids.push(*id),
                    Key::Name(name) => message.names.push(name.clone()),
                }
                marks_before.push(marks.get(&(namespace, request.key.clone())));
                place
            });
            places.push(place);
        }
        assert!(message.ids.is_empty() || message.names.is_empty(), "one kind of key in a batch");
        assert_eq!(message.counts.len(), marks_before.len());
        assert_eq!(places.len(), requests.len());
        if let [PendingRequest { traceparent: Some(span), .. }] = &requests[..] {
            message.traceparent = Some(span.to_string());
        }
        if one_each {
            // On the wire, no counts mean one number of each key.
            message.counts.clear();
        }
        drop(ranges);
        Batch { namespace, requests, places, marks_before, named: None }
    }

    /// Gives the message an id: the application's, or one of its own. See [`NamedMessage::new`].
    pub fn name(
        &mut self, message: &mut NextManyRequest, mode: Option<Mode>, patience: Duration,
        clock: (&RequestClock, Instant),
    ) {
        let chosen =
            self.requests.first_mut().and_then(|request| request.request_id.as_deref().cloned());
        let named = NamedMessage::new(message, chosen, mode, patience, clock);
        if named.is_of_application {
            // The numbers that it got before may come again.
            self.marks_before.fill(0);
        }
        self.named = Some(Box::new(named));
    }

    /// The message to send again; `None` if it has no id.
    pub fn message(&self) -> Option<NextManyRequest> {
        self.named.as_ref().map(|named| named.message.clone())
    }

    /// True if the application has given the request of the batch an id.
    pub fn is_named_by_application(&self) -> bool {
        self.requests.iter().any(|request| request.request_id.is_some())
    }

    /// Ends the wait for the answer, which is lost, or did not come in time.
    pub fn lose(mut self) -> Leftover {
        if let Some(named) = &mut self.named {
            named.may_be_done = true;
        }
        self.unsent()
    }

    /// The requests, or the message, that are to be sent again if the message has reached nobody this time.
    pub fn unsent(self) -> Leftover {
        match &self.named {
            Some(named) if named.may_be_done => {
                Leftover { resend: Some(self), ..Leftover::default() }
            }
            // A request that leaves meanwhile gets no place in the next message.
            Some(_) | None => Leftover { retry: self.requests, ..Leftover::default() },
        }
    }

    /// True if somebody waits for an answer.
    pub fn is_awaited(&self) -> bool {
        self.requests.iter().any(PendingRequest::is_awaited)
    }

    /// Answers the requests of a message with an id whose time is up; `failure` is the last one. True if others wait.
    pub fn expire(&mut self, now: Instant, server: &str, failure: &Status) -> bool {
        let Some(named) = &self.named else {
            return true;
        };
        let is_over = named.send_until <= now;
        for request in &mut self.requests {
            if (is_over || request.deadline <= now) && request.is_awaited() {
                // Its place in the range stays.
                request.fail(named.error(server, failure));
            }
        }
        self.is_awaited()
    }

    /// The namespace of all keys.
    pub fn namespace(&self) -> InternedNamespace {
        self.namespace
    }

    /// The earliest deadline of the requests; of the requests that somebody waits for, if the message has an id.
    pub fn deadline(&self) -> Option<Instant> {
        let named = self.named.as_ref();
        // Each look at a waiting caller may cost a cache miss.
        let counts = |request: &&PendingRequest| named.is_none() || request.is_awaited();
        let first = self.requests.iter().filter(counts).map(|request| request.deadline).min();
        first.into_iter().chain(named.map(|named| named.send_until)).min()
    }

    /// Answers the requests from the answer to their message.
    pub fn complete(
        self, answer: NextManyResponse, server: &str, namespaces: &Namespaces,
        marks: &mut HighWaterMarks, now: Instant,
    ) -> Leftover {
        let mode = (answer.gapless || self.named.is_some()).then_some(Mode::Gapless);
        if let Some(failure) = answer.failure {
            let told = (failure.reason(), failure.outcome());
            return self.refuse(failure.into_status(), told, server, now);
        }
        if answer.firsts.len() != self.marks_before.len() {
            let (keys, firsts) = (self.marks_before.len(), answer.firsts.len());
            let odd = format!("asked for numbers of {keys} keys, it answered for {firsts}");
            return self.refuse(Status::internal(odd), UNKNOWN, server, now);
        }
        if answer.increment == 0 {
            let odd = Status::internal("it answered with numbers whose increment is 0");
            return self.refuse(odd, UNKNOWN, server, now);
        }
        let refused = refused_places(answer.refused, answer.exhausted);
        // How many requests share each place.
        let mut sharers = HashMap::new();
        if !refused.is_empty() {
            self.places.iter().for_each(|place| *sharers.entry(*place).or_insert(0) += 1);
        }
        let may_be_done = self.named.is_some_and(|named| named.may_be_done);
        let mut leftover = Leftover { mode, ..Leftover::default() };
        // For each place, the next number to give out.
        let mut next = answer.firsts;
        for (request, place) in self.requests.into_iter().zip(self.places) {
            if let Some(RefusedPlace { status, reason, left }) = refused.get(&place) {
                // The range of all is too large, and this request alone may not be. Of a used-up key, only the leader knows
                // for how many requests enough is left.
                let may_fit = match left {
                    Some(left) => request.count <= *left,
                    None => *reason == Reason::CountTooLarge,
                };
                if may_fit && sharers[&place] > 1 {
                    leftover.retry.push(PendingRequest { may_share: false, ..request });
                } else if matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)
                    && !may_be_done
                    && request.deadline > now + EXPIRY_MARGIN
                {
                    leftover.server_failure = Some(status.clone());
                    leftover.retry.push(request);
                } else {
                    let error = refusal(server, status, request.count, *left);
                    request.answer(Err(error));
                }
                continue;
            }
            let (first, mark) = (next[place as usize], self.marks_before[place as usize]);
            if first <= mark {
                request.answer(Err(Error::Disorder {
                    server: server.to_owned(),
                    namespace: namespaces.name_of(self.namespace),
                    last: mark,
                    number: first,
                }));
                continue;
            }
            let numbers = range(first, request.count, answer.increment);
            next[place as usize] = numbers.last.saturating_add(answer.increment);
            marks.record((self.namespace, request.key.clone()), numbers.last);
            request.answer(Ok(numbers));
        }
        leftover
    }

    /// Ends a batch that a server refused as a whole, or sees to it that it is sent again.
    fn refuse(
        mut self, status: Status, (reason, outcome): (Reason, Outcome), server: &str, now: Instant,
    ) -> Leftover {
        let Some(named) = &mut self.named else {
            return match reason {
                Reason::RequestIdRequired => self.in_mode(Mode::Gapless),
                // All keys of a batch are of one kind.
                Reason::KeyKindMismatch => {
                    fail_requests(self.requests, server, &status);
                    Leftover::default()
                }
                _ => self.fail_all(status, server, now),
            };
        };
        match named.refused(status.code(), (reason, outcome)) {
            NextStep::WithoutId => self.in_mode(Mode::Ordinary),
            NextStep::Anew => Leftover { mode: Some(Mode::Gapless), ..self.unsent() },
            NextStep::Elsewhere => Leftover { server_failure: Some(status), ..self.unsent() },
            // As without an id: sent with fewer and fewer others, each request learns whether it is the wrong one.
            NextStep::Fail if !named.may_be_done => self.fail_all(status, server, now),
            NextStep::Fail => {
                self.fail(server, &status);
                Leftover::default()
            }
        }
    }

    /// Answers the requests: no server takes the message.
    pub fn fail(self, server: &str, status: &Status) {
        let Some(named) = self.named else {
            return fail_requests(self.requests, server, status);
        };
        for request in self.requests {
            request.answer(Err(named.error(server, status)));
        }
    }

    /// The requests are sent again in the way that their namespace is asked in.
    fn in_mode(self, mode: Mode) -> Leftover {
        Leftover { retry: self.requests, mode: Some(mode), ..Leftover::default() }
    }

    /// Ends a batch that took nothing, or whose numbers nobody misses: each request is answered with the failure, or sent
    /// again.
    fn fail_all(self, status: Status, server: &str, now: Instant) -> Leftover {
        match status.code() {
            Code::Unavailable => Leftover {
                retry: self.requests,
                server_failure: Some(status),
                ..Leftover::default()
            },
            // The message had the time of its most urgent request; the others may have time left.
            Code::DeadlineExceeded => {
                let (expired, retry) = (self.requests.into_iter())
                    .partition(|request| request.deadline <= now + EXPIRY_MARGIN);
                fail_requests(expired, server, &status);
                Leftover { retry, server_failure: Some(status), ..Leftover::default() }
            }
            // At least one request is wrong. Batches of half as many, again and again, end with that one alone.
            Code::InvalidArgument if self.requests.len() > 1 => {
                let batch_max = self.requests.len().div_ceil(2) as u16;
                let retry = self.requests.into_iter();
                let retry = retry.map(|one| PendingRequest { may_share: false, batch_max, ..one });
                Leftover { retry: retry.collect(), ..Leftover::default() }
            }
            _ => {
                fail_requests(self.requests, server, &status);
                Leftover::default()
            }
        }
    }
}

/// The `count` numbers from `first` on. Saturates, so that no answer of a server overflows.
fn range(first: u64, count: u64, increment: u64) -> Numbers {
    let span = count.saturating_sub(1).saturating_mul(increment);
    Numbers { first, last: first.saturating_add(span), increment }
}

/// The failure of a place whose key gets nothing.
#[derive(Clone)]
struct RefusedPlace {
    status: Status,
    reason: Reason,
    /// How many numbers are left, if they are fewer than were asked for.
    left: Option<u64>,
}

/// The places whose keys get nothing.
fn refused_places(
    refused: Vec<RefusedKeys>, exhausted: Option<Box<Exhausted>>,
) -> HashMap<u32, RefusedPlace> {
    let told = |failure: Option<Box<Failure>>, unsaid: Status| match failure {
        Some(failure) => (failure.reason(), failure.into_status()),
        None => (Reason::Unspecified, unsaid),
    };
    let mut all = HashMap::new();
    for RefusedKeys { places, failure, .. } in refused {
        let (reason, status) = told(failure, Status::unknown("the server does not say why"));
        let one = RefusedPlace { status, reason, left: None };
        all.extend(places.into_iter().map(|place| (place, one.clone())));
    }
    if let Some(exhausted) = exhausted {
        let Exhausted { places, left, failure } = *exhausted;
        let unsaid = Status::out_of_range("the numbers of the namespace are used up");
        let (reason, status) = told(failure, unsaid);
        let one = |left| RefusedPlace { status: status.clone(), reason, left: Some(left) };
        all.extend(places.into_iter().zip(left.into_iter().map(one)));
    }
    all
}

/// Why a request for `count` numbers of a refused key got none.
fn refusal(server: &str, status: &Status, count: u64, left: Option<u64>) -> Error {
    let Some(left) = left else {
        return Error::status(server, status);
    };
    let text = format!("count is {count}, and {left} numbers are left: {}", status.message());
    let details = status.details().to_vec().into();
    Error::status(server, &Status::with_details(status.code(), text, details))
}

#[cfg(test)]
mod tests;

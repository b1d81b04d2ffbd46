//! Messages that have arrived in part: how much memory they hold, and how long the rest of them may take.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::{
    Request,
    body::{Body, Frame, Incoming, SizeHint},
};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Status, codegen::Service, service::Routes};

use crate::{
    node::{COUNTED_BYTES_MIN, Caller, RequestMemory, Reservation, Silence},
    proto::{Refusal, STREAMS, refusal},
};

// Limits the memory of messages that have arrived in part, and how long the rest of them may take.
//
// The gRPC library buffers the beginning of a message until its end arrives. A caller that never sends the end would
// hold up to a whole message's memory with each of its calls.
//
// A stream may be silent between its messages. Every other call is its message, and its end.
//
// A call whose message finds no memory is refused: it has done nothing. A stream is not read until there is some, because its
// earlier messages may have been carried out, and what ends a stream is told of all of them.
//
// Invariant: the bytes of an unfinished message are reserved in `RequestMemory` like those of waiting requests, unless
// they are few. Most messages are short, and arrive in one piece. A message of a stream has the memory of all of it from the
// start: streams that wait hold none, and so never wait for one another.

/// The largest message that a client may send, in bytes.
pub const CLIENT_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The paths of the library's own streams begin so. They do not end by themselves when the node stops, as ours do.
const REFLECTION: &str = "/grpc.reflection.";

/// Routes whose requests' unfinished messages are metered in `memory`. Each part of a message may take `patience` to arrive. A
/// stream may be silent for `idle`, if others need its place. All streams end at `stop`.
pub fn metered(
    routes: Routes, memory: Arc<RequestMemory>, [patience, idle]: [Duration; 2],
    stop: CancellationToken,
) -> InspectedRoutes<impl Fn(&mut Request<Incoming>) -> Meter + Clone> {
    InspectedRoutes::new(routes.prepare(), move |request: &mut Request<_>| {
        let path = request.uri().path();
        let ends = path.starts_with(REFLECTION);
        let stop = ends.then(|| Box::pin(stop.clone().cancelled_owned()));
        let arrival = Arrival::new(ends || STREAMS.contains(&path));
        let silence = arrival.is_stream.then(|| Caller::silence(idle)).flatten();
        Meter { silence, stop, ..Meter::new(memory.clone(), patience, arrival) }
    })
}

/// Meters the messages of one call as they arrive.
pub struct Meter {
    memory: Arc<RequestMemory>,
    patience: Duration,
    arrival: Arrival,
    reservation: Option<Reservation>,
    /// Which message of a stream that is for: how many were whole before it.
    reserved_for: u64,
    held_back: Option<HeldBack>,
    /// That of a stream between its messages.
    silence: Option<Silence>,
    /// What ends it, if nothing else does.
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// What a stream has brought of a message for which there is no memory yet.
struct HeldBack {
    data: Bytes,
    room: Pin<Box<dyn Future<Output = Result<Reservation, Refusal>> + Send>>,
}

impl Meter {
    fn new(memory: Arc<RequestMemory>, patience: Duration, arrival: Arrival) -> Meter {
        Meter {
            memory,
            patience,
            arrival,
            reservation: None,
            reserved_for: 0,
            held_back: None,
            silence: None,
            stop: None,
        }
    }

    /// Ready with why the call ends, if the node stops.
    fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        match &mut self.stop {
            None => Poll::Pending,
            Some(stop) => stop
                .as_mut()
                .poll(cx)
                .map(|()| refusal!(NodeStopping, "the node stops; ask another one").into()),
        }
    }

    /// Reserves the memory of the message of a stream of which `data`, the last that came, leaves so many bytes `unfinished`.
    /// Returns what the gRPC library may see before it is there.
    fn look_at_stream(&mut self, mut data: Bytes, unfinished: usize) -> Bytes {
        if unfinished == 0 || self.reserved_for != self.arrival.whole {
            self.reservation = None;
        }
        if self.reservation.is_some() || unfinished < COUNTED_BYTES_MIN {
            return data;
        }
        self.reserved_for = self.arrival.whole;
        // The library refuses a longer one as soon as it sees the header.
        let bytes = self.arrival.message_bytes().min(CLIENT_MESSAGE_BYTES_MAX);
        match self.memory.try_reserve(bytes) {
            Ok(reserved) => self.reservation = Some(reserved),
            Err(_) => {
                let before = data.len().saturating_sub(unfinished + HEADER_BYTES);
                let room = self.memory.clone().reserve_in_time(bytes, self.patience);
                let (data, room) = (data.split_off(before), Box::pin(room));
                // While it is held back, the caller is not late.
                self.arrival.awaited = None;
                self.held_back = Some(HeldBack { data, room });
            }
        }
        data
    }
}

impl Inspect for Meter {
    /// Reserves the memory of the message that `data` leaves unfinished.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is none left, unless the call is a stream.
    fn look(&mut self, data: Bytes) -> Result<Bytes, Status> {
        let unfinished = self.arrival.advance(&data);
        if let Some(silence) = &mut self.silence {
            silence.end();
        }
        if self.arrival.is_stream {
            return Ok(self.look_at_stream(data, unfinished));
        }
        // Released first: the new reservation contains the bytes of the old one.
        self.reservation = None;
        self.reservation = self.memory.reserve_if_many(unfinished)?;
        Ok(data)
    }

    fn has_held_back(&self) -> bool {
        self.held_back.is_some()
    }

    /// Waits for the memory of the message that was held back.
    fn poll_held_back(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        let Some(held_back) = &mut self.held_back else {
            return Poll::Ready(None);
        };
        let Poll::Ready(reserved) = held_back.room.as_mut().poll(cx) else {
            return self.poll_stopped(cx).map(|why| Some(Err(why)));
        };
        let data = self.held_back.take().map(|held_back| held_back.data);
        Poll::Ready(match reserved {
            Ok(reserved) => {
                self.reservation = Some(reserved);
                data.map(Ok)
            }
            // The outcome of a stream is that of all its messages.
            Err(why) => Some(Err(refusal!(
                DeadlineExceeded,
                "no memory for the next message came free within {} ms (request_timeout_max_ms): {why}",
                self.patience.as_millis()
            )
            .into())),
        })
    }

    /// Waits for more, unless that is late.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if let Poll::Ready(why) = self.poll_stopped(cx) {
            return Poll::Ready(why);
        }
        if self.arrival.is_between_messages()
            && let Some(silence) = &mut self.silence
            && let Poll::Ready(too_long) = silence.poll_too_long(cx)
        {
            return Poll::Ready(too_long.into());
        }
        ready!(self.arrival.poll_late(self.patience, cx));
        let late = refusal!(
            DeadlineExceeded,
            "the message did not arrive in time: {} KiB of it, or its end, must come within {} ms \
             (request_timeout_max_ms); send it at once",
            PART_BYTES >> 10,
            self.patience.as_millis()
        );
        // The outcome of a stream is that of all its messages.
        Poll::Ready(if self.arrival.is_stream { late.into() } else { late.not_done().into() })
    }
}

// A request's body that is inspected while it arrives, before the gRPC library sees a whole message.

/// Looks at what a call brings.
pub trait Inspect: Unpin {
    /// Looks at data that has arrived. Returns what the gRPC library may see now.
    ///
    /// # Errors
    /// Why the call ends.
    fn look(&mut self, data: Bytes) -> Result<Bytes, Status>;

    /// Whether a part of what was looked at waits until the gRPC library may see it. No more is read before.
    fn has_held_back(&self) -> bool {
        false
    }

    /// That part, once the library may see it, or why the call ends; `None` if none waits.
    fn poll_held_back(&mut self, _cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        Poll::Ready(None)
    }

    /// More is waited for. Ready with why the call ends, if it ends for that.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Status>;
}

/// Routes that answer calls whose bodies are inspected.
#[derive(Clone)]
pub struct InspectedRoutes<F> {
    routes: Routes,
    inspector: F,
}

impl<F> InspectedRoutes<F> {
    /// Has `routes`, which are prepared, answer. What `inspector` makes for a call looks at its body.
    pub fn new(routes: Routes, inspector: F) -> Self {
        InspectedRoutes { routes, inspector }
    }
}

impl<I: Inspect + Send + 'static, F: Fn(&mut Request<Incoming>) -> I> Service<Request<Incoming>>
    for InspectedRoutes<F>
{
    type Response = <Routes as Service<Request<Incoming>>>::Response;
    type Error = <Routes as Service<Request<Incoming>>>::Error;
    type Future = <Routes as Service<Request<Incoming>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<Incoming>>::poll_ready(&mut self.routes, cx)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        let inspect = (self.inspector)(&mut request);
        self.routes.call(request.map(|body| InspectedBody { body, inspect }))
    }
}

/// The body of one call's request.
struct InspectedBody<I> {
    body: Incoming,
    inspect: I,
}

impl<I: Inspect> Body for InspectedBody<I> {
    type Data = Bytes;
    type Error = tonic::codegen::StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(data) = ready!(self.inspect.poll_held_back(cx)) {
            return Poll::Ready(Some(Ok(Frame::data(data?))));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return self.inspect.wait(cx).map(|why| Some(Err(why.into())));
        };
        Poll::Ready(frame.map(|frame| match frame?.into_data() {
            Ok(data) => Ok(Frame::data(self.inspect.look(data)?)),
            Err(trailers) => Ok(trailers),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && !self.inspect.has_held_back()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// How far a call's data reaches into its present message, and whether the rest is late.
//
// A caller that never ends what it has begun holds it for ever. One whose data waits here, because it does not read
// its answers, is not late: the clock runs only while more is waited for, and each part of a message has its own time.
//
// Invariant: while more of a message is waited for, `PART_BYTES` of it, or its end, arrive within the patience. So a
// message of `n` bytes takes at most `1 + n / PART_BYTES` times that.

/// A gRPC message begins with a flag in one byte and its length in four.
pub const HEADER_BYTES: usize = 5;

/// How many bytes of a message arrive in time at least, unless it ends before. HTTP/2 lets a caller send as many while nobody
/// reads them: it opens a window of 64 KiB again once half of it is used.
pub const PART_BYTES: usize = 32 << 10;

/// The messages of one call, as they arrive.
#[derive(Debug, Default)]
pub struct Arrival {
    /// Whether there may be any number of messages, and silence between them. Otherwise there is one, and the call's end.
    pub is_stream: bool,
    /// The header that is arriving, and how many of its bytes have arrived.
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// How many bytes of the present message have arrived, and how many are missing.
    received: usize,
    missing: usize,
    /// How many messages are whole.
    whole: u64,
    awaited: Option<Awaited>,
}

/// What is waited for.
#[derive(Debug)]
struct Awaited {
    late: Pin<Box<Sleep>>,
    /// How many messages were whole, and how much of the next one had arrived, when the waiting began.
    whole: u64,
    received: usize,
}

impl Arrival {
    /// Nothing has arrived yet.
    pub fn new(is_stream: bool) -> Arrival {
        Arrival { is_stream, ..Arrival::default() }
    }

    /// Reads `data`. Returns how many bytes of an unfinished message have arrived; 0 between two messages.
    pub fn advance(&mut self, mut data: &[u8]) -> usize {
        while !data.is_empty() {
            if self.missing == 0 {
                let part = data.len().min(HEADER_BYTES - self.header_bytes);
                let (taken, rest) = data.split_at(part);
                self.header[self.header_bytes..][..part].copy_from_slice(taken);
                self.header_bytes += part;
                data = rest;
                if self.header_bytes == HEADER_BYTES {
                    let [_, length @ ..] = self.header;
                    self.missing = u32::from_be_bytes(length) as usize;
                    (self.header_bytes, self.received) = (0, 0);
                    self.whole += u64::from(self.missing == 0);
                }
            } else {
                let part = data.len().min(self.missing);
                self.missing -= part;
                self.received += part;
                data = &data[part..];
                self.whole += u64::from(self.missing == 0);
            }
        }
        assert!(self.header_bytes < HEADER_BYTES, "a whole header is parsed");
        // After its message a call has nothing to bring but its end.
        if self.is_stream || self.whole == 0 {
            let (whole, received) = (self.whole, self.received);
            self.awaited.take_if(|awaited| {
                awaited.whole != whole || received >= awaited.received + PART_BYTES
            });
        }
        if self.missing == 0 { 0 } else { self.received }
    }

    /// How many bytes the present message has, as its header says; 0 between two messages.
    pub fn message_bytes(&self) -> usize {
        if self.missing == 0 { 0 } else { self.received.saturating_add(self.missing) }
    }

    /// Whether a stream may be silent now: no message has begun that has not ended.
    fn is_between_messages(&self) -> bool {
        self.is_stream && self.header_bytes == 0 && self.missing == 0
    }

    /// More is waited for. Ready if that is late.
    pub fn poll_late(&mut self, patience: Duration, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_between_messages() {
            self.awaited = None;
            return Poll::Pending;
        }
        let (whole, received) = (self.whole, self.received);
        let awaited = self.awaited.get_or_insert_with(|| Awaited {
            late: Box::pin(sleep(patience)),
            whole,
            received,
        });
        ready!(awaited.late.as_mut().poll(cx));
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    use crate::{
        metrics::Metrics,
        node::Config,
        proto::{
            reason_of,
            v1::{Outcome, Reason},
        },
    };

    const PATIENCE: Duration = Duration::from_secs(10);
    const NEARLY: Duration = Duration::from_secs(9);

    fn message(length: u32) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(length.to_be_bytes());
        bytes.extend((0..length).map(|i| i as u8));
        bytes
    }

    /// Whether it is late, once it was waited for until now.
    fn is_late(arrival: &mut Arrival) -> bool {
        std::future::poll_fn(|cx| arrival.poll_late(PATIENCE, cx)).now_or_never().is_some()
    }

    #[test]
    fn the_bytes_of_an_unfinished_message_are_known_wherever_the_data_is_cut() {
        let messages: Vec<Vec<u8>> = [3, 0, 300, 1].map(message).into();
        let all = messages.concat();
        for size in [1, 2, 4, 5, 6, 7, 100, all.len()] {
            let mut arrival = Arrival::new(true);
            let mut end = 0;
            for data in all.chunks(size) {
                end += data.len();
                let mut rest = end;
                let mut messages = messages.iter();
                let (expected, of) = loop {
                    match messages.next() {
                        Some(whole) if rest >= whole.len() => rest -= whole.len(),
                        Some(part) if rest >= HEADER_BYTES => {
                            break (rest - HEADER_BYTES, part.len() - HEADER_BYTES);
                        }
                        _ => break (0, 0),
                    }
                };
                assert_eq!(arrival.advance(data), expected, "{end} bytes, {size} at a time");
                assert_eq!(arrival.message_bytes(), of, "{end} bytes, {size} at a time");
            }
            assert_eq!(arrival.whole, 4);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_not_late_whose_messages_end_where_the_next_one_begins() {
        let mut arrival = Arrival::new(true);
        let (begin, end) = (&message(100)[..7].to_vec(), &message(100)[7..].to_vec());
        arrival.advance(begin);
        for round in 0..10 {
            assert!(!is_late(&mut arrival), "{round}");
            tokio::time::advance(NEARLY).await;
            arrival.advance(&[&end[..], begin].concat());
        }
        assert!(!is_late(&mut arrival));
        tokio::time::advance(PATIENCE).await;
        assert!(is_late(&mut arrival), "its last message does not end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_not_late_whose_data_waits_to_be_read() {
        let mut arrival = Arrival::new(true);
        let message = message(1 << 20);
        arrival.advance(&message[..100]);
        for part in message[100..].chunks(PART_BYTES) {
            assert!(!is_late(&mut arrival));
            // Nobody asks for more, since the answers are not read. What has arrived meanwhile comes then.
            tokio::time::advance(2 * PATIENCE).await;
            arrival.advance(part);
        }
        assert!(!is_late(&mut arrival), "it is whole");
        tokio::time::advance(100 * PATIENCE).await;
        assert!(!is_late(&mut arrival), "a stream may be silent");
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_comes_byte_by_byte_is_late() {
        for is_stream in [true, false] {
            let mut arrival = Arrival::new(is_stream);
            let bytes = message(1 << 20);
            let mut bytes = bytes.iter();
            let mut seconds = 0;
            loop {
                arrival.advance(&[*bytes.next().expect("it ends before")]);
                if is_late(&mut arrival) {
                    break;
                }
                tokio::time::advance(Duration::from_secs(1)).await;
                seconds += 1;
            }
            assert_eq!(seconds, PATIENCE.as_secs());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_of_one_message_is_late_if_it_brings_others_instead_of_its_end() {
        let mut arrival = Arrival::new(false);
        assert!(!is_late(&mut arrival), "its message is waited for");
        tokio::time::advance(NEARLY).await;
        arrival.advance(&message(2 * PART_BYTES as u32));
        assert!(!is_late(&mut arrival), "its end is waited for");
        tokio::time::advance(NEARLY).await;
        arrival.advance(&message(2 * PART_BYTES as u32));
        assert!(is_late(&mut arrival));
    }
    /// A call's meter, and the memory, of 16 MB.
    fn meter(is_stream: bool) -> (Meter, Arc<RequestMemory>) {
        let config = Config { memory_requests_max_mb: 16, ..Config::default() };
        let memory = RequestMemory::new(&config, &Metrics::new());
        (Meter::new(memory.clone(), PATIENCE, Arrival::new(is_stream)), memory)
    }

    /// What comes of what is held back by now.
    fn held_back(meter: &mut Meter) -> Poll<Option<Result<Bytes, Status>>> {
        let polled = std::future::poll_fn(|cx| meter.poll_held_back(cx)).now_or_never();
        polled.map_or(Poll::Pending, Poll::Ready)
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_of_a_stream_that_finds_no_memory_waits_and_those_before_it_do_not() {
        let (mut meter, memory) = meter(true);
        let all = memory.reserve(16 << 20).expect("all of it");
        let (first, second) = (message(10), message(20_000));
        let begun = [&first[..], &second[..6_000]].concat();
        let seen = meter.look(begun.into()).expect("a stream is not refused");
        assert_eq!(seen, first, "the first message is whole");
        assert!(meter.has_held_back() && held_back(&mut meter).is_pending());
        tokio::time::advance(NEARLY).await;
        assert!(held_back(&mut meter).is_pending());
        drop(all);
        tokio::time::advance(PATIENCE - NEARLY).await;
        let Poll::Ready(Some(Ok(seen))) = held_back(&mut meter) else {
            panic!("there is memory");
        };
        assert_eq!(seen, second[..6_000]);
        assert!(!meter.has_held_back());
        // It has the memory of all of it, and gives it back at its end.
        memory.try_reserve((16 << 20) - 19_999).expect_err("20 000 bytes are reserved");
        let _most = memory.try_reserve((16 << 20) - 20_000).expect("the rest of the memory");
        assert_eq!(meter.look(second[6_000..].to_vec().into()).expect("its end"), second[6_000..]);
        memory.try_reserve(20_000).expect("it is given back");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_ends_for_want_of_memory_does_not_say_that_nothing_was_done() {
        let (mut meter, memory) = meter(true);
        let _all = memory.reserve(16 << 20).expect("all of it");
        let (header, rest) =
            (&message(1 << 20)[..3].to_vec(), &message(1 << 20)[3..9_000].to_vec());
        assert_eq!(meter.look(header.clone().into()).expect("few bytes"), header);
        let seen = meter.look(rest.clone().into()).expect("a stream is not refused");
        assert!(seen.is_empty(), "none of it is another message's");
        assert!(held_back(&mut meter).is_pending());
        tokio::time::advance(PATIENCE).await;
        let Poll::Ready(Some(Err(late))) = held_back(&mut meter) else {
            panic!("there is no memory");
        };
        assert_eq!(reason_of(&late), (Reason::DeadlineExceeded, Outcome::Unknown));
        assert!(late.message().contains("memory_requests_max_mb is 16"), "{late}");
    }

    #[test]
    fn a_call_of_one_message_that_finds_no_memory_is_refused_and_was_not_done() {
        let (mut meter, memory) = meter(false);
        let _all = memory.reserve(16 << 20).expect("all of it");
        let refused = meter.look(message(20_000)[..9_000].to_vec().into()).expect_err("no memory");
        assert_eq!(reason_of(&refused), (Reason::Busy, Outcome::NotDone));
    }
}

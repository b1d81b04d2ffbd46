//! Limits the memory of messages that have arrived in part, and how long the rest of them may take.
//!
//! The gRPC library buffers the beginning of a message until its end arrives. A caller that never sends the end would
//! hold up to a whole message's memory with each of its calls.
//!
//! A stream may be silent between its messages. Every other call is its message, and its end.
//!
//! A call whose message finds no memory is refused: it has done nothing. A stream is not read until there is some. Its earlier
//! messages may have been carried out, and the error that ends a stream counts for all of them.
//!
//! Invariant: the bytes of an unfinished message are reserved in `RequestMemory` like those of waiting requests, unless
//! they are few. Most messages are short, and arrive in one piece. A message of a stream has the memory of all of it from the
//! start: streams that wait hold none, and so never wait for one another.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use hyper::{Request, body::Incoming};
use tonic::{Status, service::Routes};

use super::{
    arrival::{Arrival, HEADER_BYTES, PART_BYTES},
    inspected_body::{Inspect, InspectedRoutes},
    reflection::ReflectionCaller,
};
use crate::{
    node::{COUNTED_BYTES_MIN, Caller, RequestMemory, Reservation, Silence},
    proto::{Refusal, STREAMS, refusal},
};

/// The largest message that a client may send, in bytes.
pub const CLIENT_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Routes whose requests' unfinished messages are metered in `memory`. Each part of a message may take `patience` to arrive. A
/// stream may be silent for `idle`, if others need its place. Each message to the reflection service is let in, or not.
pub fn metered(
    routes: Routes, memory: Arc<RequestMemory>, [patience, idle]: [Duration; 2],
) -> InspectedRoutes<impl Fn(&mut Request<Incoming>) -> Meter + Clone> {
    InspectedRoutes::new(routes.prepare(), move |request: &mut Request<_>| {
        let caller: Option<Arc<ReflectionCaller>> = request.extensions().get().cloned();
        let is_stream = caller.is_some() || STREAMS.contains(&request.uri().path());
        let arrival = Arrival::new(is_stream);
        let silence = is_stream.then(|| Caller::silence(idle)).flatten();
        let ended = caller.clone().map(|caller| caller.until_ended().boxed());
        Meter { silence, caller, ended, ..Meter::new(memory.clone(), patience, arrival) }
    })
}

/// Meters the messages of one call as they arrive.
pub struct Meter {
    memory: Arc<RequestMemory>,
    patience: Duration,
    arrival: Arrival,
    reservation: Option<Reservation>,
    /// The number of the message of a stream that the reservation is for: so many were whole before it.
    reserved_for: u64,
    held_back: Option<HeldBack>,
    /// The silence of a stream between its messages.
    silence: Option<Silence>,
    /// Of a stream of the reflection service.
    caller: Option<Arc<ReflectionCaller>>,
    /// The end of that stream.
    ended: Option<BoxFuture<'static, Status>>,
}

/// The bytes of a message for which there is no memory yet.
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
            caller: None,
            ended: None,
        }
    }

    /// Reserves the memory of the message of a stream. `data` is the last part that came, and leaves so many bytes
    /// `unfinished`. Returns the bytes that the gRPC library may see before the memory is there.
    fn look_at_stream(&mut self, mut data: Bytes, unfinished: usize) -> Bytes {
        if unfinished == 0 || self.reserved_for != self.arrival.whole() {
            self.reservation = None;
        }
        if self.reservation.is_some() || unfinished < COUNTED_BYTES_MIN {
            return data;
        }
        self.reserved_for = self.arrival.whole();
        // The library refuses a longer one as soon as it sees the header.
        let bytes = self.arrival.message_bytes().min(CLIENT_MESSAGE_BYTES_MAX);
        match self.memory.try_reserve(bytes) {
            Ok(reserved) => self.reservation = Some(reserved),
            Err(_) => {
                let before = data.len().saturating_sub(unfinished + HEADER_BYTES);
                let room = self.memory.clone().reserve_in_time(bytes, self.patience);
                let (data, room) = (data.split_off(before), Box::pin(room));
                // While it is held back, the caller is not late.
                self.arrival.is_not_awaited();
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
    /// RESOURCE_EXHAUSTED if there is none left, unless the call is a stream. Of a stream of the reflection service: those of
    /// [`ReflectionCaller::let_in`].
    fn look(&mut self, data: Bytes) -> Result<Bytes, Status> {
        if let Some(caller) = &self.caller {
            caller.let_in()?;
        }
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
        let reserved = ready!(held_back.room.as_mut().poll(cx));
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
        if let Some(ended) = &mut self.ended
            && let Poll::Ready(why) = ended.poll_unpin(cx)
        {
            self.ended = None;
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

#[cfg(test)]
mod tests {
    use super::{
        super::arrival::tests::{NEARLY, PATIENCE, message},
        *,
    };
    use crate::{
        metrics::Metrics,
        node::Config,
        proto::{
            reason_of,
            v1::{Outcome, Reason},
        },
    };

    /// A call's meter, and the memory, of 16 MB.
    fn meter(is_stream: bool) -> (Meter, Arc<RequestMemory>) {
        let config = Config { memory_requests_max_mb: 16, ..Config::default() };
        let memory = RequestMemory::new(&config, &Metrics::new());
        (Meter::new(memory.clone(), PATIENCE, Arrival::new(is_stream)), memory)
    }

    /// The outcome, by now, for the bytes that are held back.
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
        memory.try_reserve(20_000).expect("it is freed");
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

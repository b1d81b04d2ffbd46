//! Limits the memory of messages that have arrived in part, and how long their ends may take.
//!
//! The gRPC library buffers the beginning of a message until its end arrives. A caller that never sends the
//! end would hold up to a whole message's memory with each of its calls.
//!
//! A stream may be silent between its messages. Every other call is its message, and its end.
//!
//! Invariant: the bytes of an unfinished message are reserved in [`RequestMemory`] like those of waiting requests, unless they
//! are few. Most messages are short, and arrive in one piece.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::{Request, body::Incoming};
use tokio::time::{Sleep, sleep};
use tonic::{Status, codegen::Service, service::Routes};

use super::inspected_body::{Inspect, InspectedBody};
use crate::node::{RequestMemory, Reservation};

/// The largest message that a client may send, in bytes.
pub const CLIENT_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The calls that are streams of messages.
const STREAMS: [&str; 4] = [
    "/ratchet.v1.Sequencer/NextMany",
    "/ratchet.v1.Ids/NextMany",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// A gRPC message begins with a flag in one byte and its length in four.
pub const HEADER_BYTES: usize = 5;

/// Routes whose requests' unfinished messages are metered.
#[derive(Clone)]
pub struct MeteredRoutes {
    routes: Routes,
    memory: Arc<RequestMemory>,
    patience: Duration,
}

impl MeteredRoutes {
    /// Meters the requests to `routes` in `memory`. A message may take `patience` to arrive.
    pub fn new(routes: Routes, memory: Arc<RequestMemory>, patience: Duration) -> Self {
        MeteredRoutes { routes: routes.prepare(), memory, patience }
    }
}

impl Service<Request<Incoming>> for MeteredRoutes {
    type Response = <Routes as Service<Request<Incoming>>>::Response;
    type Error = <Routes as Service<Request<Incoming>>>::Error;
    type Future = <Routes as Service<Request<Incoming>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<Incoming>>::poll_ready(&mut self.routes, cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let is_stream = STREAMS.contains(&request.uri().path());
        let meter = Meter {
            memory: self.memory.clone(),
            patience: self.patience,
            is_stream,
            position: MessagePosition::default(),
            reservation: None,
            late: None,
        };
        self.routes.call(request.map(|body| InspectedBody::new(body, meter)))
    }
}

/// Meters the messages of one call as they arrive.
struct Meter {
    memory: Arc<RequestMemory>,
    patience: Duration,
    is_stream: bool,
    position: MessagePosition,
    reservation: Option<Reservation>,
    /// When what is waited for is late.
    late: Option<Pin<Box<Sleep>>>,
}

impl Inspect for Meter {
    /// Reserves the memory of the message that `data` leaves unfinished.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is none left.
    fn look(&mut self, data: &[u8]) -> Result<(), Status> {
        let unfinished = self.position.advance(data);
        // Released first: the new reservation contains the bytes of the old one.
        self.reservation = None;
        self.reservation = self.memory.reserve_if_many(unfinished)?;
        Ok(())
    }

    /// Waits for more, unless that is late.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if self.is_stream && self.position.is_between_messages() {
            self.late = None;
            return Poll::Pending;
        }
        let patience = self.patience;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(late.as_mut().poll(cx));
        Poll::Ready(Status::deadline_exceeded(format!(
            "the message did not arrive within {} ms (request_timeout_max_ms); send it at once",
            patience.as_millis()
        )))
    }
}

/// How far a call's data reaches into its present message.
#[derive(Debug, Default)]
struct MessagePosition {
    /// The header that is arriving, and how many of its bytes have arrived.
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// How many bytes of the present message have arrived, and how many are missing.
    received: usize,
    missing: usize,
}

impl MessagePosition {
    fn is_between_messages(&self) -> bool {
        self.header_bytes == 0 && self.missing == 0
    }

    /// Reads `data`. Returns how many bytes of an unfinished message have arrived; 0 between two messages.
    fn advance(&mut self, mut data: &[u8]) -> usize {
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
                }
            } else {
                let part = data.len().min(self.missing);
                self.missing -= part;
                self.received += part;
                data = &data[part..];
            }
        }
        debug_assert!(self.header_bytes < HEADER_BYTES, "a whole header is parsed");
        if self.missing == 0 { 0 } else { self.received }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: u32) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(length.to_be_bytes());
        bytes.extend((0..length).map(|i| i as u8));
        bytes
    }

    #[test]
    fn the_bytes_of_an_unfinished_message_are_known_wherever_the_data_is_cut() {
        let messages: Vec<Vec<u8>> = [3, 0, 300, 1].map(message).into();
        let all = messages.concat();
        for size in [1, 2, 4, 5, 6, 7, 100, all.len()] {
            let mut position = MessagePosition::default();
            let mut end = 0;
            for data in all.chunks(size) {
                end += data.len();
                let mut rest = end;
                let mut messages = messages.iter();
                let expected = loop {
                    match messages.next() {
                        Some(whole) if rest >= whole.len() => rest -= whole.len(),
                        _ => break rest.saturating_sub(HEADER_BYTES),
                    }
                };
                assert_eq!(position.advance(data), expected, "{end} bytes, {size} at a time");
            }
        }
    }
}

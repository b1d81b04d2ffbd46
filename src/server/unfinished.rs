//! Limits the memory of messages that have arrived in part, and how long the rest of them may take (`arrival.rs`).
//!
//! The gRPC library buffers the beginning of a message until its end arrives. A caller that never sends the
//! end would hold up to a whole message's memory with each of its calls.
//!
//! A stream may be silent between its messages. Every other call is its message, and its end.
//!
//! Invariant: the bytes of an unfinished message are reserved in [`RequestMemory`] like those of waiting requests, unless they
//! are few. Most messages are short, and arrive in one piece.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::{Request, body::Incoming};
use tonic::{Status, service::Routes};

use super::{
    arrival::{Arrival, PART_BYTES},
    inspected_body::{Inspect, InspectedRoutes},
};
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

/// Routes whose requests' unfinished messages are metered in `memory`. Each part of a message may take `patience` to arrive.
pub fn metered(
    routes: Routes, memory: Arc<RequestMemory>, patience: Duration,
) -> InspectedRoutes<impl Fn(&mut Request<Incoming>) -> Meter + Clone> {
    InspectedRoutes::new(routes.prepare(), move |request: &mut Request<_>| {
        let arrival = Arrival::new(STREAMS.contains(&request.uri().path()));
        Meter { memory: memory.clone(), patience, arrival, reservation: None }
    })
}

/// Meters the messages of one call as they arrive.
pub struct Meter {
    memory: Arc<RequestMemory>,
    patience: Duration,
    arrival: Arrival,
    reservation: Option<Reservation>,
}

impl Inspect for Meter {
    /// Reserves the memory of the message that `data` leaves unfinished.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is none left.
    fn look(&mut self, data: Bytes) -> Result<Bytes, Status> {
        let unfinished = self.arrival.advance(&data);
        // Released first: the new reservation contains the bytes of the old one.
        self.reservation = None;
        self.reservation = self.memory.reserve_if_many(unfinished)?;
        Ok(data)
    }

    /// Waits for more, unless that is late.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        ready!(self.arrival.poll_late(self.patience, cx));
        Poll::Ready(Status::deadline_exceeded(format!(
            "the message did not arrive in time: {} KiB of it, or its end, must come within {} ms \
             (request_timeout_max_ms); send it at once",
            PART_BYTES >> 10,
            self.patience.as_millis()
        )))
    }
}

//! Limits the memory of messages that have arrived in part.
//!
//! The gRPC library buffers the beginning of a message until its end arrives. A caller that never sends the
//! end would hold up to a whole message's memory with each of its calls.
//!
//! Invariant: the bytes of an unfinished message are reserved in [`RequestMemory`] like those of waiting requests, unless they
//! are few. Most messages are short, and arrive in one piece.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::{
    Request,
    body::{Body, Frame, Incoming},
};
use tonic::{Status, codegen::Service, service::Routes};

use crate::node::{RequestMemory, Reservation};

/// The largest message that a client may send, in bytes.
pub const CLIENT_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// A gRPC message begins with a flag in one byte and its length in four.
pub const HEADER_BYTES: usize = 5;

/// Routes whose requests' unfinished messages are metered.
#[derive(Clone)]
pub struct MeteredRoutes {
    routes: Routes,
    memory: Arc<RequestMemory>,
}

impl MeteredRoutes {
    /// Meters the requests to `routes` in `memory`.
    pub fn new(routes: Routes, memory: Arc<RequestMemory>) -> Self {
        MeteredRoutes { routes: routes.prepare(), memory }
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
        self.routes.call(request.map(|body| MeteredBody {
            body,
            memory: self.memory.clone(),
            position: MessagePosition::default(),
            reservation: None,
        }))
    }
}

/// The body of one call's request: its messages as they arrive.
struct MeteredBody {
    body: Incoming,
    memory: Arc<RequestMemory>,
    position: MessagePosition,
    reservation: Option<Reservation>,
}

impl MeteredBody {
    /// Reserves the memory of the message that `data` leaves unfinished.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is none left.
    fn meter(&mut self, data: &[u8]) -> Result<(), Status> {
        let unfinished = self.position.advance(data);
        // Released first: the new reservation contains the bytes of the old one.
        self.reservation = None;
        self.reservation = self.memory.reserve_if_many(unfinished)?;
        Ok(())
    }
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = tonic::codegen::StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(status) = self.meter(data)
        {
            return Poll::Ready(Some(Err(status.into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
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

//! Looks at who sends a peer message before the message is whole.
//!
//! The gRPC library buffers a message, of up to 64 MiB, before a service sees it. The header, which says who sends it and
//! knows which data directory this node has, is the first field of the first message of each call: it arrives first.
//!
//! Invariant: a call whose header is refused, or that has none, brings at most [`STRANGER_BYTES_MAX`].

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use hyper::{Request, body::Incoming};
use prost::Message;
use tonic::{Status, codegen::Service, service::Routes};

use super::{
    inspected_body::{Inspect, InspectedBody},
    places::Place,
    unfinished::HEADER_BYTES,
};
use crate::{consensus::Group, proto::peer::Header};

/// How many bytes a call may bring whose header is refused: enough for a greeting, and for the refusal of what is short.
const STRANGER_BYTES_MAX: usize = 64 << 10;
/// Where the header of the first message ends at the latest. It has a name of at most 64 bytes, and six numbers.
const HEADER_END_MAX: usize = 256;
/// The tag of a message's first field, if that is a message or text.
const FIRST_FIELD: u8 = 1 << 3 | 2;

/// Routes of the peer port, for one connection.
#[derive(Clone)]
pub struct PeerRoutes {
    routes: Routes,
    group: Arc<Group>,
    place: Arc<Place>,
}

impl PeerRoutes {
    /// Has `routes` answer what comes over the connection in `place`.
    pub fn new(routes: Routes, group: Arc<Group>, place: Arc<Place>) -> Self {
        PeerRoutes { routes, group, place }
    }
}

impl Service<Request<Incoming>> for PeerRoutes {
    type Response = <Routes as Service<Request<Incoming>>>::Response;
    type Error = <Routes as Service<Request<Incoming>>>::Error;
    type Future = <Routes as Service<Request<Incoming>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<Incoming>>::poll_ready(&mut self.routes, cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let (group, place) = (self.group.clone(), self.place.clone());
        let beginning = Beginning::default();
        let look = LookForSender { group, place, beginning, sender: Sender::Unknown, bytes: 0 };
        self.routes.call(request.map(|body| InspectedBody::new(body, look)))
    }
}

/// What is known of the sender of a call.
#[derive(Debug)]
enum Sender {
    /// Its header has not arrived yet.
    Unknown,
    /// It knows this node's data directory.
    Known,
    /// It is refused, for this reason.
    Refused(Status),
}

/// Looks at who makes a call.
struct LookForSender {
    group: Arc<Group>,
    place: Arc<Place>,
    beginning: Beginning,
    sender: Sender,
    /// How many bytes have arrived.
    bytes: usize,
}

impl Inspect for LookForSender {
    /// Looks at who sends this, as soon as the header has arrived.
    ///
    /// # Errors
    /// Why the sender is refused, if it sends more than a stranger may.
    fn look(&mut self, data: &[u8]) -> Result<(), Status> {
        self.bytes = self.bytes.saturating_add(data.len());
        if matches!(self.sender, Sender::Unknown)
            && let Some(header) = self.beginning.header(data)
        {
            self.sender = self.sender(header);
        }
        match &self.sender {
            Sender::Refused(why) if self.bytes > STRANGER_BYTES_MAX => Err(why.clone()),
            Sender::Refused(_) | Sender::Unknown | Sender::Known => Ok(()),
        }
    }
}

impl LookForSender {
    fn sender(&self, header: Result<Header, Status>) -> Sender {
        let checked = header.and_then(|header| {
            self.group.check_header(Some(&header))?;
            Ok(header)
        });
        match checked {
            Ok(header) => {
                if self.group.is_member(&header) {
                    self.place.keep_for_member();
                }
                Sender::Known
            }
            Err(why) => Sender::Refused(why),
        }
    }
}

fn nobody() -> Status {
    Status::invalid_argument("a peer message without a header")
}

/// The beginning of a call, in which the header lies.
#[derive(Debug, Default)]
struct Beginning(Vec<u8>);

impl Beginning {
    /// The header, once it is whole. `None` until then.
    fn header(&mut self, data: &[u8]) -> Option<Result<Header, Status>> {
        let missing = HEADER_END_MAX - self.0.len();
        self.0.extend_from_slice(&data[..data.len().min(missing)]);
        let [tag, rest @ ..] = self.0.get(HEADER_BYTES..)? else {
            return None;
        };
        if *tag != FIRST_FIELD {
            return Some(Err(nobody()));
        }
        let is_all = self.0.len() == HEADER_END_MAX;
        let mut rest = rest;
        let header =
            prost::decode_length_delimiter(&mut rest).ok().and_then(|length| rest.get(..length));
        match header {
            Some(header) => Some(Header::decode(header).map_err(|_| nobody())),
            None => is_all.then(|| Err(nobody())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::peer::RaftMessage;

    fn header() -> Header {
        Header {
            cluster: "c".repeat(64),
            set: u64::MAX,
            from: u64::MAX,
            to: u64::MAX,
            to_incarnation: u64::MAX,
            election_timeout_ms: u64::MAX,
            from_incarnation: u64::MAX,
        }
    }

    fn call(header: Option<Header>) -> Vec<u8> {
        let message = RaftMessage { header, payload: vec![7; 1_000].into() };
        let mut call = vec![0, 0, 0, 4, 0];
        call.extend(message.encode_to_vec());
        call
    }

    #[test]
    fn the_longest_header_is_found_wherever_the_data_is_cut() {
        let call = call(Some(header()));
        for size in [1, 2, 5, 6, 7, 100, HEADER_END_MAX, call.len()] {
            let mut beginning = Beginning::default();
            let found = call.chunks(size).find_map(|data| beginning.header(data));
            assert_eq!(found.expect("a header").expect("no error"), header(), "{size} at a time");
        }
    }

    #[test]
    fn a_call_that_begins_with_anything_else_has_no_header() {
        let endless = [vec![0, 0xff, 0xff, 0xff, 0xff, FIRST_FIELD], vec![0xff; 300]].concat();
        for call in [call(None), endless] {
            let mut beginning = Beginning::default();
            let found = call.chunks(7).find_map(|data| beginning.header(data));
            let refused = found.expect("it is known").expect_err("no header");
            assert!(refused.message().contains("without a header"), "{refused}");
        }
    }
}

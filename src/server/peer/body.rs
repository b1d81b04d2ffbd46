//! Looks at the sender of a peer message before the message is whole.
//!
//! The gRPC library buffers a message, of up to 64 MiB, before a service sees it, and makes room for it as soon as its length
//! is known. The header names the sender, and the data directory that the sender believes this node to have. It is the first
//! field of the first message of each call. So it arrives first, and the library sees nothing before. Later messages in a
//! member's stream are not looked at here: the service that answers a message refuses it, or does not.
//!
//! Invariant: calls of a connection whose headers are refused, or that have none, hold at most [`STRANGER_BYTES_MAX`] together,
//! and the part that came last. Each ends within three times [`STRANGER_TIME_MAX`]. A node that knows the directory and is no
//! member must end a message that it begins (`connections/arrival.rs`). A node without data tells its directory to anybody:
//! until it is a member, the messages to it are reserved in [`PeerConnection`], whole ones until they are answered (`peer.rs`).

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use hyper::{Request, body::Incoming};
use prost::Message;
use tonic::{Status, service::Routes};

use crate::{
    consensus::{Group, RpcHandler},
    node::{Caller, RequestMemory, Reservation},
    proto::{PEER_STREAMS, Refusal, peer::Header, refusal},
    sequence::NodeId,
    server::connections::{
        arrival::{Arrival, HEADER_BYTES},
        inspected_body::{Inspect, InspectedRoutes},
        places::ConnectionPlace,
    },
};

/// How many bytes the calls of a connection may bring together while they are under way, if their headers are refused. That is
/// enough for greetings, and for the refusal of a short message.
const STRANGER_BYTES_MAX: usize = 64 << 10;
/// How long each half of that may take, and the end of the call after it; of others than members, each part of a message.
const STRANGER_TIME_MAX: Duration = Duration::from_secs(5);
/// Where the header of the first message ends at the latest. It has a name of at most 64 bytes, and six numbers.
const HEADER_END_MAX: usize = 256;
/// The tag of a message's first field, if that is a message or text.
const FIRST_FIELD: u8 = 1 << 3 | 2;

/// A connection of the peer port: its other end, and the memory for the messages that come over it.
#[derive(Clone)]
pub struct PeerConnection {
    /// The group that the messages are for.
    pub group: Arc<Group>,
    /// It answers them, and knows which nodes may send them.
    pub rpc_handler: Arc<RpcHandler>,
    /// The memory of requests.
    pub memory: Arc<RequestMemory>,
    /// The address that they are sent from.
    pub caller: Arc<Caller>,
    /// Which node sends them, by its certificate; `None` without TLS.
    pub certified: Option<NodeId>,
    /// Whether nodes alone can send them, by the configuration of this node (`are_peers_nodes`).
    pub is_nodes: bool,
}

impl PeerConnection {
    /// Whether a node is at the other end, whoever may do what in the cluster.
    fn is_vouched(&self) -> bool {
        self.certified.is_some() || self.is_nodes
    }

    /// Checks that a node is at the other end: its certificate says so, or nobody else reaches the port. While everybody may do
    /// everything, nobody has to show that. The address of the other end tells nothing: a proxy may pass a connection on.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if not everybody may do everything, and strangers could have made the connection.
    pub fn check_vouched(&self) -> Result<(), Refusal> {
        if self.is_vouched() || self.group.view.principals().is_open() {
            return Ok(());
        }
        Err(refusal!(
            WrongState,
            "this message of a node came without TLS, and not everybody may do everything in this cluster, so anybody could \
             pretend to be a node; set peer_tls = require on all nodes, see the page about certificates"
        ))
    }

    /// Ends with the error of [`PeerConnection::check_vouched`], as soon as that has one. `None` if it never has.
    fn until_unvouched(&self) -> Option<BoxFuture<'static, Refusal>> {
        let connection = self.clone();
        let refused = async move {
            loop {
                connection.group.view.until_principals(|known| !known.is_open()).await;
                if let Err(refusal) = connection.check_vouched() {
                    return refusal;
                }
            }
        };
        (!self.is_vouched()).then(|| refused.boxed())
    }

    /// Refuses a message that names another sender than the certificate.
    ///
    /// # Errors
    /// FAILED_PRECONDITION.
    pub fn check_sender(&self, sender: NodeId) -> Result<(), Refusal> {
        match self.certified {
            Some(node) if node != sender => Err(refusal!(
                WrongState,
                "a message of node {sender} came over a connection whose certificate is node {node}'s"
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Reserves `bytes` bytes for a message, unless this node belongs to a cluster. Until then, the leader that adds it is a
    /// stranger like others: those of one address have their share of the memory, and leave the rest to the leader.
    ///
    /// # Errors
    /// Those of [`RequestMemory::reserve`].
    pub fn reserve(&self, bytes: usize) -> Result<Option<Reservation>, Refusal> {
        match self.group.is_formed() {
            true => Ok(None),
            false => self.caller.clone().charge(|| self.memory.reserve_if_many(bytes)),
        }
    }
}

/// Has `routes`, which are prepared, answer the calls that come over the connection in `place` of the peer port.
pub fn from_peers(
    routes: Routes, connection: PeerConnection, place: Arc<ConnectionPlace>,
) -> InspectedRoutes<impl Fn(&mut Request<Incoming>) -> LookForSender + Clone> {
    let strangers = Arc::new(AtomicUsize::new(0));
    InspectedRoutes::new(routes, move |request: &mut Request<_>| {
        request.extensions_mut().insert(connection.clone());
        LookForSender {
            connection: connection.clone(),
            reservation: None,
            place: place.clone(),
            is_stream: PEER_STREAMS.contains(&request.uri().path()),
            beginning: Beginning::default(),
            arrival: Arrival::new(false),
            sender: SenderState::Unknown,
            strangers: strangers.clone(),
            bytes: 0,
            refused: connection.until_unvouched(),
        }
    })
}

/// The sender of a call, as far as it is known.
#[derive(Debug)]
enum SenderState {
    /// Its header has not arrived yet.
    Unknown,
    /// It knows this node's data directory.
    Known(Header),
    /// It is a member.
    Member,
    /// It is refused, for this reason.
    Refused(Status),
}

/// Looks at the sender of a call.
pub struct LookForSender {
    connection: PeerConnection,
    /// Of the message that is arriving, while this node belongs to no cluster.
    reservation: Option<Reservation>,
    place: Arc<ConnectionPlace>,
    is_stream: bool,
    /// The bytes that have arrived, until the sender is known.
    beginning: Beginning,
    arrival: Arrival,
    sender: SenderState,
    /// How many bytes strangers' calls of this connection have brought.
    strangers: Arc<AtomicUsize>,
    /// This call's part of them.
    bytes: usize,
    /// Ends with the reason when nobody vouches for the sender any more.
    refused: Option<BoxFuture<'static, Refusal>>,
}

impl Inspect for LookForSender {
    /// Looks at the sender of the call, as soon as the header has arrived. Nothing goes on before.
    ///
    /// # Errors
    /// Why the sender is refused, if it sends more than a stranger may, or announces that. RESOURCE_EXHAUSTED if there is no
    /// memory for it.
    fn look(&mut self, data: Bytes) -> Result<Bytes, Status> {
        if matches!(self.sender, SenderState::Known(_) | SenderState::Member) {
            // It may have been let in before there were tokens.
            self.connection.check_vouched()?;
        }
        if let SenderState::Known(header) = &self.sender
            && self.connection.rpc_handler.is_member(header)
        {
            // The stream of a leader may be older than this node's knowledge of the members.
            self.let_in();
        }
        if matches!(self.sender, SenderState::Member) {
            return Ok(data);
        }
        self.arrival.advance(&data);
        self.bytes += data.len();
        let held = self.strangers.fetch_add(data.len(), Relaxed) + data.len();
        let data = match self.sender {
            SenderState::Unknown => match self.beginning.header(data) {
                Some((header, arrived)) => {
                    self.look_at_sender(header);
                    arrived
                }
                None => Bytes::new(),
            },
            _ => data,
        };
        let is_too_much = held.max(self.arrival.message_bytes()) > STRANGER_BYTES_MAX;
        match &self.sender {
            SenderState::Refused(why) if is_too_much => Err(why.clone()),
            SenderState::Unknown if held > STRANGER_BYTES_MAX => Err(nobody()),
            SenderState::Refused(_) | SenderState::Unknown => Ok(data),
            SenderState::Known(_) | SenderState::Member => {
                self.is_no_stranger();
                // Released first: the new reservation contains the bytes of the old one.
                self.reservation = None;
                self.reservation = self.connection.reserve(self.arrival.message_bytes())?;
                Ok(data)
            }
        }
    }

    /// Waits for more, unless that is late.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if let Some(refused) = &mut self.refused
            && let Poll::Ready(refusal) = refused.poll_unpin(cx)
        {
            self.refused = None;
            return Poll::Ready(refusal.into());
        }
        if matches!(self.sender, SenderState::Member) {
            return Poll::Pending;
        }
        ready!(self.arrival.poll_late(STRANGER_TIME_MAX, cx));
        Poll::Ready(match &self.sender {
            SenderState::Refused(why) => why.clone(),
            _ => Status::deadline_exceeded(format!(
                "a peer message did not go on for {} s, and its sender is not known as a member here",
                STRANGER_TIME_MAX.as_secs()
            )),
        })
    }
}

impl Drop for LookForSender {
    fn drop(&mut self) {
        self.is_no_stranger();
    }
}

impl LookForSender {
    fn is_no_stranger(&mut self) {
        self.strangers.fetch_sub(mem::take(&mut self.bytes), Relaxed);
    }

    fn look_at_sender(&mut self, header: Result<Header, Status>) {
        let checked = header.and_then(|header| {
            self.connection.check_vouched()?;
            self.connection.check_sender(header.from)?;
            self.connection.rpc_handler.check_header(Some(&header))?;
            Ok(header)
        });
        match checked {
            Ok(header) if self.connection.rpc_handler.is_member(&header) => self.let_in(),
            Ok(header) => {
                self.arrival.is_stream = self.is_stream;
                self.sender = SenderState::Known(header);
            }
            Err(why) => self.sender = SenderState::Refused(why),
        }
    }

    /// A member is not bounded.
    fn let_in(&mut self) {
        self.place.keep_for_member();
        self.reservation = None;
        self.sender = SenderState::Member;
    }
}

fn nobody() -> Status {
    Status::invalid_argument("a peer message without a header")
}

/// The beginning of a call, in which the header lies.
#[derive(Debug, Default)]
struct Beginning(Vec<u8>);

impl Beginning {
    /// The header, once it is whole, and all that has arrived. `None` until then.
    fn header(&mut self, data: Bytes) -> Option<(Result<Header, Status>, Bytes)> {
        let missing = HEADER_END_MAX - self.0.len();
        let before = self.0.len();
        self.0.extend_from_slice(&data[..data.len().min(missing)]);
        let header = self.found()?;
        let arrived = match before {
            0 => data,
            _ => {
                let mut arrived = mem::take(&mut self.0);
                arrived.truncate(before);
                arrived.extend_from_slice(&data);
                arrived.into()
            }
        };
        self.0 = Vec::new();
        Some((header, arrived))
    }

    fn found(&self) -> Option<Result<Header, Status>> {
        let (prefix, message) = self.0.split_at_checked(HEADER_BYTES)?;
        let [tag, rest @ ..] = message else {
            let is_empty = prefix.ends_with(&[0; 4]);
            return is_empty.then(|| Err(nobody()));
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
        let message =
            RaftMessage { header, payload: vec![7; 1_000].into(), ..RaftMessage::default() };
        let mut call = vec![0, 0, 0, 4, 0];
        call.extend(message.encode_to_vec());
        call
    }

    /// The sender that is found in a call that arrives `size` bytes at a time, and all that had arrived until then.
    fn find(call: &[u8], size: usize) -> (Result<Header, Status>, Bytes) {
        let mut beginning = Beginning::default();
        let mut parts = call.chunks(size).map(Bytes::copy_from_slice);
        let found = parts.find_map(|data| beginning.header(data));
        let (header, arrived) = found.expect("it is known");
        assert_eq!(arrived, call[..call.len() - parts.map(|part| part.len()).sum::<usize>()]);
        (header, arrived)
    }

    #[test]
    fn the_longest_header_is_found_wherever_the_data_is_cut_and_nothing_before_it_is_lost() {
        let call = call(Some(header()));
        for size in [1, 2, 5, 6, 7, 100, HEADER_END_MAX, call.len()] {
            let (found, arrived) = find(&call, size);
            assert_eq!(found.expect("no error"), header(), "{size} at a time");
            assert!(arrived.len() < HEADER_END_MAX + size, "{size} at a time");
        }
    }

    #[test]
    fn a_call_that_begins_with_anything_else_has_no_header() {
        let endless = [vec![0, 0xff, 0xff, 0xff, 0xff, FIRST_FIELD], vec![0xff; 300]].concat();
        for call in [call(None), endless, vec![0; HEADER_BYTES]] {
            let refused = find(&call, 7).0.expect_err("no header");
            assert!(refused.message().contains("without a header"), "{refused}");
        }
    }
}

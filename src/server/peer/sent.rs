//! The sender of a message: as its header says, and as the certificate of its connection says. Without TLS nobody vouches for it.
//!
//! Invariant: over a connection with a certificate no message is served whose sender is another node.

use futures::{Stream, StreamExt};
use tonic::{Request, Status, Streaming};

use super::body::PeerConnection;
use crate::{
    proto::{
        Refusal,
        peer::{
            AdministerRequest, ForwardRequests, Header, HelloRequest, MemoryPart, RaftMessage,
            SnapshotPart,
        },
        refuse,
    },
    sequence::NodeId,
};

/// A message of a peer.
pub trait Sent {
    /// Whether only members may send it. Raft's messages are looked at by the group: a node may have to listen to a member
    /// that it does not know yet.
    const BY_MEMBERS: bool;

    /// Which node sends it, as it says. `None` for what follows the first part of a stream.
    fn sender(&self) -> Option<NodeId> {
        self.header().map(|header| header.from)
    }

    /// Its header, if it is the first part of what is sent.
    fn header(&self) -> Option<&Header>;
}

macro_rules! sent {
    ($($message:ident: $by_members:literal,)*) => {
        $(impl Sent for $message {
            const BY_MEMBERS: bool = $by_members;

            fn header(&self) -> Option<&Header> {
                self.header.as_ref()
            }
        })*
    };
}

sent! {
    RaftMessage: false,
    SnapshotPart: false,
    MemoryPart: false,
    ForwardRequests: true,
    AdministerRequest: true,
}

impl Sent for HelloRequest {
    const BY_MEMBERS: bool = false;

    fn sender(&self) -> Option<NodeId> {
        Some(self.from)
    }

    fn header(&self) -> Option<&Header> {
        None
    }
}

/// Checks that the node of the connection's certificate has sent `message`, and may.
///
/// # Errors
/// FAILED_PRECONDITION: nothing was done.
fn check<M: Sent>(connection: Option<&PeerConnection>, message: &M) -> Result<(), Refusal> {
    let (Some(connection), Some(sender)) = (connection, message.sender()) else {
        return Ok(());
    };
    connection.check_sender(sender)?;
    let is_member = || message.header().is_some_and(|header| connection.group.is_member(header));
    if M::BY_MEMBERS && connection.certified.is_some() && !is_member() {
        refuse!(WrongState, "node {sender} is no member of this cluster");
    }
    if M::BY_MEMBERS {
        check_vouched(connection, sender)?;
    }
    Ok(())
}

/// Checks that `sender` may say who asks: without TLS anybody may be the sender.
///
/// # Errors
/// FAILED_PRECONDITION if not everybody may do everything, and the connection comes from elsewhere without a certificate.
fn check_vouched(connection: &PeerConnection, sender: NodeId) -> Result<(), Refusal> {
    if !connection.vouches() && !connection.group.view.principals().is_open() {
        refuse!(
            WrongState,
            "node {sender} speaks for callers without TLS, beyond this machine, and not everybody may do everything here; set \
             peer_tls = require on all nodes, see the page about certificates"
        );
    }
    Ok(())
}

/// The message of a request, and the connection over which it came; `None` in the simulator.
///
/// # Errors
/// As [`check`].
pub fn sent<M: Sent>(request: Request<M>) -> Result<(Option<PeerConnection>, M), Status> {
    let connection = request.extensions().get::<PeerConnection>().cloned();
    let message = request.into_inner();
    check(connection.as_ref(), &message)?;
    Ok((connection, message))
}

/// The messages of a stream, each checked as [`check`] says: a node that is removed meanwhile asks for nothing more. What it
/// asked for before may be done, so whoever answers the stream ends it without a word then.
pub fn all_sent<M: Sent>(
    request: Request<Streaming<M>>,
) -> impl Stream<Item = Result<M, Status>> + Unpin {
    let connection = request.extensions().get::<PeerConnection>().cloned();
    request.into_inner().map(move |message| {
        let message = message?;
        check(connection.as_ref(), &message)?;
        Ok(message)
    })
}

//! The sender of a message, as its header names it, and as the certificate of its connection names it. Without TLS no
//! certificate confirms the header.
//!
//! Invariant: over a connection with a certificate no message is served whose sender is another node. Once not everybody may do
//! everything in the cluster, no message is served for which nobody vouches.

use futures::{Stream, StreamExt, stream};
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

    /// The sender, as the message names it. `None` for the later parts of a stream.
    fn sender(&self) -> Option<NodeId> {
        self.header().map(|header| header.from)
    }

    /// The header, if the message is the first part of a stream, or a call by itself.
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
    let Some(connection) = connection else {
        return Ok(());
    };
    // Of each part of a stream: it may be older than what this node knows of tokens.
    connection.check_vouched()?;
    let Some(sender) = message.sender() else {
        return Ok(());
    };
    connection.check_sender(sender)?;
    let handler = &connection.rpc_handler;
    let is_member = || message.header().is_some_and(|header| handler.is_member(header));
    if M::BY_MEMBERS && connection.certified.is_some() && !is_member() {
        refuse!(WrongState, "node {sender} is no member of this cluster");
    }
    Ok(())
}

/// The message of a request, and the connection over which it came; `None` in the simulator.
///
/// # Errors
/// Those of [`check`].
pub fn sent<M: Sent>(request: Request<M>) -> Result<(Option<PeerConnection>, M), Status> {
    let connection = request.extensions().get::<PeerConnection>().cloned();
    let message = request.into_inner();
    check(connection.as_ref(), &message)?;
    Ok((connection, message))
}

/// The messages of a stream, each checked as [`check`] does, and so is its end: a node that is removed meanwhile gets no
/// further message through. Its error is an item.
///
/// The error says that nothing was done. Earlier requests of a stream of `Forward` may have been carried out, so that service
/// passes on no error after the first message, and ends its stream. The others pass it on: an append is answered before the
/// next one comes, and the parts of a snapshot or of a memory change nothing before all have come.
pub fn all_sent<M: Sent>(
    request: Request<Streaming<M>>,
) -> impl Stream<Item = Result<M, Status>> + Unpin {
    let connection = request.extensions().get::<PeerConnection>().cloned();
    let vouching = connection.clone();
    let parts = request.into_inner().map(move |message| {
        let message = message?;
        check(connection.as_ref(), &message)?;
        Ok(message)
    });
    // The parts are checked together at the end, which may come long after the last of them.
    let end = std::iter::once_with(move || vouching.map_or(Ok(()), |by| by.check_vouched()));
    parts.chain(stream::iter(end.filter_map(|checked| checked.err().map(|why| Err(why.into())))))
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use tempfile::TempDir;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::{
        node::{Addresses, Asker, Config, Node, Seams, hash_of},
        proto::{
            peer::{self, ForwardRequest, asker::Shown},
            v1::SetGrantsRequest,
        },
    };

    const PATIENCE: Duration = Duration::from_secs(300);

    /// A node without ports, in whose cluster everybody may do everything.
    async fn open(dir: &Path) -> Node {
        let config = Config { data_dir: dir.to_owned(), dev: true, ..Config::default() };
        let (client, peer) = (config.listen, config.peer_listen);
        let addresses =
            Addresses { client, peer, metrics: None, http: None, resp: None, admin: None };
        Node::start(config, Seams::default(), addresses).await.expect("a node")
    }

    /// Lets nobody do anything without a token.
    async fn close(node: &Node) {
        let nothing = SetGrantsRequest { principal: "anonymous".to_owned(), ..Default::default() };
        let (operations, local) = (&node.context().operations, Asker::local());
        // The node has to lead first.
        let granting = async {
            while operations.ask(&nothing, &local, Instant::now() + PATIENCE).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, granting).await.expect("granted to nobody");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn with_tokens_a_sender_is_believed_over_tls_or_on_this_machine_and_nowhere_else() {
        let dir = TempDir::new().expect("a temporary directory");
        let node = open(dir.path()).await;
        let context = node.context();
        let over = |certified, is_nodes| PeerConnection {
            group: context.group.clone(),
            rpc_handler: context.services.of_group.rpc_handler().clone(),
            memory: context.request_memory.clone(),
            caller: context.callers.at([10, 0, 0, 1].into()),
            certified,
            is_nodes,
        };
        let from = context.config.node_id;
        let from_incarnation = context.this_node.store.incarnation();
        let header = Some(Header { from, from_incarnation, ..Header::default() });
        let stranger = over(None, false);
        let raft = RaftMessage { header: header.clone(), ..RaftMessage::default() };
        check(Some(&stranger), &raft).expect("everybody may do everything");
        close(&node).await;
        let admin = hash_of(b"the-token-of-an-administrator").0.to_vec();
        for shown in [Shown::TokenSha256(admin.into()), Shown::Local(true)] {
            let (header, by) = (header.clone(), Some(peer::Asker { shown: Some(shown) }));
            let number = ForwardRequest { by: by.clone(), ..ForwardRequest::default() };
            let numbers = ForwardRequests { header: header.clone(), requests: vec![number] };
            let operation =
                AdministerRequest { header: header.clone(), by, ..AdministerRequest::default() };
            let greeting = HelloRequest { from, ..HelloRequest::default() };
            let raft = RaftMessage { header: header.clone(), ..RaftMessage::default() };
            let snapshot = SnapshotPart { header: header.clone(), ..SnapshotPart::default() };
            let memory = MemoryPart { header, ..MemoryPart::default() };
            // The later messages of a stream that began before there were tokens.
            let (part, append) = (SnapshotPart::default(), RaftMessage::default());
            let checked = |connection: PeerConnection| {
                let connection = Some(&connection);
                [
                    check(connection, &numbers),
                    check(connection, &operation),
                    check(connection, &greeting),
                    check(connection, &raft),
                    check(connection, &snapshot),
                    check(connection, &memory),
                    check(connection, &part),
                    check(connection, &append),
                ]
            };
            for refused in checked(over(None, false)) {
                let refused = refused.expect_err("anybody could be the sender");
                assert!(refused.message().contains("peer_tls = require"), "{refused}");
            }
            for believed in
                [over(Some(from), false), over(None, true)].into_iter().flat_map(checked)
            {
                believed.expect("it is the node");
            }
        }
        node.halt().await;
    }
}

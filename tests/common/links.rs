//! A node's transport over links that a test can cut, and listen in on.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use ratchet::{
    consensus::{Destination, RaftRpc, Transport},
    proto::{Refusal, peer::*},
    server::GrpcTransport,
};
use tokio::sync::watch;
use tonic::Status;

use super::PATIENCE;

/// After how long a sender over a cut link gives up, if nothing else sets a limit.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// The links between the nodes of one cluster.
#[derive(Clone, Default)]
pub struct Links {
    /// Which are cut, by the sender's id and the receiver's peer address.
    cut: Arc<watch::Sender<HashSet<(u64, String)>>>,
    snapshots_to_damage: Arc<AtomicU32>,
}

impl Links {
    /// Cuts the link from `sender` to `receiver`, in this direction.
    pub fn cut(&self, sender: u64, receiver: String) {
        self.cut.send_modify(|cut| {
            cut.insert((sender, receiver));
        });
    }

    /// Mends all links.
    pub fn mend(&self) {
        self.cut.send_modify(HashSet::clear);
    }

    /// Damages the next `n` snapshots on their way.
    pub fn damage_snapshots(&self, n: u32) {
        self.snapshots_to_damage.store(n, Relaxed);
    }

    fn is_cut(&self, from: u64, to: &str) -> bool {
        self.cut.borrow().contains(&(from, to.to_owned()))
    }

    /// Ends when the link is cut.
    async fn until_cut(&self, from: u64, to: String) {
        let mut links = self.cut.subscribe();
        // The sender lives as long as `self`.
        let _ = links.wait_for(|cut| cut.contains(&(from, to.clone()))).await;
    }
}

type OnAnswer = Box<dyn Fn(&str, &mut HelloResponse) + Send + Sync>;
type OnReplies = Arc<dyn Fn(ForwardReplies) -> BoxFuture<'static, ForwardReplies> + Send + Sync>;

/// One node's transport: real gRPC over links that may be cut. Messages that are sent over a cut link
/// vanish, as on a real network. So do messages that are on their way when the link is cut.
pub struct LinkedTransport {
    from: u64,
    links: Links,
    inner: GrpcTransport,
    /// Called when a message of Raft's is about to be sent.
    pub on_raft: Box<dyn Fn() + Send + Sync>,
    /// Called when a greeting is about to be sent, which it may change.
    pub on_greeting: Box<dyn Fn(&mut HelloRequest) + Send + Sync>,
    /// Called with the answer to a greeting, which it may change, and the address it came from.
    pub on_answer: OnAnswer,
    /// Called when an administrative request is about to be sent, which it may change.
    pub on_administer: Box<dyn Fn(&mut AdministerRequest) + Send + Sync>,
    /// Called with replies to forwarded requests; its result arrives.
    pub on_replies: OnReplies,
}

impl LinkedTransport {
    pub fn new(from: u64, links: Links) -> Self {
        LinkedTransport {
            from,
            links,
            inner: GrpcTransport::of_silence(LOST_AFTER),
            on_raft: Box::new(|| ()),
            on_greeting: Box::new(|_| ()),
            on_answer: Box::new(|_, _| ()),
            on_administer: Box::new(|_| ()),
            on_replies: Arc::new(|replies| async { replies }.boxed()),
        }
    }

    async fn over<T>(
        &self, to: &str, timeout: Duration, exchange: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let vanish = async {
            tokio::time::sleep(timeout).await;
            Err(Status::deadline_exceeded("the link is cut").into())
        };
        if self.links.is_cut(self.from, to) {
            return vanish.await;
        }
        tokio::select! {
            done = exchange => done,
            () = self.links.until_cut(self.from, to.to_owned()) => vanish.await,
        }
    }
}

#[async_trait]
impl Transport for LinkedTransport {
    async fn raft(
        &self, to: Destination<'_>, rpc: RaftRpc, message: RaftMessage, timeout: Duration,
    ) -> Result<RaftReply, Refusal> {
        (self.on_raft)();
        let exchange = self.inner.raft(to, rpc, message, timeout);
        self.over(to.address, timeout, exchange).await
    }

    async fn install_snapshot(
        &self, to: Destination<'_>, parts: BoxStream<'static, SnapshotPart>,
    ) -> Result<RaftReply, Refusal> {
        let one_less = |left: u32| left.checked_sub(1);
        let damaged = self.links.snapshots_to_damage.fetch_update(Relaxed, Relaxed, one_less);
        let parts = match damaged {
            Ok(_) => parts.enumerate().map(damage_second).boxed(),
            Err(_) => parts,
        };
        let exchange = self.inner.install_snapshot(to, parts);
        self.over(to.address, LOST_AFTER, exchange).await
    }

    async fn send_memory(
        &self, to: Destination<'_>, parts: BoxStream<'static, MemoryPart>,
    ) -> Result<MemoryReply, Refusal> {
        let exchange = self.inner.send_memory(to, parts);
        self.over(to.address, LOST_AFTER, exchange).await
    }

    async fn hello(
        &self, to: Destination<'_>, mut request: HelloRequest, timeout: Duration,
    ) -> Result<HelloResponse, Refusal> {
        (self.on_greeting)(&mut request);
        let exchange = self.inner.hello(to, request, timeout);
        let mut response = self.over(to.address, timeout, exchange).await?;
        (self.on_answer)(to.address, &mut response);
        Ok(response)
    }

    async fn forward(
        &self, to: Destination<'_>, requests: BoxStream<'static, ForwardRequests>,
    ) -> Result<BoxStream<'static, Result<ForwardReplies, Refusal>>, Refusal> {
        let exchange = self.inner.forward(to, requests);
        let replies = self.over(to.address, LOST_AFTER, exchange).await?;
        let (links, from, to) = (self.links.clone(), self.from, to.address.to_owned());
        let cut = async move { links.until_cut(from, to).await };
        let on_replies = self.on_replies.clone();
        let replies = replies.then(move |replies| match replies {
            Ok(replies) => on_replies(replies).map(Ok).boxed(),
            Err(status) => async { Err(status) }.boxed(),
        });
        Ok(replies.take_until(cut).boxed())
    }

    async fn administer(
        &self, to: Destination<'_>, mut request: AdministerRequest, timeout: Duration,
    ) -> Result<AdministerReply, Refusal> {
        (self.on_administer)(&mut request);
        let exchange = self.inner.administer(to, request, timeout);
        self.over(to.address, timeout, exchange).await
    }

    fn keep(&self, set: u32, members: BTreeSet<(u64, String)>) {
        self.inner.keep(set, members);
    }
}

/// The transport by which a test itself speaks to a node as a peer. However slow the machine is, the
/// node is not taken for gone.
pub fn as_peer() -> GrpcTransport {
    GrpcTransport::of_silence(PATIENCE)
}

/// Where a test sends a message itself. A transport without TLS does not look at the node.
pub fn listening_at(address: &str) -> Destination<'_> {
    Destination { node: 1, address }
}

/// Flips a bit in the middle of the second part: the first that holds records.
fn damage_second((at, mut part): (usize, SnapshotPart)) -> SnapshotPart {
    if at == 1 {
        let mut payload = part.payload.to_vec();
        let middle = payload.len() / 2;
        payload[middle] ^= 1;
        part.payload = payload.into();
    }
    part
}

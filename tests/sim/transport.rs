//! The product's [`Transport`] over the simulated network.

use std::time::Duration;

use async_trait::async_trait;
use futures::{
    FutureExt, StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use ratchet::{
    consensus::{Destination, RaftRpc, Transport},
    proto::{
        Refusal,
        peer::{peer_server::Peer, *},
    },
};
use tonic::{Request, Response, Status};

use crate::{
    clock,
    network::{Delivery, Host, Network},
};

/// A snapshot that takes longer is given up.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a part of a snapshot or of a memory takes.
const PART_TAKES: Duration = Duration::from_millis(2);

/// How one node sends.
pub struct SimTransport {
    pub from: Host,
    pub network: Network,
}

/// Where peers find a node.
pub fn peer_address(node: Host) -> std::net::SocketAddr {
    let host = u8::try_from(node).expect("few nodes");
    ([10, 0, 0, host], 7601).into()
}

fn node_at(address: &str) -> Result<Host, Status> {
    let address: std::net::SocketAddr = address
        .parse()
        .map_err(|_| Status::invalid_argument(format!("no such address: {address}")))?;
    match address.ip() {
        std::net::IpAddr::V4(ip) => Ok(ip.octets()[3].into()),
        std::net::IpAddr::V6(_) => Err(Status::invalid_argument("not in this network")),
    }
}

#[async_trait]
impl Transport for SimTransport {
    async fn raft(
        &self, to: Destination<'_>, rpc: RaftRpc, message: RaftMessage, timeout: Duration,
    ) -> Result<RaftReply, Refusal> {
        let link = (self.from, node_at(to.address)?);
        self.network
            .call(link, Delivery::PerhapsTwice, timeout, message, move |to, message| {
                async move { to.peers.raft(rpc, Request::new(message)).await }
                    .map(|a| a.map(Response::into_inner))
                    .boxed()
            })
            .await
            .map_err(Refusal::from)
    }

    async fn install_snapshot(
        &self, to: Destination<'_>, parts: BoxStream<'static, SnapshotPart>,
    ) -> Result<RaftReply, Refusal> {
        let link = (self.from, node_at(to.address)?);
        let parts: Vec<SnapshotPart> = parts.collect().await;
        self.network
            .call(link, Delivery::Reliable, SNAPSHOT_TIMEOUT, parts, |to, parts| {
                let arriving = stream::iter(parts).then(|part| async {
                    // A crash can come between two parts.
                    tokio::time::sleep(PART_TAKES).await;
                    Ok(part)
                });
                async move { to.peers.take_snapshot(arriving.boxed()).await }.boxed()
            })
            .await
            .map_err(Refusal::from)
    }

    async fn send_memory(
        &self, to: Destination<'_>, parts: BoxStream<'static, MemoryPart>,
    ) -> Result<MemoryReply, Refusal> {
        let link = (self.from, node_at(to.address)?);
        let parts = parts.then(|part| async {
            // Calls change the parts that were sent, and a crash can come between two parts.
            tokio::time::sleep(PART_TAKES).await;
            part
        });
        let mut answers = self.network.open_stream(link, parts.boxed(), |to, parts| {
            stream::once(async move { to.peers.receive_memory(parts).await }).boxed()
        })?;
        let lost = || Status::unavailable("the link broke");
        let answer = answers.next().await.ok_or_else(lost)?;
        if let Ok(memory) = &answer {
            let text = format!("from {} to {}, {} parts", link.0, link.1, memory.parts);
            self.network.trace().event(clock::now(), "memory", text);
        }
        answer.map_err(Refusal::from)
    }

    async fn hello(
        &self, to: Destination<'_>, request: HelloRequest, timeout: Duration,
    ) -> Result<HelloResponse, Refusal> {
        let link = (self.from, node_at(to.address)?);
        self.network
            .call(link, Delivery::PerhapsTwice, timeout, request, |to, request| {
                async move { to.peers.hello(Request::new(request)).await }
                    .map(|a| a.map(Response::into_inner))
                    .boxed()
            })
            .await
            .map_err(Refusal::from)
    }

    async fn forward(
        &self, to: Destination<'_>, requests: BoxStream<'static, ForwardRequests>,
    ) -> Result<BoxStream<'static, Result<ForwardReplies, Refusal>>, Refusal> {
        let link = (self.from, node_at(to.address)?);
        let replies = self
            .network
            .open_stream(link, requests, |to, requests| to.peers.answer_forwarded(requests));
        Ok(replies?.map_err(Refusal::from).boxed())
    }

    async fn administer(
        &self, to: Destination<'_>, request: AdministerRequest, timeout: Duration,
    ) -> Result<AdministerReply, Refusal> {
        let link = (self.from, node_at(to.address)?);
        self.network
            .call(link, Delivery::Once, timeout, request, |to, request| {
                async move { to.peers.administer(Request::new(request)).await }
                    .map(|a| a.map(Response::into_inner))
                    .boxed()
            })
            .await
            .map_err(Refusal::from)
    }
}

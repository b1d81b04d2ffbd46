//! The helpers that the tests share: clusters of processes or of nodes in this process, clients, loads, and waiting.

pub mod browser;
pub mod certificates;
pub mod closed;
pub mod cluster;
pub mod disk;
pub mod history;
pub mod http2;
pub mod invoices;
pub mod links;
pub mod openmetrics;
pub mod power;
pub mod processes;
pub mod rust_client;
pub mod scale;
pub mod stores;
mod wait;
pub mod wrong_clock;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use prost::Message;
use ratchet::{
    node::Config,
    proto::{
        Refusal,
        peer::{
            ForwardRequest, ForwardRequests, Header, RaftMessage, RaftReply,
            peer_client::PeerClient,
        },
        v1::{
            AddNodeRequest, CurrentRequest, FoundRequest, FoundResponse, Key, MembershipResponse,
            NextManyRequest, NextRequest, NextResponse, PromoteNodeRequest, RemoveNodeRequest,
            StatusRequest, StatusResponse, TransferLeadershipRequest, TransferLeadershipResponse,
            admin_client::AdminClient, key::Kind, sequencer_client::SequencerClient,
        },
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

pub use wait::{PATIENCE, eventually, in_time, until};

/// The other two nodes of a cluster of three.
pub fn others(id: u64) -> [u64; 2] {
    [id % 3 + 1, (id + 1) % 3 + 1]
}

/// One of the other nodes of a cluster of three.
pub fn other_than(id: u64) -> u64 {
    others(id)[0]
}

/// The times of a node whose test says nothing else. On a machine that is busy with other things no leader is lost, and no
/// call is refused because its time is over.
pub fn unhurried(config: &mut Config) {
    let patience_ms = PATIENCE.as_millis() as u64;
    (config.election_timeout_ms, config.lease_ms) = (3_000, 2_500);
    (config.request_timeout_ms, config.request_timeout_max_ms) = (patience_ms, patience_ms);
    config.handover_timeout_ms = patience_ms;
}

/// A lost leader is replaced as soon as by default. For tests that lose leaders, and bear it if further ones are lost.
pub fn hurried(config: &mut Config) {
    let default = Config::default();
    (config.election_timeout_ms, config.lease_ms) = (default.election_timeout_ms, default.lease_ms);
}

/// [`hurried`], as flags.
pub const HURRIED: [&str; 4] = ["--election-timeout-ms", "300", "--lease-ms", "200"];

/// Has the node serve its metrics and probes.
pub fn with_metrics(config: &mut Config) {
    config.metrics_listen = Some((config.listen.ip(), 0).into());
}

/// Has the node serve HTTP clients.
pub fn with_http(config: &mut Config) {
    config.http_listen = Some((config.listen.ip(), 0).into());
}

/// Has the node serve Redis clients.
pub fn with_resp(config: &mut Config) {
    config.resp_listen = Some((config.listen.ip(), 0).into());
}

/// Gives the node a port for administrators.
pub fn with_admin_port(config: &mut Config) {
    config.admin_listen = Some((config.listen.ip(), 0).into());
}

/// A loopback address for one node of this process. It contains the process id, modulo 4 094: two test programs that run
/// at the same time hardly share one. So ports of it that the system chose stay free until they are used.
pub fn own_ip() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let host = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(host < 1 << 12, "one test process uses at most 4 095 addresses");
    // Neither 0, to which 127.0.0.1 belongs, nor the last one, which has the broadcast address.
    let process = 1 + std::process::id() % 4_094;
    Ipv4Addr::from_bits(127 << 24 | process << 12 | host).into()
}

/// `N` distinct free ports of `ip`, chosen by the system.
pub fn free_ports<const N: usize>(ip: IpAddr) -> [SocketAddr; N] {
    let listeners = [(); N].map(|()| std::net::TcpListener::bind((ip, 0)).expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("its address"))
}

/// A connection that is made at its first use.
pub fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .expect("an address")
        .tcp_nodelay(true)
        .connect_lazy()
}

/// Sends a peer one append over a stream of its own. Returns the answer.
pub async fn append(
    peer: &mut PeerClient<Channel>, message: RaftMessage,
) -> Result<Option<RaftReply>, Status> {
    peer.append(futures::stream::iter([message])).await?.into_inner().message().await
}

/// The request with the id 7 of a peer for a number, of a caller on the peer's own machine.
pub fn forwarded(header: Header) -> ForwardRequests {
    let asked = NextRequest { namespace: "book".to_owned(), key: id(1), ..NextRequest::default() };
    let request = ForwardRequest {
        id: 7,
        left_ms: PATIENCE.as_millis() as u64,
        method: "ratchet.v1.Sequencer/Next".into(),
        message: asked.encode_to_vec().into(),
        ..ForwardRequest::default()
    };
    ForwardRequests { header: Some(header), requests: vec![request] }
}

/// A client of the public API at one node.
#[derive(Clone)]
pub struct Client {
    pub sequencer: SequencerClient<Channel>,
    pub admin: AdminClient<Channel>,
    pub timeout: Duration,
}

/// True of an answer that did not come in time, whether the node or the client noticed it first.
pub fn is_late(status: &Status) -> bool {
    [Code::DeadlineExceeded, Code::Cancelled].contains(&status.code())
}

pub fn id(id: u64) -> Option<Key> {
    Some(Key { kind: Some(Kind::Id(id)) })
}

pub fn name(name: &[u8]) -> Option<Key> {
    Some(Key { kind: Some(Kind::Name(name.to_vec().into())) })
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        let channel = channel(address);
        Client {
            sequencer: SequencerClient::new(channel.clone()),
            admin: AdminClient::new(channel),
            timeout: PATIENCE,
        }
    }

    /// Waits for so long, and no longer.
    pub fn patient(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(self.timeout);
        request
    }

    pub async fn try_next(
        &mut self, namespace: &str, key: Option<Key>, count: u64,
    ) -> Result<NextResponse, Status> {
        let request = self.request(NextRequest {
            namespace: namespace.to_owned(),
            key,
            count: Some(count),
            route_version: 0,
            members_version: None,
            request_id: None,
            retry_window_ms: None,
            made_ms: None,
        });
        self.sequencer.next(request).await.map(|r| r.into_inner())
    }

    /// The next number of a book.
    pub async fn next(&mut self, key: u64) -> Result<u64, Status> {
        self.try_next("book", id(key), 1).await.map(|answer| answer.first)
    }

    /// The next number of a book, by way of a stream.
    pub async fn next_by_stream(&mut self, key: u64) -> Result<u64, Status> {
        let firsts = self.next_of_each(vec![key]).await?;
        Ok(firsts[0])
    }

    /// The next number of each of these books, in one message.
    pub async fn next_of_each(&mut self, ids: Vec<u64>) -> Result<Vec<u64>, Status> {
        self.next_of_each_in("book", ids).await
    }

    /// The next number of each of these keys of a namespace, in one message.
    pub async fn next_of_each_in(
        &mut self, namespace: &str, ids: Vec<u64>,
    ) -> Result<Vec<u64>, Status> {
        let request = NextManyRequest {
            namespace: namespace.to_owned(),
            ids,
            timeout_ms: self.timeout.as_millis() as u64,
            ..NextManyRequest::default()
        };
        let requests = self.request(tokio_stream::once(request));
        let mut answers = self.sequencer.next_many(requests).await?.into_inner();
        let answer = answers.message().await?;
        let answer = answer.ok_or_else(|| Status::unavailable("the stream ended"))?;
        match answer.failure {
            Some(failure) => Err(Refusal::from(*failure).into()),
            None if answer.exhausted.is_some() => Err(Status::out_of_range("no number is left")),
            None if !answer.refused.is_empty() => Err(Status::unknown("some keys were refused")),
            None => Ok(answer.firsts),
        }
    }

    pub async fn current(
        &mut self, namespace: &str, key: Option<Key>,
    ) -> Result<Option<u64>, Status> {
        let request = self.request(CurrentRequest {
            namespace: namespace.to_owned(),
            key,
            route_version: 0,
            members_version: None,
        });
        let answer = self.sequencer.current(request).await?;
        Ok(answer.into_inner().last)
    }

    /// Takes a number of a book, and tries again until it gets one.
    pub async fn next_at_last(&mut self, key: u64) -> u64 {
        // Not by `eventually`, whose future cannot be spawned.
        let asking = async {
            loop {
                match self.next(key).await {
                    Ok(number) => return number,
                    // The node may not listen yet, which cannot be awaited.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        in_time("a number", asking).await
    }

    pub async fn status(&mut self) -> Result<StatusResponse, Status> {
        let request = self.request(StatusRequest {});
        self.admin.status(request).await.map(|r| r.into_inner())
    }

    /// Has the node found its cluster.
    pub async fn found(&mut self) -> Result<FoundResponse, Status> {
        let request = self.request(FoundRequest::default());
        self.admin.found(request).await.map(|answer| answer.into_inner())
    }

    /// Has leadership transferred to `to`, or to any voter.
    pub async fn transfer(
        &mut self, to: impl Into<Option<u64>>,
    ) -> Result<TransferLeadershipResponse, Status> {
        let request = TransferLeadershipRequest { to: to.into() };
        let answer = self.admin.transfer_leadership(request).await;
        answer.map(|answer| answer.into_inner())
    }

    pub async fn add_node(
        &mut self, id: u64, peer_address: impl Into<String>,
    ) -> Result<MembershipResponse, Status> {
        let peer_address = peer_address.into();
        let answer = self.admin.add_node(AddNodeRequest { id, peer_address });
        answer.await.map(|answer| answer.into_inner())
    }

    /// Has a node that runs added as a learner. The leader waits a second for the node's answer: on a slow machine it is
    /// asked again.
    pub async fn add_node_at_last(
        &mut self, id: u64, peer_address: impl Into<String>,
    ) -> MembershipResponse {
        let peer_address = peer_address.into();
        eventually("the node is added", async || {
            match self.add_node(id, peer_address.clone()).await {
                Err(again) if again.code() == Code::Unavailable => None,
                added => Some(added.expect("it can be added")),
            }
        })
        .await
    }

    /// Why a node that runs is not added. The leader is asked again as by [`Client::add_node_at_last`].
    pub async fn why_not_added(&mut self, id: u64, peer_address: &str) -> Status {
        eventually("what the node says", async || {
            let refused = self.add_node(id, peer_address).await.expect_err("it is not added");
            (refused.code() != Code::Unavailable).then_some(refused)
        })
        .await
    }

    /// Makes a learner a voter, without force.
    pub async fn promote_node(&mut self, id: u64) -> Result<MembershipResponse, Status> {
        let answer = self.admin.promote_node(PromoteNodeRequest { id, force: false });
        answer.await.map(|answer| answer.into_inner())
    }

    /// Removes a member, without force.
    pub async fn remove_node(&mut self, id: u64) -> Result<MembershipResponse, Status> {
        let answer = self.admin.remove_node(RemoveNodeRequest { id, force: false });
        answer.await.map(|answer| answer.into_inner())
    }
}

/// A page that was fetched by HTTP/1.1.
pub struct Page {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Fetches a page by HTTP/1.1.
pub async fn http_get(address: SocketAddr, path: &str) -> Page {
    http(address, &format!("GET {path}"), "", "").await
}

/// True once an answer has all the bytes of the body that its head promises.
pub fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, _)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().expect("a length"))
    });
    length.is_some_and(|length| answer.len() >= head.len() + 4 + length)
}

/// Asks by HTTP/1.1. `what` is the method and the path; each of `headers` ends its line.
pub async fn http(address: SocketAddr, what: &str, headers: &str, body: &str) -> Page {
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        let length = body.len();
        let request = format!(
            "{what} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\
             {headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await?;
        // The connection is not read to its end: not every server closes it.
        let mut answer = Vec::new();
        while !is_whole(&answer) && stream.read_buf(&mut answer).await? > 0 {}
        Ok::<_, std::io::Error>(String::from_utf8(answer).expect("text"))
    };
    let answer = in_time("a page", asking).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Page { status: status.expect("a status"), head: head.to_owned(), body: body.to_owned() }
}

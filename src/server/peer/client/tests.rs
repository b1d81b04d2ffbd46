//! How messages reach a peer, and what happens when it does not answer.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture, stream};
use tokio::{io::AsyncReadExt, net::TcpListener, sync::Notify};
use tonic::{
    Streaming,
    transport::{Server, server::TcpIncoming},
};

use super::*;
use crate::proto::{
    Code,
    peer::peer_server::{Peer, PeerServer},
};

/// More than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Asks a server that accepts connections and never answers. Returns the server's connection.
async fn greet_silent_server(
    transport: &GrpcTransport, listener: &TcpListener,
) -> tokio::net::TcpStream {
    let address = listener.local_addr().unwrap().to_string();
    let timeout = Duration::from_millis(100);
    let to = Destination { node: 1, address: &address };
    let asking = transport.hello(to, HelloRequest::default(), timeout);
    let (answer, accepted) = tokio::join!(asking, listener.accept());
    assert!(answer.is_err());
    accepted.unwrap().0
}

async fn is_closed_soon(mut connection: tokio::net::TcpStream) -> bool {
    let mut sent = Vec::new();
    let closing = connection.read_to_end(&mut sent);
    tokio::time::timeout(PATIENCE, closing).await.is_ok()
}

#[tokio::test]
async fn a_connection_to_an_address_that_is_not_a_members_is_closed_after_use() {
    let transport = GrpcTransport::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connection = greet_silent_server(&transport, &listener).await;
    assert!(transport.channels.lock().kept.is_empty());
    assert!(is_closed_soon(connection).await);
}

#[tokio::test]
async fn a_connection_to_a_member_is_kept_until_it_is_removed() {
    let transport = GrpcTransport::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    transport.keep(1, BTreeSet::from([(1, address)]));
    let connection = greet_silent_server(&transport, &listener).await;
    assert_eq!(transport.channels.lock().kept.len(), 1);
    transport.keep(1, BTreeSet::new());
    assert!(transport.channels.lock().kept.is_empty());
    assert!(is_closed_soon(connection).await);
}

#[tokio::test]
async fn a_connection_is_kept_while_one_set_has_the_node_as_a_member() {
    let transport = GrpcTransport::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let member = (1, listener.local_addr().unwrap().to_string());
    let other = (2, "127.0.0.1:1".to_owned());
    transport.keep(1, BTreeSet::from([member.clone()]));
    transport.keep(2, BTreeSet::from([member, other.clone()]));
    let connection = greet_silent_server(&transport, &listener).await;
    transport.keep(1, BTreeSet::new());
    assert_eq!(transport.channels.lock().kept.len(), 1, "set 2 has it still");
    transport.keep(2, BTreeSet::from([other]));
    assert!(transport.channels.lock().kept.is_empty());
    assert!(is_closed_soon(connection).await);
}

#[tokio::test]
async fn a_snapshot_and_a_memory_have_connections_of_their_own_that_are_closed_after_use() {
    let transport = GrpcTransport::of_silence(PATIENCE);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    transport.keep(1, BTreeSet::from([(1, address.clone())]));
    let to = Destination { node: 1, address: &address };
    for sending in [
        transport.install_snapshot(to, stream::pending().boxed()).map(drop).boxed(),
        transport.send_memory(to, stream::pending().boxed()).map(drop).boxed(),
    ] {
        let connection = tokio::select! {
            biased;
            accepted = listener.accept() => accepted.unwrap().0,
            () = sending => panic!("nobody answers"),
        };
        assert!(transport.channels.lock().kept.is_empty());
        assert!(is_closed_soon(connection).await);
    }
}

/// A peer's answer to an append that comes over its first stream, second one, and so on.
type ScriptedAnswer =
    Arc<dyn Fn(usize, RaftMessage) -> BoxFuture<'static, RaftReply> + Send + Sync>;

/// A peer to which nothing but appends is sent.
struct Appended {
    streams: Arc<AtomicUsize>,
    answer: ScriptedAnswer,
    /// It ends a stream after so many answers.
    answers_max: usize,
}

fn nobody<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("only appends are sent"))
}

#[tonic::async_trait]
impl Peer for Appended {
    type AppendStream = BoxStream<'static, Result<RaftReply, Status>>;
    type ForwardStream = BoxStream<'static, Result<ForwardReplies, Status>>;

    async fn append(
        &self, request: Request<Streaming<RaftMessage>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let stream = 1 + self.streams.fetch_add(1, Relaxed);
        let answer = self.answer.clone();
        let answers = request.into_inner().and_then(move |append| {
            let answering = answer(stream, append);
            async move { Ok(answering.await) }
        });
        Ok(Response::new(answers.take(self.answers_max).boxed()))
    }

    async fn hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloResponse>, Status> {
        nobody()
    }

    async fn vote(&self, _: Request<RaftMessage>) -> Result<Response<RaftReply>, Status> {
        nobody()
    }

    async fn pre_vote(&self, _: Request<RaftMessage>) -> Result<Response<RaftReply>, Status> {
        nobody()
    }

    async fn transfer_leader(
        &self, _: Request<RaftMessage>,
    ) -> Result<Response<RaftReply>, Status> {
        nobody()
    }

    async fn install_snapshot(
        &self, _: Request<Streaming<SnapshotPart>>,
    ) -> Result<Response<RaftReply>, Status> {
        nobody()
    }

    async fn take_memory(
        &self, _: Request<Streaming<MemoryPart>>,
    ) -> Result<Response<MemoryReply>, Status> {
        nobody()
    }

    async fn forward(
        &self, _: Request<Streaming<ForwardRequests>>,
    ) -> Result<Response<Self::ForwardStream>, Status> {
        nobody()
    }

    async fn administer(
        &self, _: Request<AdministerRequest>,
    ) -> Result<Response<AdministerReply>, Status> {
        nobody()
    }
}

/// The answer that is expected: it repeats the payload and the number.
fn answer_to(append: RaftMessage) -> RaftReply {
    RaftReply { payload: append.payload, number: append.number, ..RaftReply::default() }
}

/// A transport to a peer, which is a member, and appends to it.
struct Appending {
    transport: Arc<GrpcTransport>,
    address: String,
    streams: Arc<AtomicUsize>,
}

impl Appending {
    /// To a peer that ends each stream after `answers_max` answers.
    async fn to(
        answers_max: usize,
        answer: impl Fn(usize, RaftMessage) -> BoxFuture<'static, RaftReply> + Send + Sync + 'static,
    ) -> Appending {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let streams = Arc::<AtomicUsize>::default();
        let peer = Appended { streams: streams.clone(), answer: Arc::new(answer), answers_max };
        let peer = PeerServer::new(peer).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let incoming = TcpIncoming::from(listener);
        tokio::spawn(Server::builder().add_service(peer).serve_with_incoming(incoming));
        let transport = Arc::new(GrpcTransport::of_silence(PATIENCE));
        transport.keep(1, BTreeSet::from([(1, address.clone())]));
        Appending { transport, address, streams }
    }

    /// Sends an append, and waits for `patience`. Returns the payload of the answer.
    fn append(
        &self, payload: &str, patience: Duration,
    ) -> impl Future<Output = Result<String, Refusal>> + Send + use<> {
        let (transport, address) = (self.transport.clone(), self.address.clone());
        let payload = Bytes::copy_from_slice(payload.as_bytes());
        async move {
            let to = Destination { node: 1, address: &address };
            let append = RaftMessage { payload, ..RaftMessage::default() };
            let reply = transport.raft(to, RaftRpc::Append, append, patience).await?;
            Ok(String::from_utf8(reply.payload.to_vec()).expect("what was sent"))
        }
    }

    /// Sends an append that is answered with what it said.
    async fn is_answered(&self, payload: &str) {
        assert_eq!(self.append(payload, PATIENCE).await.expect("an answer"), payload);
    }

    fn streams(&self) -> usize {
        self.streams.load(Relaxed)
    }
}

#[tokio::test]
async fn appends_go_over_one_stream_and_each_gets_its_own_answer() {
    let peer =
        Appending::to(usize::MAX, |_, append| async move { answer_to(append) }.boxed()).await;
    for append in 0..100 {
        peer.is_answered(&append.to_string()).await;
    }
    assert_eq!(peer.streams(), 1);
}

#[tokio::test]
async fn an_append_whose_answer_is_late_ends_its_stream_and_the_next_one_gets_its_own_answer() {
    let release = Arc::new(Notify::new());
    let released = release.clone();
    let peer = Appending::to(usize::MAX, move |_, append| {
        let released = released.clone();
        async move {
            if append.payload == "late" {
                released.notified().await;
            }
            answer_to(append)
        }
        .boxed()
    })
    .await;
    peer.is_answered("first").await;
    let late = peer.append("late", Duration::from_millis(20)).await.expect_err("no answer in time");
    assert_eq!(late.code(), Code::DeadlineExceeded);
    release.notify_one();
    peer.is_answered("next").await;
    assert_eq!(peer.streams(), 2);
}

#[tokio::test]
async fn an_answer_with_another_number_is_no_answer_and_ends_the_stream() {
    let peer = Appending::to(usize::MAX, |stream, append| {
        // The first stream answers all of its appends as if each were the first.
        let number = if stream == 1 { 1 } else { append.number };
        async move { RaftReply { number, ..answer_to(append) } }.boxed()
    })
    .await;
    peer.is_answered("first").await;
    let refused = peer.append("second", PATIENCE).await.expect_err("it is the first one's answer");
    assert!(refused.message().contains("append 2 of a stream"), "{refused}");
    peer.is_answered("second").await;
    assert_eq!(peer.streams(), 2);
}

#[tokio::test]
async fn an_append_does_not_wait_for_another_one_to_the_same_peer_and_both_streams_are_used_again()
{
    let (arrived, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (arrives, released) = (arrived.clone(), release.clone());
    let peer = Appending::to(usize::MAX, move |_, append| {
        let (arrives, released) = (arrives.clone(), released.clone());
        async move {
            if append.payload == "entries" {
                arrives.notify_one();
                released.notified().await;
            }
            answer_to(append)
        }
        .boxed()
    })
    .await;
    for _ in 0..3 {
        let entries = tokio::spawn(peer.append("entries", PATIENCE));
        arrived.notified().await;
        for _ in 0..3 {
            peer.is_answered("heartbeat").await;
        }
        release.notify_one();
        assert_eq!(entries.await.expect("no panic").expect("an answer"), "entries");
    }
    assert_eq!(peer.streams(), 2);
}

#[tokio::test]
async fn a_stream_that_ended_while_it_waited_for_an_append_is_not_used() {
    let peer = Appending::to(1, |_, append| async move { answer_to(append) }.boxed()).await;
    for streams in 1..=3 {
        peer.is_answered("alone").await;
        assert_eq!(peer.streams(), streams);
        let to = (1, peer.address.clone());
        let ended = async {
            while let Some(stream) = peer.transport.idle_stream(&to) {
                peer.transport.channels.lock().idle.entry(to.clone()).or_default().push(stream);
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("the peer ends the stream");
    }
}

#[tokio::test]
async fn a_stream_that_carried_a_large_append_is_not_used_again() {
    let peer =
        Appending::to(usize::MAX, |_, append| async move { answer_to(append) }.boxed()).await;
    peer.is_answered("small").await;
    peer.is_answered(&"large".repeat(300_000)).await;
    assert_eq!(peer.streams(), 1);
    peer.is_answered("small").await;
    assert_eq!(peer.streams(), 2);
}

#[tokio::test]
async fn a_stream_to_a_member_is_kept_until_it_is_removed_and_one_to_nobody_is_not() {
    let peer =
        Appending::to(usize::MAX, |_, append| async move { answer_to(append) }.boxed()).await;
    let kept = || peer.transport.channels.lock().idle.values().map(Vec::len).sum::<usize>();
    peer.is_answered("to a member").await;
    assert_eq!(kept(), 1);
    peer.transport.keep(1, BTreeSet::new());
    assert_eq!(kept(), 0);
    peer.is_answered("to nobody").await;
    assert_eq!((kept(), peer.streams()), (0, 2));
}

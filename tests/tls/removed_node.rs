//! A node that was removed, and has kept its certificate and its data, may still say hello, and nothing else.

use std::collections::BTreeSet;

use futures::stream;
use openraft::{
    raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest},
    vote::RaftLeaderId,
};
use prost::Message;
use ratchet::{
    node::settings::PeerTls,
    proto::{
        Refusal,
        peer::{
            AdministerRequest, Asker, ForwardRequests, Header, HelloRequest, MemoryPart,
            RaftMessage, RaftReply, SnapshotPart, administer_reply, asker::Shown, forward_reply,
            peer_client::PeerClient,
        },
        v1::CreateNamespaceRequest,
    },
    storage::{LogId, Types, Vote, codec},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Channel};

use crate::common::{
    PATIENCE, append, certificates::Certificates, cluster::Cluster, eventually, forwarded, in_time,
    other_than, others, until,
};

/// The node that is removed.
const REMOVED: u64 = 4;
/// A node that was never a member.
const UNKNOWN: u64 = 9;

/// A node that speaks to another one over a connection with its certificate, in the name that its header has.
pub(super) struct Speaker {
    pub peer: PeerClient<Channel>,
    pub header: Header,
    term: u64,
}

impl Speaker {
    fn raft(&self, message: &impl serde::Serialize) -> RaftMessage {
        let payload = codec::encode(message).expect("it can be written").into();
        RaftMessage { header: Some(self.header.clone()), payload, ..RaftMessage::default() }
    }

    /// A vote for itself in a later term, as a candidate, whose log is as long as it can be.
    fn candidacy(&self) -> RaftMessage {
        let last = LogId::new(Vote::new(self.term, 1).leader_id.to_committed(), 1_000_000);
        let vote = Vote::new(self.term + 1, self.header.from);
        self.raft(&VoteRequest::<Types>::new(vote, Some(last)))
    }

    /// Entries of the leader of a later term.
    fn append(&self) -> RaftMessage {
        self.append_of(self.term + 1)
    }

    /// Entries of the leader of a term.
    fn append_of(&self, term: u64) -> RaftMessage {
        self.raft(&AppendEntriesRequest::<Types> {
            vote: Vote::new_committed(term, self.header.from),
            prev_log_id: None,
            entries: Vec::new(),
            leader_commit: None,
        })
    }

    async fn hello(&mut self) -> Result<(), Status> {
        let Header { cluster, from, to, election_timeout_ms, .. } = self.header.clone();
        let greeting =
            HelloRequest { cluster, from, to, election_timeout_ms, ..HelloRequest::default() };
        self.peer.hello(greeting).await.map(drop)
    }

    async fn transfer_leader(&mut self) -> Result<(), Status> {
        let (from, to) = (self.header.from, self.header.to);
        let vote = Vote::new_committed(self.term + 1, from);
        let message = self.raft(&TransferLeaderRequest::<Types>::new(vote, to, None));
        self.peer.transfer_leader(message).await.map(drop)
    }

    async fn install_snapshot(&mut self) -> Result<(), Status> {
        let header = Some(self.header.clone());
        let part = SnapshotPart { header, payload: vec![7; 100].into() };
        self.peer.install_snapshot(stream::iter([part])).await.map(drop)
    }

    async fn take_memory(&mut self) -> Result<(), Status> {
        let header = Some(self.header.clone());
        let part = MemoryPart { header, payload: vec![7; 100].into() };
        self.peer.take_memory(stream::iter([part])).await.map(drop)
    }

    /// A request for a number, of a caller on the node's own machine.
    pub fn forwarded(&self) -> ForwardRequests {
        forwarded(self.header.clone())
    }

    /// Forwards a request for a number.
    async fn forward(&mut self) -> Result<(), Status> {
        // The stream of requests stays open until the answer is there.
        let (messages, asks) = mpsc::channel(1);
        messages.send(self.forwarded()).await.expect("sent");
        let asks = ReceiverStream::new(asks);
        let mut replies = self.peer.forward(asks).await?.into_inner();
        let replies = replies.message().await?.expect("a reply").replies;
        match replies[0].reply.clone().expect("a reply") {
            forward_reply::Reply::Error(failure) => Err(Refusal::from(failure).into()),
            _ => Ok(()),
        }
    }

    /// Has a namespace made, in the node's own name.
    async fn administer(&mut self, name: &str) -> Result<(), Status> {
        let asked = CreateNamespaceRequest { name: name.to_owned(), ..Default::default() };
        let by = Some(Asker { shown: Some(Shown::Node(self.header.from)) });
        let asked = AdministerRequest {
            header: Some(self.header.clone()),
            left_ms: PATIENCE.as_millis() as u64,
            method: "ratchet.v1.Admin/CreateNamespace".to_owned(),
            message: asked.encode_to_vec().into(),
            by,
            ..AdministerRequest::default()
        };
        let reply = self.peer.administer(asked).await?.into_inner();
        match reply.reply.expect("a reply") {
            administer_reply::Reply::Error(failure) => Err(Refusal::from(failure).into()),
            _ => Ok(()),
        }
    }

    /// Says everything that a node can say. Returns the answers, by the method's name.
    pub async fn say_all(&mut self, name: &str) -> Vec<(&'static str, Result<(), Status>)> {
        let (entries, candidacy) = (self.append(), self.candidacy());
        vec![
            ("Hello", self.hello().await),
            ("Append", append(&mut self.peer, entries).await.map(drop)),
            ("Vote", self.peer.vote(candidacy.clone()).await.map(drop)),
            ("PreVote", self.peer.pre_vote(candidacy).await.map(drop)),
            ("TransferLeader", self.transfer_leader().await),
            ("InstallSnapshot", self.install_snapshot().await),
            ("TakeMemory", self.take_memory().await),
            ("Forward", self.forward().await),
            ("Administer", self.administer(name).await),
        ]
    }
}

/// Appends over one stream.
struct Appends {
    of: Speaker,
    sent: mpsc::Sender<RaftMessage>,
    /// Until the stream is opened, with its first append.
    unsent: Option<mpsc::Receiver<RaftMessage>>,
    answers: Option<Streaming<RaftReply>>,
}

impl Appends {
    fn over_one_stream(of: Speaker) -> Appends {
        let (sent, unsent) = mpsc::channel(1);
        Appends { of, sent, unsent: Some(unsent), answers: None }
    }

    /// The answer to an append; `None` once the stream has ended.
    async fn answer(&mut self, append: RaftMessage) -> Result<Option<RaftReply>, Status> {
        // The receiver is gone once the stream has ended.
        let _ = self.sent.send(append).await;
        let answering = async {
            if let Some(unsent) = self.unsent.take() {
                let opened = self.of.peer.append(ReceiverStream::new(unsent)).await?;
                self.answers = Some(opened.into_inner());
            }
            self.answers.as_mut().expect("it is open").message().await
        };
        in_time("an answer", answering).await
    }
}

/// The methods by which nodes speak with one another, as the protocol describes them.
pub(super) fn methods() -> BTreeSet<String> {
    let text = include_str!("../../proto/ratchet/peer/v1/peer.proto");
    let service = text.split_once("service Peer {").expect("a service").1;
    let service = service.split_once("\n}").expect("its end").0;
    let named = service.lines().filter_map(|line| line.trim_start().strip_prefix("rpc "));
    named.map(|method| method.split('(').next().expect("a name").to_owned()).collect()
}

/// A cluster of three whose nodes speak TLS with one another, and the certificates of nodes 4 and 9. Answers the leader, too.
pub(super) async fn cluster() -> (Cluster, Certificates, u64) {
    let certificates = Certificates::new();
    let (cluster, leader) = cluster_with(&certificates).await;
    certificates.node(REMOVED, "localhost", &[]);
    certificates.node(UNKNOWN, "localhost", &[]);
    (cluster, certificates, leader)
}

/// A cluster of three whose nodes speak TLS with one another, with certificates that this CA signs, and its leader.
pub(super) async fn cluster_with(certificates: &Certificates) -> (Cluster, u64) {
    let cluster = Cluster::start(3, |config| {
        let id = config.node_id;
        certificates.node(id, &config.listen.ip().to_string(), &[]);
        let path = |name: String| Some(certificates.path(&name).into());
        config.peer_tls = PeerTls::Accept;
        config.peer_tls_cert = path(format!("node-{id}.crt"));
        config.peer_tls_key = path(format!("node-{id}.key"));
        config.peer_tls_ca = path("ca.crt".to_owned());
    })
    .await;
    let leader = cluster.leader().await;
    (cluster, leader)
}

/// A speaker as node `from`, whose data directory has that incarnation, with the node `to`.
pub(super) fn speaker(
    cluster: &Cluster, certificates: &Certificates, (from, from_incarnation): (u64, u64), to: u64,
    term: u64,
) -> Speaker {
    let header = Header {
        cluster: "test".to_owned(),
        set: 1,
        from,
        to,
        to_incarnation: incarnation(cluster, to),
        election_timeout_ms: cluster.configs[&to].election_timeout_ms,
        from_incarnation,
    };
    let address = cluster.configs[&to].peer_listen;
    let channel = certificates.channel(address, Some(&format!("node-{from}")));
    Speaker { peer: PeerClient::new(channel), header, term }
}

pub(super) fn incarnation(cluster: &Cluster, id: u64) -> u64 {
    cluster.nodes[&id].context().this_node.store.incarnation()
}

/// Waits until `node` has applied the removal.
async fn has_applied_the_removal(cluster: &Cluster, node: u64) {
    let view = &cluster.nodes[&node].context().group.view;
    until("the node knows of the removal", || view.former_members().contains(&REMOVED)).await;
}

/// Fails unless all but a greeting is refused.
async fn may_say_hello_alone(speaker: &mut Speaker, namespace: &str) {
    let to = speaker.header.to;
    let answers = in_time("answers", speaker.say_all(namespace)).await;
    let said: BTreeSet<String> = answers.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(said, methods(), "a method was not tried");
    for (method, answer) in answers {
        match (method, answer) {
            ("Hello", answer) => answer.expect("it is told"),
            (_, Ok(())) => panic!("{method} is let in at node {to}"),
            (_, Err(refused)) => {
                assert_eq!(refused.code(), Code::FailedPrecondition, "{method}: {refused}");
                let says = format!("node {REMOVED}");
                assert!(refused.message().contains(&says), "{method}: {refused}");
                assert!(refused.message().contains("member"), "{method}: {refused}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_node_that_keeps_its_certificate_may_say_hello_and_nothing_else() {
    let (mut cluster, certificates, leader) = cluster().await;
    let follower = other_than(leader);
    cluster.add_voter(leader, REMOVED).await;
    let term = cluster.client(leader).status().await.expect("the status").term;
    let removed = (REMOVED, incarnation(&cluster, REMOVED));
    let speaker = |to: u64| speaker(&cluster, &certificates, removed, to, term);
    let mut speakers = [leader, follower].map(speaker);

    // As a member it is listened to: then it is refused for another reason, or not at all.
    let mut at_leader = speaker(leader);
    at_leader.hello().await.expect("it is told");
    at_leader.forward().await.expect("a number");
    at_leader.administer("while-it-is-a-member").await.expect("a namespace");
    let candidacy = at_leader.candidacy();
    at_leader.peer.pre_vote(candidacy).await.expect("an answer");

    let mut living = [leader, follower].map(speaker).map(Appends::over_one_stream);
    for appends in &mut living {
        // No harm is done by entries of a term that is over.
        appends.answer(appends.of.append_of(0)).await.expect("it has led that term").expect("so");
    }
    let (asks, asked) = mpsc::channel(1);
    asks.send(at_leader.forwarded()).await.expect("sent");
    let opened = at_leader.peer.forward(ReceiverStream::new(asked)).await.expect("a stream");
    let mut replies = opened.into_inner();
    in_time("a reply", replies.message()).await.expect("it is a member").expect("a reply");
    // The append comes over the node's connection, but in the name of another node.
    let mut forged = Appends::over_one_stream(speaker(follower));
    forged.answer(forged.of.append_of(0)).await.expect("an answer").expect("an answer");
    forged.of.header.from = leader;
    let refused = forged.answer(forged.of.append_of(0)).await.expect_err("it is not that node");
    assert!(refused.message().contains("whose certificate is node 4's"), "{refused}");

    cluster.client(leader).remove_node(REMOVED).await.expect("it is removed");
    cluster.crash(REMOVED).await;
    has_applied_the_removal(&cluster, follower).await;
    for appends in &mut living {
        let refused = appends.answer(appends.of.append_of(0)).await.expect_err("it is removed");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("is not a member"), "{refused}");
        let over = appends.answer(appends.of.append_of(0)).await;
        assert!(matches!(over, Ok(None)), "the stream has ended: {over:?}");
    }
    // The receiver may be gone.
    let _ = asks.send(at_leader.forwarded()).await;
    let over = in_time("the end of the stream", replies.message()).await;
    assert!(matches!(over, Ok(None)), "a removed node is served: {over:?}");
    for speaker in &mut speakers {
        may_say_hello_alone(speaker, "once-it-is-removed").await;
    }
    let status = cluster.client(leader).status().await.expect("the status");
    assert_eq!((status.term, status.leader), (term, Some(leader)), "all is as before");
    for node in [leader, follower] {
        cluster.client(node).next(1).await.expect("a number");
    }
    let free =
        CreateNamespaceRequest { name: "once-it-is-removed".to_owned(), ..Default::default() };
    let made = cluster.client(leader).admin.create_namespace(free).await;
    made.expect("nobody has made it");
}

/// A member that hears no leader listens to a node that it does not know, since the one that can be elected may be new to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_node_is_refused_also_where_no_leader_is_heard_and_an_unknown_one_is_not() {
    let (mut cluster, certificates, leader) = cluster().await;
    let [alone, other] = others(leader);
    cluster.add_voter(leader, REMOVED).await;
    let term = cluster.client(leader).status().await.expect("the status").term;
    let removed = incarnation(&cluster, REMOVED);
    cluster.client(leader).remove_node(REMOVED).await.expect("it is removed");
    has_applied_the_removal(&cluster, alone).await;
    for gone in [REMOVED, leader, other] {
        cluster.crash(gone).await;
    }
    // It knows the removal once from a message, and once from its data when it starts.
    for _ in 0..2 {
        let mut unknown = speaker(&cluster, &certificates, (UNKNOWN, 7), alone, term);
        eventually("no leader is heard", async || {
            let candidacy = unknown.candidacy();
            unknown.peer.pre_vote(candidacy).await.ok()
        })
        .await;
        // It is refused with any data directory that it says it has.
        for incarnation in [removed, removed + 1] {
            let named = (REMOVED, incarnation);
            let mut speaker = speaker(&cluster, &certificates, named, alone, term);
            may_say_hello_alone(&mut speaker, "where-no-leader-is-heard").await;
        }
        let candidacy = unknown.candidacy();
        unknown.peer.pre_vote(candidacy).await.expect("still no leader is heard");
        cluster.crash(alone).await;
        cluster.start_node(alone).await;
    }
}

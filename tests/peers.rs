//! The peer port is for members, and one confused node harms nobody.

use std::{sync::Arc, time::Duration};

use crate::common::{
    PATIENCE,
    cluster::Cluster,
    eventually, http2, hurried, in_time,
    links::{as_peer, listening_at},
    other_than, others, until,
};
use futures::{StreamExt, stream};
use openraft::{
    EntryPayload,
    entry::RaftEntry,
    raft::{AppendEntriesRequest, SnapshotResponse, VoteRequest, VoteResponse},
    storage::{RaftSnapshotBuilder, RaftStateMachine},
    vote::RaftLeaderId,
};
use prost::Message;
use ratchet::{
    clock::BootClock,
    consensus::{RaftRpc, StateMachine, Transport},
    proto::peer::{Header, HelloRequest, RaftMessage, RaftReply, SnapshotPart},
    storage::{Entry, LogId, SnapshotData, SnapshotMeta, Store, StoreOptions, Types, Vote, codec},
};
use serde::Serialize;
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tonic::{Code, Status};

fn incarnation(cluster: &Cluster, id: u64) -> u64 {
    cluster.nodes[&id].context().this_node.store.incarnation()
}

/// A header from `from`, which knows `to` as a member does.
fn header(cluster: &Cluster, from: u64, to: u64) -> Header {
    Header {
        cluster: "test".into(),
        set: 1,
        from,
        to,
        to_incarnation: incarnation(cluster, to),
        election_timeout_ms: cluster.configs[&to].election_timeout_ms,
        from_incarnation: match cluster.nodes.contains_key(&from) {
            true => incarnation(cluster, from),
            false => 1,
        },
    }
}

async fn send(
    cluster: &Cluster, header: Header, rpc: RaftRpc, request: &impl Serialize,
) -> Result<RaftReply, Status> {
    let address = cluster.configs[&header.to].peer_listen.to_string();
    let message = RaftMessage {
        header: Some(header),
        payload: codec::encode(request).unwrap().into(),
        ..RaftMessage::default()
    };
    let transport = as_peer();
    Ok(transport.raft(listening_at(&address), rpc, message, PATIENCE).await?)
}

/// A request for a vote by a candidate whose log is as long as it can be.
fn vote(term: u64, candidate: u64) -> VoteRequest<Types> {
    let last = LogId::new(Vote::new(term - 1, 1).leader_id.to_committed(), 1_000_000);
    VoteRequest::new(Vote::new(term, candidate), Some(last))
}

fn append(term: u64, leader: u64) -> AppendEntriesRequest<Types> {
    AppendEntriesRequest {
        vote: Vote::new_committed(term, leader),
        prev_log_id: None,
        entries: Vec::new(),
        leader_commit: None,
    }
}

fn refused(reply: Result<RaftReply, Status>, says: &str) {
    let status = reply.expect_err("refused");
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    assert!(status.message().contains(says), "{status:?}");
}

/// The term of `leader`, whose lease is held now and for as long as the test looks.
async fn steady(cluster: &Cluster, leader: u64) -> u64 {
    cluster.client(leader).next_at_last(1).await;
    cluster.client(leader).status().await.unwrap().term
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_vote_leaves_the_leader_its_lease() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let other = other_than(leader);
    let term = steady(&cluster, leader).await;
    let lease = cluster.nodes[&leader].context().group.leadership();
    let lease = lease.borrow().own.clone().expect("it leads");
    let mine = header(&cluster, other, leader);
    // Of the next term, as an honest candidate asks: a majority is heard, so it is refused.
    let reply = send(&cluster, mine.clone(), RaftRpc::Vote, &vote(term + 1, other)).await;
    let reply = codec::decode::<VoteResponse<Types>>(&reply.unwrap().payload);
    assert!(!reply.unwrap().vote_granted);
    // The node refuses terms that no cluster comes to, too.
    for far in [u64::MAX, term + (1 << 41)] {
        let reply = send(&cluster, mine.clone(), RaftRpc::Vote, &vote(far, other)).await;
        refused(reply, "speaks of term");
    }
    assert!(!lease.is_void());
    let mut client = cluster.client(leader);
    client.next(1).await.unwrap();
    assert_eq!(client.status().await.unwrap().term, term);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leaders_message_of_an_absurd_term_is_neither_obeyed_nor_written_down() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let [follower, other] = others(leader);
    let term = steady(&cluster, leader).await;
    for to in [leader, follower] {
        let mine = header(&cluster, other, to);
        let reply = send(&cluster, mine, RaftRpc::Append, &append(u64::MAX, other)).await;
        refused(reply, "speaks of term");
    }
    let mut client = cluster.client(follower);
    client.next(1).await.unwrap();
    assert_eq!(client.status().await.unwrap().term, term);
    // Elections go on.
    cluster.crash(leader).await;
    cluster.client(follower).next_at_last(1).await;
    let now = cluster.client(follower).status().await.unwrap().term;
    assert!(now > term && now < term + 1_000, "term {now}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_with_entries_that_no_leader_sends_is_refused_and_harms_nobody() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let to = other_than(leader);
    let term = steady(&cluster, leader).await;
    let at =
        |term: u64, index: u64| LogId::new(Vote::new(term, leader).leader_id.to_committed(), index);
    let sent = [
        // These have a gap before the first entry.
        (None, vec![at(term, 1)]),
        (Some(at(term, 4)), vec![at(term, 6)]),
        // These have a gap behind it, and entries at the same place.
        (Some(at(term, 4)), vec![at(term, 5), at(term, 7)]),
        (Some(at(term, 4)), vec![at(term, 5), at(term, 5)]),
        (Some(at(term, u64::MAX)), vec![at(term, 0)]),
        // A term that falls, and one that is later than the leader's.
        (Some(at(term, 4)), vec![at(term - 1, 5)]),
        (Some(at(term, 4)), vec![at(term, 5), at(term + 1, 6)]),
    ];
    for (prev_log_id, ids) in sent {
        let entries = ids.iter().map(|id| Entry::new(*id, EntryPayload::Blank)).collect();
        let request = AppendEntriesRequest { prev_log_id, entries, ..append(term, leader) };
        let mine = header(&cluster, leader, to);
        let reply = send(&cluster, mine, RaftRpc::Append, &request).await;
        let status = reply.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument, "{prev_log_id:?} {ids:?}: {status:?}");
    }
    cluster.client(to).next_at_last(1).await;
    let fault = cluster.nodes[&to].context().fault();
    assert!(fault.is_none(), "{fault:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_messages_of_a_stranger_are_refused_while_a_leader_is_heard() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let follower = other_than(leader);
    let term = steady(&cluster, leader).await;
    for to in [leader, follower] {
        let stranger = header(&cluster, 9, to);
        let reply = send(&cluster, stranger.clone(), RaftRpc::Append, &append(term + 1, 9)).await;
        refused(reply, "not a member");
        let reply = send(&cluster, stranger, RaftRpc::Vote, &vote(term + 1, 9)).await;
        refused(reply, "not a member");
        // A member's id with another directory is a stranger, too.
        let mut replaced = header(&cluster, other_than(to), to);
        replaced.from_incarnation += 1;
        let from = replaced.from;
        let reply = send(&cluster, replaced, RaftRpc::PreVote, &vote(term + 1, from)).await;
        refused(reply, "with this data directory");
        // Nobody speaks for another.
        let honest = header(&cluster, other_than(to), to);
        let reply = send(&cluster, honest, RaftRpc::Vote, &vote(term + 1, 7)).await;
        assert_eq!(reply.unwrap_err().code(), Code::InvalidArgument);
    }
    let mut client = cluster.client(leader);
    client.next(1).await.unwrap();
    assert_eq!(client.status().await.unwrap().term, term);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hello_tells_nobody_which_directory_a_member_has() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    cluster.configure(2);
    cluster.start_node(2).await;
    let transport = as_peer();
    let ask = |to: u64, to_incarnation: u64| {
        let address = cluster.configs[&to].peer_listen.to_string();
        let request = HelloRequest {
            cluster: "test".into(),
            from: 9,
            to,
            election_timeout_ms: cluster.configs[&to].election_timeout_ms,
            to_incarnation,
            ..HelloRequest::default()
        };
        let transport = &transport;
        async move { transport.hello(listening_at(&address), request, PATIENCE).await }
    };
    let fresh = ask(2, 0).await.unwrap();
    assert_eq!((fresh.formed, fresh.incarnation), (false, incarnation(&cluster, 2)));
    let member = ask(1, 0).await.unwrap();
    assert_eq!((member.formed, member.incarnation), (true, 0));
    let own = incarnation(&cluster, 1);
    assert_eq!(ask(1, own).await.unwrap().incarnation, 0);
    let other = ask(1, own ^ 1).await.unwrap_err();
    assert_eq!(other.code(), Code::FailedPrecondition);
    // Nor does a refusal.
    for status in [
        Status::from(other),
        send(
            &cluster,
            Header { to_incarnation: own ^ 1, ..header(&cluster, 1, 1) },
            RaftRpc::Append,
            &append(1, 1),
        )
        .await
        .unwrap_err(),
    ] {
        assert!(!status.message().contains(&format!("{own:x}")), "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_is_refused_before_its_message_is_whole() {
    let cluster = Cluster::start(1, |_| {}).await;
    let own = header(&cluster, 1, 1);
    let path = "/ratchet.peer.v1.Peer/Append";
    let strangers = [
        Some(Header { cluster: "prod".into(), ..own.clone() }),
        Some(Header { to_incarnation: own.to_incarnation ^ 1, ..own.clone() }),
        None,
    ];
    // The beginning of a message of 64 MiB.
    let begun = |header| {
        let beginning =
            RaftMessage { header, payload: vec![7; 15_000].into(), ..RaftMessage::default() };
        let begun = [&[0, 4, 0, 0, 0][..], &beginning.encode_to_vec()].concat();
        [http2::call(1, path), http2::data(1, &begun), http2::data(1, &[7; 16_000]).repeat(5)]
            .concat()
    };
    for stranger in strangers {
        let mut stream = http2::greeted(cluster.configs[&1].peer_listen).await;
        let refused = format!("the refusal of {stranger:?}");
        stream.write_all(&begun(stranger)).await.unwrap();
        in_time(&refused, http2::end_of_answer(&mut stream)).await;
    }
    // A member's message is read to its end.
    let transport = as_peer();
    let message = RaftMessage {
        header: Some(own),
        payload: vec![7; 1 << 20].into(),
        ..RaftMessage::default()
    };
    let address = cluster.configs[&1].peer_listen.to_string();
    let answer = transport.raft(listening_at(&address), RaftRpc::Append, message, PATIENCE).await;
    let status = answer.unwrap_err();
    assert!(status.message().contains("cannot be read"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_no_member_and_does_not_go_on_is_refused_and_a_member_is_not() {
    let cluster = Cluster::start(1, |_| {}).await;
    let address = cluster.configs[&1].peer_listen;
    let path = "/ratchet.peer.v1.Peer/Append";
    let begin = async |says: &[u8]| {
        let mut stream = http2::greeted(address).await;
        let says = [http2::call(1, path), http2::data(1, says)].concat();
        stream.write_all(&says).await.expect("a call");
        stream
    };
    let answered = async |mut stream: TcpStream| {
        in_time("an answer", http2::end_of_answer(&mut stream)).await;
    };
    let message = |header: &Header| {
        let payload = vec![7; 100].into();
        RaftMessage { header: Some(header.clone()), payload, ..RaftMessage::default() }
            .encode_to_vec()
    };
    let begun =
        |header: &Header, bytes: u32| [&[0][..], &bytes.to_be_bytes(), &message(header)].concat();
    let own = header(&cluster, 1, 1);
    let knows_the_directory = Header { from: 9, ..own.clone() };
    let knows_nothing = Header { cluster: "prod".into(), ..own.clone() };
    let whole = message(&knows_nothing).len() as u32;
    let mut member = begin(&begun(&own, 1 + message(&own).len() as u32)).await;
    let strangers = [
        vec![],
        vec![0, 0, 0],
        begun(&knows_nothing, 1_000),
        begun(&knows_nothing, 64 << 20),
        begun(&knows_nothing, whole),
        begun(&knows_the_directory, 1_000),
    ];
    let refused = strangers.iter().map(async |says| answered(begin(says).await).await);
    futures::future::join_all(refused).await;
    member.write_all(&http2::last_data(1, &[7])).await.expect("it is not given up");
    answered(member).await;
}

/// Waits until `holds` is true, for less time than a stranger has who does not go on. `None` if that is over.
async fn in_strangers_time(what: &str, holds: impl Fn() -> bool) -> Option<()> {
    tokio::time::timeout(Duration::from_secs(4), until(what, holds)).await.ok()
}

/// A node without data tells anybody which directory it has.
#[tokio::test(flavor = "multi_thread")]
async fn what_strangers_make_a_node_without_data_hold_is_bounded() {
    const BYTES: u32 = 6 << 20;
    let mut cluster = Cluster::start(1, |_| {}).await;
    let peer_address = cluster.start_joining(2, |config| config.memory_requests_max_mb = 16).await;
    let stranger = Header { from: 9, ..header(&cluster, 1, 2) };
    let message = |bytes: usize| RaftMessage {
        header: Some(stranger.clone()),
        payload: vec![7; bytes].into(),
        ..RaftMessage::default()
    };
    let begun = [&[0][..], &BYTES.to_be_bytes(), &message(100).encode_to_vec()].concat();
    let says = [http2::call(1, "/ratchet.peer.v1.Peer/Append"), http2::data(1, &begun)].concat();
    let counted = &cluster.nodes[&2].context().metrics.request_bytes;
    let transport = as_peer();
    let answered = async |code| {
        let sent = message(BYTES as usize);
        let answer =
            transport.raft(listening_at(&peer_address), RaftRpc::Append, sent, PATIENCE).await;
        (answer.expect_err("it is no append").code() == code).then_some(())
    };
    // On a slow machine the stranger is given up before the other message comes: then it begins again.
    let holds = eventually("a refusal", async || {
        let mut holds = http2::greeted(cluster.configs[&2].peer_listen).await;
        holds.write_all(&says).await.expect("a call");
        in_strangers_time("it counts", || counted.get() >= i64::from(BYTES)).await?;
        // 12 MiB are too many.
        answered(Code::ResourceExhausted).await.map(|()| holds)
    })
    .await;
    drop(holds);
    eventually("room", async || answered(Code::InvalidArgument).await).await;
    cluster.client(1).add_node_at_last(2, &peer_address).await;
    cluster.client(2).next_at_last(1).await;
}

/// A node without data cannot tell the leader that adds it from a stranger.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_of_one_address_leave_the_leader_memory_at_a_node_without_data() {
    const BYTES: u32 = 7 << 20;
    let mut cluster = Cluster::start(1, |_| {}).await;
    let peer_address = cluster.start_joining(2, |config| config.memory_requests_max_mb = 16).await;
    let stranger = Header { from: 9, ..header(&cluster, 1, 2) };
    let message = |header, bytes| RaftMessage {
        header: Some(header),
        payload: vec![7; bytes].into(),
        ..RaftMessage::default()
    };
    let beginning = message(stranger, 100).encode_to_vec();
    let begun = [&[0][..], &BYTES.to_be_bytes(), &beginning].concat();
    let says = [http2::call(1, "/ratchet.peer.v1.Peer/Append"), http2::data(1, &begun)].concat();
    let begin = async || {
        let stream = http2::connect_from_elsewhere(cluster.configs[&2].peer_listen).await;
        let mut stream = http2::greet(stream, &[]).await;
        stream.write_all(&says).await.expect("a call");
        stream
    };
    let metrics = &cluster.nodes[&2].context().metrics;
    let held = || metrics.request_bytes.get() / i64::from(BYTES);
    // On a slow machine the first one is given up before the second one is looked at: then both begin again.
    let _strangers = eventually("two strangers that are looked at", async || {
        until("nothing is held", || held() == 0).await;
        let refused = metrics.requests_refused.get();
        let first = begin().await;
        in_strangers_time("the first one counts", || held() == 1).await?;
        let second = begin().await;
        let is_looked_at = || held() == 2 || metrics.requests_refused.get() > refused;
        in_strangers_time("the second one is looked at", is_looked_at).await?;
        Some((first, second))
    })
    .await;
    let sent = message(header(&cluster, 1, 2), BYTES as usize);
    let answer = as_peer().raft(listening_at(&peer_address), RaftRpc::Append, sent, PATIENCE).await;
    let status = answer.expect_err("it is no append");
    assert!(status.message().contains("cannot be read"), "{status}");
    cluster.client(1).add_node_at_last(2, &peer_address).await;
    cluster.client(2).next_at_last(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_strangers_make_room_for_members() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let to = other_than(leader);
    let term = steady(&cluster, leader).await;
    let mut held = Vec::new();
    for _ in 0..200 {
        let address = cluster.configs[&to].peer_listen;
        held.push(TcpStream::connect(address).await.expect("a connection"));
    }
    let mine = header(&cluster, leader, to);
    let reply = send(&cluster, mine, RaftRpc::PreVote, &vote(term + 1, leader)).await;
    reply.expect("a member is heard");
    // The members' other connections are still there.
    let mut client = cluster.client(to);
    client.next(1).await.unwrap();
    assert_eq!(client.status().await.unwrap().term, term);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_stops_although_its_leader_goes_on_sending() {
    let mut cluster = Cluster::start(3, |config| config.shutdown_timeout_ms = 600_000).await;
    let leader = cluster.leader().await;
    let node = cluster.nodes.remove(&other_than(leader)).expect("a node");
    in_time("the end of the node", node.stop()).await;
    cluster.client(leader).next(1).await.expect("a number");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_message_does_not_stop_a_node_that_waits_for_its_cluster() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    let peer_address = cluster.start_joining(2, |_| {}).await;
    let mine = header(&cluster, 1, 2);
    let wrong = Header { to_incarnation: mine.to_incarnation ^ 1, ..mine };
    let reply = send(&cluster, wrong, RaftRpc::Append, &append(1, 1)).await;
    refused(reply, "another data directory");
    cluster.client(1).add_node_at_last(2, peer_address).await;
    cluster.client(2).next_at_last(1).await;
    let fault = cluster.nodes[&2].context().fault();
    assert!(fault.is_none(), "{fault:?}");
}

/// While node 3 is away, nodes 1 and 2 are replaced by 4 and 5. It knows neither; and the cluster
/// needs its vote for one, and its acknowledgements.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_elects_and_follows_members_that_it_does_not_know() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    if cluster.leader().await == 3 {
        cluster.client(3).transfer(1).await.unwrap();
    }
    cluster.crash(3).await;
    for (stays, leaves, new) in [(2, 1, 4), (4, 2, 5)] {
        let leader = cluster.leader().await;
        cluster.add_voter(leader, new).await;
        let mut client = cluster.client(stays);
        client.transfer(new).await.unwrap();
        let now = client.remove_node(leaves).await.unwrap();
        assert!(now.voters.contains(&3) && now.voters.contains(&new));
        cluster.crash(leaves).await;
    }
    let highest = cluster.client(5).next_at_last(7).await;
    cluster.crash(4).await;
    cluster.crash(5).await;
    cluster.start_node(3).await;
    cluster.start_node(5).await;
    assert!(cluster.client(5).next_at_last(7).await > highest);
}

/// The first part of a snapshot, and those after it.
fn parts(header: Header, vote: Vote, meta: SnapshotMeta, bytes: &[u8]) -> Vec<SnapshotPart> {
    let first = SnapshotPart {
        header: Some(header),
        payload: codec::encode(&(vote, meta)).unwrap().into(),
    };
    let rest = bytes
        .chunks(256 << 10)
        .map(|bytes| SnapshotPart { payload: bytes.to_vec().into(), ..SnapshotPart::default() });
    [first].into_iter().chain(rest).collect()
}

async fn install(
    cluster: &Cluster, to: u64, parts: impl futures::Stream<Item = SnapshotPart> + Send + 'static,
) -> Result<RaftReply, Status> {
    let address = cluster.configs[&to].peer_listen.to_string();
    let transport = as_peer();
    let sending = transport.install_snapshot(listening_at(&address), parts.boxed());
    Ok(in_time("the answer to a snapshot", sending).await?)
}

/// A snapshot of an empty table, as it is sent.
async fn empty_snapshot() -> (SnapshotMeta, Vec<u8>) {
    let dir = tempfile::TempDir::new().unwrap();
    let options = StoreOptions::new(Arc::new(BootClock));
    let store = Store::open(dir.path(), "test", 9, options).unwrap();
    let mut machine = StateMachine::open(&store, 1).unwrap();
    let mut builder = machine.get_snapshot_builder().await;
    let snapshot = builder.build_snapshot().await.unwrap();
    let SnapshotData::Outgoing(mut outgoing) = snapshot.snapshot else {
        panic!("it is its own");
    };
    let mut bytes = Vec::new();
    while let Some(part) = outgoing.next_part().await {
        bytes.extend(part.unwrap());
    }
    (snapshot.meta, bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_taken_in_only_as_announced_and_from_a_leader() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let to = other_than(leader);
    let mut client = cluster.client(leader);
    let term = client.status().await.unwrap().term;
    let (meta, bytes) = empty_snapshot().await;
    let mine = || header(&cluster, leader, to);
    let vote = Vote::new_committed(term, leader);

    let stale = Vote::new_committed(term.saturating_sub(1), leader);
    let sent = parts(mine(), stale, meta.clone(), &bytes);
    let reply = install(&cluster, to, stream::iter(sent)).await.unwrap();
    let answer: SnapshotResponse<Types> = codec::decode(&reply.payload).unwrap();
    assert_eq!(answer.vote.leader_id.term, term, "it says who leads now");

    let refused = async |sent: Vec<SnapshotPart>, code, says: &str| {
        let refused = install(&cluster, to, stream::iter(sent)).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused:?}");
        assert!(refused.message().contains(says), "{refused:?}");
    };
    let last = LogId::new(Vote::new(term, leader).leader_id.to_committed(), 1_000_000);
    let other = SnapshotMeta { last_log_id: Some(last), ..meta.clone() };
    let sent = parts(mine(), vote, other, &bytes);
    refused(sent, Code::InvalidArgument, "announced").await;
    let mut large = parts(mine(), vote, meta.clone(), &[7]);
    large[1].payload = vec![7; 8 << 20].into();
    refused(large, Code::InvalidArgument, "at most").await;
    let cut = parts(mine(), vote, meta.clone(), &bytes[..bytes.len() - 1]);
    refused(cut, Code::Internal, "ends too early").await;
    let stranger = parts(header(&cluster, 9, to), vote, meta, &bytes);
    refused(stranger, Code::FailedPrecondition, "not a member").await;
    client.next(1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_never_goes_on_is_given_up() {
    // The next part is awaited for thirty election timeouts. With much shorter ones a slow machine comes to no leader.
    let cluster = Cluster::start(3, hurried).await;
    let (from, to) = (1, 2);
    // Of a term that is not over soon.
    let vote = Vote::new_committed(1_000, from);
    let begun = parts(header(&cluster, from, to), vote, SnapshotMeta::default(), &[7; 1_000]);
    let begun = begun.into_iter().take(1);
    let stalls = stream::iter(begun).chain(stream::pending());
    let status = install(&cluster, to, stalls).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    assert!(status.message().contains("no part of the snapshot came"), "{status:?}");
}

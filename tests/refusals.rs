//! Bad input is refused with a standard status, the value, and the remedy; nothing panics.

use std::{io::Write, net::TcpStream, pin::pin, time::Duration};

use crate::common::{
    Client, PATIENCE, append, channel,
    cluster::Cluster,
    id, is_late,
    links::{as_peer, listening_at},
    name, other_than,
};
use ratchet::{
    consensus::{RaftRpc, Transport},
    node::{Asker, CheckedRequest, Origin, config::FenceKind},
    proto::{
        peer::{Header, HelloRequest, RaftMessage, peer_client::PeerClient},
        v1::{
            CreateNamespaceRequest, GetNamespaceRequest, Key, KeyKind, NextRequest,
            UpdateNamespaceRequest, key::Kind,
        },
    },
    storage::codec::VERSION,
};
use tonic::{Code, Status};

fn assert_refused(refused: Result<impl std::fmt::Debug, Status>, code: Code, says: &[&str]) {
    let status = refused.expect_err("refused");
    assert_eq!(status.code(), code, "{status:?}");
    for part in says {
        assert!(status.message().contains(part), "{part:?} is not in {status:?}");
    }
}

/// The same from the leader and through a follower.
async fn everyone(cluster: &Cluster) -> [Client; 2] {
    let leader = cluster.leader().await;
    [cluster.client(leader), cluster.client(other_than(leader))]
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_keys_and_namespaces_outside_their_limits_are_refused() {
    use Code::InvalidArgument;
    let cluster = Cluster::start(3, |config| {
        config.count_max = 1_000;
    })
    .await;
    for mut client in everyone(&cluster).await {
        let next = client.try_next("book", id(1), 0).await;
        assert_refused(next, InvalidArgument, &["count is 0", "between 1 and 1000"]);
        let next = client.try_next("book", id(1), 1_001).await;
        assert_refused(next, InvalidArgument, &["count is 1001", "between 1 and 1000"]);
        let next = client.try_next("book", id(1), u64::MAX).await;
        assert_refused(next, InvalidArgument, &["count is 18446744073709551615"]);
        let next = client.try_next("book", None, 1).await;
        assert_refused(next, InvalidArgument, &["key is missing"]);
        let next = client.try_next("book", Some(Key { kind: None }), 1).await;
        assert_refused(next, InvalidArgument, &["key is missing"]);
        let next = client.try_next("book", name(b""), 1).await;
        assert_refused(next, InvalidArgument, &["key is empty"]);
        let next = client.try_next("book", name(&[b'x'; 257]), 1).await;
        assert_refused(next, InvalidArgument, &["257 bytes", "at most 256"]);
        let next = client.try_next("book", name(b"dune"), 1).await;
        assert_refused(next, InvalidArgument, &["\"book\"", "\"dune\"", "unsigned"]);
        let next = client.try_next("", id(1), 1).await;
        assert_refused(next, InvalidArgument, &["namespace is empty"]);
        let next = client.try_next(&"n".repeat(65), id(1), 1).await;
        assert_refused(next, InvalidArgument, &["65 characters"]);
        let next = client.try_next("a b", id(1), 1).await;
        assert_refused(next, InvalidArgument, &["\"a b\"", "' '"]);
        let next = client.try_next("film", id(1), 1).await;
        assert_refused(next, Code::NotFound, &["\"film\"", "ratchet namespace create film"]);
        let current = client.current("film", id(1)).await;
        assert_refused(current, Code::NotFound, &["ratchet namespace create film"]);
        let current = client.current("book", name(b"dune")).await;
        assert_refused(current, InvalidArgument, &["\"dune\""]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_namespaces_numbers_is_told_and_can_be_moved() {
    let cluster = Cluster::start(3, |_| {}).await;
    let [mut leader, mut follower] = everyone(&cluster).await;
    let create = CreateNamespaceRequest {
        name: "few".into(),
        key_kind: KeyKind::Name.into(),
        step: Some(10),
        increment: Some(10),
        start: Some(5),
        max: Some(40),
        section_size: None,
        ..CreateNamespaceRequest::default()
    };
    follower.admin.create_namespace(create.clone()).await.unwrap();
    assert_refused(leader.admin.create_namespace(create).await, Code::AlreadyExists, &["\"few\""]);
    let range = follower.try_next("few", name(b"k"), 2).await.unwrap();
    assert_eq!((range.first, range.last, range.increment), (5, 15, 10));
    for client in [&mut leader, &mut follower] {
        let next = client.try_next("few", name(b"k"), 3).await;
        let says = ["count is 3", "2 numbers are left", "max 40", "namespace update few --max"];
        assert_refused(next, Code::OutOfRange, &says);
    }
    let range = leader.try_next("few", name(b"k"), 2).await.unwrap();
    assert_eq!((range.first, range.last), (25, 35));
    assert_refused(leader.try_next("few", name(b"k"), 1).await, Code::OutOfRange, &["0 numbers"]);
    assert_eq!(leader.current("few", name(b"k")).await.unwrap(), Some(35));
    let update = UpdateNamespaceRequest {
        namespace: "few".into(),
        max: Some(1_000),
        ..UpdateNamespaceRequest::default()
    };
    follower.admin.update_namespace(update).await.unwrap();
    let range = follower.try_next("few", name(b"k"), 2).await.unwrap();
    assert_eq!((range.first, range.last), (45, 55));
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_that_cannot_work_are_refused_by_field_and_value() {
    use Code::InvalidArgument;
    let cluster = Cluster::start(3, |_| {}).await;
    for mut client in everyone(&cluster).await {
        let plain = CreateNamespaceRequest { name: "x".into(), ..Default::default() };
        let zero_step = CreateNamespaceRequest { step: Some(0), ..plain.clone() };
        let create = client.admin.create_namespace(zero_step).await;
        assert_refused(create, InvalidArgument, &["step is 0"]);
        let wide_step = CreateNamespaceRequest { step_max: Some((1 << 40) + 1), ..plain.clone() };
        let create = client.admin.create_namespace(wide_step).await;
        let says = ["step_max is 1099511627777", "1099511627776"];
        assert_refused(create, InvalidArgument, &says);
        let wide_step = UpdateNamespaceRequest {
            namespace: "book".into(),
            step: Some(1 << 50),
            ..UpdateNamespaceRequest::default()
        };
        let update = client.admin.update_namespace(wide_step).await;
        assert_refused(update, InvalidArgument, &["step is 1125899906842624"]);
        let sections = CreateNamespaceRequest {
            key_kind: KeyKind::Name.into(),
            section_size: Some(8),
            ..plain.clone()
        };
        let create = client.admin.create_namespace(sections).await;
        assert_refused(create, InvalidArgument, &["section_size is 8"]);
        let bad_name = CreateNamespaceRequest { name: "a/b".into(), ..plain };
        let create = client.admin.create_namespace(bad_name).await;
        assert_refused(create, InvalidArgument, &["\"a/b\"", "'/'"]);
        let unknown = UpdateNamespaceRequest {
            namespace: "film".into(),
            step: Some(5),
            ..UpdateNamespaceRequest::default()
        };
        assert_refused(client.admin.update_namespace(unknown).await, Code::NotFound, &["\"film\""]);
        let get =
            client.admin.get_namespace(GetNamespaceRequest { namespace: "film".into() }).await;
        assert_refused(get, Code::NotFound, &["\"film\""]);
        let empty = UpdateNamespaceRequest {
            namespace: "book".into(),
            step: Some(0),
            ..UpdateNamespaceRequest::default()
        };
        assert_refused(client.admin.update_namespace(empty).await, InvalidArgument, &["step is 0"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_cannot_be_met_is_an_error_in_time() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    cluster.cut_off(leader);
    // Its lease still holds, and a fresh key needs a bump that it cannot commit.
    let mut client = cluster.client(leader).patient(Duration::from_millis(60));
    let late = client.next(777).await.unwrap_err();
    assert!(is_late(&late) || late.code() == Code::Unavailable, "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_message_for_another_cluster_node_directory_set_or_timing_is_refused() {
    let cluster = Cluster::start(3, |_| {}).await;
    let peer = channel(cluster.configs[&1].peer_listen);
    let mut peer = PeerClient::new(peer);
    let incarnation = |id| {
        let store = &cluster.nodes[&id].context().this_node.store;
        store.incarnation()
    };
    let mine = Header {
        cluster: "test".into(),
        set: 1,
        from: 2,
        to: 1,
        to_incarnation: incarnation(1),
        election_timeout_ms: cluster.configs[&1].election_timeout_ms,
        from_incarnation: incarnation(2),
    };
    let other = |change: fn(&mut Header)| {
        let mut header = mine.clone();
        change(&mut header);
        RaftMessage { header: Some(header), payload: vec![].into(), ..RaftMessage::default() }
    };
    for (message, says) in [
        (other(|h| h.cluster = "prod".into()), "\"prod\""),
        (other(|h| h.to = 3), "for node 3"),
        (other(|h| h.to_incarnation += 1), "another data directory"),
        (other(|h| h.set = 2), "set 2"),
        (other(|h| h.election_timeout_ms = 500), "election_timeout_ms is 500"),
    ] {
        let appended = append(&mut peer, message.clone()).await;
        assert_refused(appended, Code::FailedPrecondition, &[says]);
        assert_refused(peer.vote(message).await, Code::FailedPrecondition, &[says]);
    }
    let headless = RaftMessage { header: None, payload: vec![].into(), ..RaftMessage::default() };
    assert_refused(append(&mut peer, headless).await, Code::InvalidArgument, &["header"]);
    let garbage =
        RaftMessage { header: Some(mine), payload: vec![1, 2, 3].into(), ..RaftMessage::default() };
    let appended = append(&mut peer, garbage.clone()).await;
    assert_refused(appended, Code::InvalidArgument, &["cannot be read"]);
    assert_refused(peer.vote(garbage).await, Code::InvalidArgument, &["cannot be read"]);
    let stranger = HelloRequest {
        cluster: "prod".into(),
        from: 9,
        to: 1,
        election_timeout_ms: cluster.configs[&1].election_timeout_ms,
        ..HelloRequest::default()
    };
    assert_refused(peer.hello(stranger).await, Code::FailedPrecondition, &["\"prod\"", "\"test\""]);
    cluster.client(1).next(1).await.unwrap();
}

/// Under the quorum fence: its term stands until it hears of the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_deposed_refuses_nothing_by_the_namespaces_that_it_knew() {
    let cluster = Cluster::start(3, |config| config.fence = FenceKind::Quorum).await;
    let deposed = cluster.leader().await;
    cluster.cut_off(deposed);
    let other = other_than(deposed);
    let next = cluster.leader_seen_by(other, |new| new != deposed).await;
    let create = CreateNamespaceRequest { name: "late".to_owned(), ..Default::default() };
    cluster.client(next).admin.create_namespace(create).await.expect("created");
    let late = NextRequest { namespace: "late".to_owned(), key: id(7), ..NextRequest::default() };
    let late = CheckedRequest::new(late, Asker::node(1)).expect("a request");
    let shared = cluster.nodes[&deposed].context();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut asking = pin!(shared.numbers.serve(&late, Origin::Client, deadline));
    assert!(futures::poll!(&mut asking).is_pending(), "it asks a majority first");
    cluster.mend();
    assert_eq!(asking.await.expect("a number").first, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_any_port_harms_nobody() {
    let cluster = Cluster::start(1, |_| {}).await;
    let config = &cluster.configs[&1];
    for address in [config.listen, config.peer_listen] {
        let mut garbage = vec![0x16, 0x03, 0x01];
        garbage.extend((0..4_096u32).map(|i| (i * 7_919 % 251) as u8));
        for bytes in [
            garbage.as_slice(),
            b"GET / HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff",
        ] {
            let mut stream = TcpStream::connect(address).unwrap();
            // The node may hang up before all is written.
            let _ = stream.write_all(bytes);
        }
    }
    assert_eq!(cluster.client(1).next(5).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_tells_who_leads_to_callers_that_do_not_know() {
    let cluster = Cluster::start(3, |_| {}).await;
    for mut client in everyone(&cluster).await {
        let answer = client.try_next("book", id(1), 1).await.unwrap();
        let route = answer.route.expect("a route");
        let leader = cluster.leader().await;
        assert_eq!(route.leader, leader);
        assert_eq!(route.address, cluster.address(leader).to_string());
        assert!(route.members.is_empty(), "not asked for");
        let request = ratchet::proto::v1::NextRequest {
            namespace: "book".into(),
            key: Some(Key { kind: Some(Kind::Id(1)) }),
            count: None,
            route_version: route.version,
            members_version: Some(0),
            request_id: None,
            retry_window_ms: None,
            made_ms: None,
        };
        let told = client.sequencer.next(request.clone()).await.unwrap();
        let told = told.into_inner().route.expect("the members");
        assert_eq!(told.version, route.version);
        let addresses = cluster.addresses().into_iter();
        let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
        assert_eq!(told.members, addresses);
        let request = ratchet::proto::v1::NextRequest {
            members_version: Some(told.members_version),
            ..request
        };
        let known = client.sequencer.next(request).await.unwrap().into_inner();
        assert_eq!(known.route, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_cannot_read_a_message_says_that_it_runs_another_release() {
    let cluster = Cluster::start(2, |_| {}).await;
    let group = &cluster.nodes[&1].context().group;
    let nodes = group.membership.nodes();
    let other = nodes.iter().find(|node| node.id == 2).expect("node 2");
    let message = RaftMessage {
        header: Some(group.sender().header(2, &other.member)),
        payload: vec![VERSION + 1, 1, 2, 3].into(),
        ..RaftMessage::default()
    };
    let address = &other.member.peer_address;
    for rpc in [RaftRpc::Append, RaftRpc::Vote] {
        let sent = as_peer().raft(listening_at(address), rpc, message.clone(), PATIENCE).await;
        let version = format!("format version {}", VERSION + 1);
        let says = ["node 2 runs another release", &version];
        assert_refused(sent.map_err(Status::from), Code::InvalidArgument, &says);
    }
}

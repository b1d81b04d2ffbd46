//! Nodes are added, promoted, removed and moved to other addresses, and no change harms the cluster.

use crate::common::{
    PATIENCE, certificates::Certificates, cluster::Cluster, eventually, free_ports, history::Load,
    in_time, other_than, others, own_ip, processes::Processes, until,
};
use prost::Message;
use ratchet::{
    consensus::{MembershipChange, ProposeError},
    node::{Asker, Origin, ServedOperation, Unanswered},
    proto::{
        Operation, Refusal, reason_of,
        v1::{
            AddNodeRequest, CreateNamespaceRequest, FoundRequest, MembershipResponse, Outcome,
            PromoteNodeRequest, Reason, RemoveNodeRequest, UpdateNodeRequest,
            admin_client::AdminClient,
        },
    },
    tasks::Fault,
};
use std::time::Duration;
use tokio::{io::AsyncWriteExt, net::TcpListener};
use tonic::{Code, Response, Status, transport::Endpoint};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_one_grows_to_three_under_load_and_its_founder_leaves() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    let load = Load::start(&cluster.addresses(), 4, 2);
    load.answers(50).await;
    for id in [2, 3] {
        cluster.add_learner(1, id).await;
        let members = cluster.client(1).promote_node(id).await.unwrap();
        assert!(members.voters.contains(&id));
        load.answers(50).await;
    }
    let mut client = cluster.client(2);
    let refused = client.remove_node(1).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("ratchet transfer"), "{refused:?}");
    cluster.lead(2).await;
    let history = load.finish().await;
    assert_eq!(history.failed, 0, "{:?}", history.failures);
    history.assert_strictly_increasing();
    client.next_at_last(0).await;
    let members = client.remove_node(1).await.unwrap();
    assert_eq!((members.voters, members.learners), (vec![2, 3], vec![]));
    cluster.crash(1).await;
    let number = cluster.client(3).next_at_last(0).await;
    assert!(number > history.highest(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_members_that_is_impossible_is_refused_with_the_reason() {
    let cluster = Cluster::start(3, |_| {}).await;
    let mut client = cluster.client(cluster.leader().await);
    let peer_address = cluster.configs[&1].peer_listen.to_string();
    let [nobody] = free_ports::<1>(own_ip());
    for (id, address, code) in [
        (1, peer_address.as_str(), Code::AlreadyExists),
        (0, &peer_address, Code::InvalidArgument),
        (9, &nobody.to_string(), Code::Unavailable),
        (9, "not an address", Code::InvalidArgument),
    ] {
        let refused = client.add_node(id, address).await.unwrap_err();
        assert_eq!(refused.code(), code, "node {id} at {address}: {refused:?}");
    }
    let other = client.why_not_added(9, &peer_address).await;
    assert_eq!(other.code(), Code::FailedPrecondition);
    assert!(other.message().contains("this is node 1"), "{other:?}");
    for unknown in [
        client.promote_node(9).await.unwrap_err(),
        client.remove_node(9).await.unwrap_err(),
        client.transfer(9).await.unwrap_err(),
    ] {
        assert_eq!(unknown.code(), Code::NotFound, "{unknown:?}");
        assert!(unknown.message().contains("the members are 1, 2, 3"), "{unknown:?}");
    }
}

/// A listener at which a program answers every request in these words.
async fn something_that_says(words: &'static str) -> String {
    let listener = TcpListener::bind((own_ip(), 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // The caller may have left.
            let _ = stream.write_all(words.as_bytes()).await;
        }
    });
    address.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_adds_a_node_is_told_the_same_of_every_address_where_no_node_of_the_cluster_answers() {
    let certificates = Certificates::new();
    let stranger = Processes::start(1, &[]).await;
    for speaks_tls in [false, true] {
        let mut cluster = Processes::configured(1, &[]);
        if speaks_tls {
            certificates.node(1, &cluster.places[&1].peer_listen.ip().to_string(), &[]);
            cluster.own_flags.insert(1, certificates.peer_flags(1, "require"));
        }
        cluster.spawn(1);
        let socket = Endpoint::from_shared(cluster.socket(1)).expect("an address").connect_lazy();
        let mut founder = AdminClient::new(socket);
        let found = async || founder.found(FoundRequest::default()).await.ok();
        eventually("the cluster is founded", found).await;
        cluster.client(1).next_at_last(1).await;
        let [nobody] = free_ports::<1>(own_ip());
        let mut addresses = vec![
            nobody.to_string(),
            something_that_says("SSH-2.0-OpenSSH_9.9\r\n").await,
            something_that_says("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await,
            something_that_says("").await,
            cluster.places[&1].listen.to_string(),
        ];
        if speaks_tls {
            addresses.push(stranger.places[&1].peer_listen.to_string());
        }
        let mut told = Vec::new();
        for address in &addresses {
            let mut client = cluster.client(1);
            let refused = client.add_node(9, address).await.expect_err("no node");
            assert_eq!(refused.code(), Code::Unavailable, "{address}: {refused:?}");
            assert!(refused.message().contains("The log of node 1"), "{refused:?}");
            let moved = UpdateNodeRequest { id: 1, peer_address: Some(address.clone()) };
            let moved = client.admin.update_node(moved).await.expect_err("no node");
            for refused in [refused, moved] {
                let text = refused.message().replace("node 9 at", "node 1 at");
                told.push((address, text.replace(address, "?")));
            }
        }
        for (address, text) in &told {
            assert_eq!(*text, told[0].1, "{address}");
        }
    }
}

/// If a change that Raft refused still counted, one dead voter would take the majority away, and the
/// leader would never hand out a number again.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_change_does_not_go_on_counting_against_the_lease() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let term = cluster.client(leader).status().await.unwrap().term;
    let group = cluster.nodes[&leader].context().group.clone();
    // Node 9 was never added.
    let refused = group.membership.change(term, vec![MembershipChange::Promote(9)], None).await;
    assert!(matches!(refused, Err(ProposeError::Refused(_))), "{refused:?}");
    // A change of an earlier term is refused as well.
    let late = group.membership.change(term - 1, vec![MembershipChange::Remove(1)], None).await;
    assert!(matches!(late, Err(ProposeError::NotLeader(_))), "{late:?}");
    cluster.crash(other_than(leader)).await;
    // Two of three voters renew the lease, long after the third was heard last.
    let lease_ms = cluster.configs[&leader].lease_ms;
    let later = group.now().after(Duration::from_millis(2 * lease_ms));
    let lease = group.leadership().borrow().own.clone().expect("it leads");
    let renewed = lease.wait_until(|lease| lease.deadline() > later || lease.is_void());
    in_time("a lease", renewed).await;
    cluster.client(leader).next_at_last(7).await;
}

/// The voters that remain must have a living majority.
#[tokio::test(flavor = "multi_thread")]
async fn removing_a_living_voter_while_another_one_is_dead_is_refused_unless_forced() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let [alive, dead] = others(leader);
    cluster.crash(dead).await;
    let mut client = cluster.client(leader);
    client.next_at_last(7).await;
    let remove = |id, force| RemoveNodeRequest { id, force };
    let refused = client.admin.remove_node(remove(alive, false)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    for says in [format!("node {dead} "), "heard".into(), "--force".into()] {
        assert!(refused.message().contains(&says), "{refused:?}");
    }
    // Nothing has changed, and the dead voter can be removed.
    client.next_at_last(7).await;
    let now = client.admin.remove_node(remove(dead, false)).await.unwrap().into_inner();
    assert!(now.voters.contains(&alive) && !now.voters.contains(&dead));
    client.next_at_last(7).await;
}

/// Nobody is left to elect a leader.
#[tokio::test(flavor = "multi_thread")]
async fn an_only_voter_that_gives_its_term_up_stops_and_goes_on_when_started() {
    let mut cluster = Cluster::start(2, |_| {}).await;
    let leader = cluster.leader().await;
    let mut client = cluster.client(leader);
    let last = client.next_at_last(1).await;
    client.remove_node(3 - leader).await.expect("it is removed");
    let lease = cluster.nodes[&leader].context().group.leadership().borrow().own.clone();
    // As a refused bump or a hanging disk does.
    lease.expect("it leads").void();
    let fault = in_time("the end of the leader", cluster.nodes[&leader].failed()).await;
    // Its supervisor is told that another start is all it needs.
    let Fault::NeedsRestart(why) = fault else { panic!("another fault: {fault}") };
    assert!(why.contains("only voter"), "{why}");
    cluster.crash(leader).await;
    cluster.start_node(leader).await;
    assert!(cluster.client(leader).next_at_last(1).await > last);
}

/// Either the other voter leads before its removal is committed, or the leader becomes the only voter, and stops.
#[tokio::test(flavor = "multi_thread")]
async fn a_term_that_is_given_up_while_the_last_other_voter_is_removed_is_not_the_last_one() {
    let mut cluster = Cluster::start(2, |_| {}).await;
    let leader = cluster.leader().await;
    let other = 3 - leader;
    let mut client = cluster.client(leader);
    let last = client.next_at_last(1).await;
    cluster.cut_off(other);
    let group = cluster.nodes[&leader].context().group.clone();
    let lease = group.leadership().borrow().own.clone().expect("it leads");
    let before = group.membership.log_state().last;
    let change = MembershipChange::Remove(other);
    let removing = tokio::spawn({
        let (group, term) = (group.clone(), lease.term());
        async move { group.membership.change(term, vec![change], None).await }
    });
    let is_proposed = || group.membership.log_state().last != before;
    until("the change is under way", is_proposed).await;
    lease.void();
    cluster.mend();
    let stopped = tokio::select! {
        _ = cluster.nodes[&leader].failed() => true,
        _ = cluster.leader_seen_by(leader, |now| now == other) => false,
    };
    // The node's files are closed once nobody holds its group any more.
    drop(group);
    if stopped {
        cluster.crash(leader).await;
        cluster.start_node(leader).await;
    }
    let _whatever_came_of_it = removing.await.expect("no panic");
    assert!(cluster.client(leader).next_at_last(1).await > last);
}

/// A learner that is away must not be counted as a voter: there would be no majority.
#[tokio::test(flavor = "multi_thread")]
async fn promoting_a_learner_that_is_away_is_refused_unless_forced() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    cluster.add_learner(1, 2).await;
    let mut client = cluster.client(1);
    cluster.crash(2).await;
    let promote = |force| PromoteNodeRequest { id: 2, force };
    let refused = client.admin.promote_node(promote(false)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains("node 2 was "), "{refused:?}");
    client.next(7).await.unwrap();
    // A forced promotion is completed when the learner is back: until then there is no majority.
    let forced = tokio::spawn({
        let mut client = client.clone();
        async move { client.admin.promote_node(promote(true)).await }
    });
    cluster.start_node(2).await;
    let now = forced.await.unwrap().unwrap().into_inner();
    assert_eq!(now.voters, [1, 2]);
    client.next_at_last(7).await;
}

/// Its first step is logged, and the second one is not: a client that asks again by itself could do
/// harm.
#[tokio::test(flavor = "multi_thread")]
async fn the_outcome_of_a_change_whose_leader_hands_over_between_its_two_steps_is_unknown() {
    let status = in_time("a handover between the steps", async {
        loop {
            match change_while_the_leader_hands_over().await {
                // The second step was logged in time.
                Ok(now) => assert_eq!(now.voters, [1, 2]),
                Err(status) => break status,
            }
        }
    });
    let status = status.await;
    assert_eq!(status.code(), Code::Unknown, "{status}");
    assert_eq!(reason_of(&status), (Reason::OutcomeUnknown, Outcome::Unknown));
}

/// The answer to a promotion whose leader begins to hand over once the first step is logged.
async fn change_while_the_leader_hands_over() -> Result<MembershipResponse, Status> {
    let mut cluster = Cluster::start(1, |_| {}).await;
    let peer_address = cluster.start_joining(2, |_| {}).await;
    cluster.client(1).add_node_at_last(2, peer_address).await;
    cluster.caught_up(1, 2).await;
    let group = cluster.nodes[&1].context().group.clone();
    let lease = group.leadership().borrow().own.clone().expect("it leads");
    cluster.cut_off(2);
    let promoting = tokio::spawn({
        let mut client = cluster.client(1);
        async move { client.admin.promote_node(PromoteNodeRequest { id: 2, force: true }).await }
    });
    until("the first step is logged", || !group.is_sole_voter()).await;
    // Raft proposes nothing more in this term, and goes on sending its entries.
    let handing_over = tokio::spawn({
        let (group, lease) = (group.clone(), lease.clone());
        async move { group.transfer(&lease, 2, PATIENCE).await }
    });
    in_time("the handover", lease.until_void()).await;
    cluster.mend();
    let answer = in_time("an answer", promoting).await.unwrap();
    handing_over.abort();
    answer.map(Response::into_inner)
}

/// A caller that hangs up does not leave a change half done.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_caller_hangs_up_is_completed() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    cluster.add_learner(1, 2).await;
    let term = cluster.client(1).status().await.unwrap().term;
    let group = cluster.nodes[&1].context().group.clone();
    let change = group.membership.change(term, vec![MembershipChange::Promote(2)], None);
    // Polled once: the change is under way, and its caller is gone.
    assert!(futures::FutureExt::now_or_never(change).is_none());
    let voters = || group.membership.members().values().filter(|(_, voter)| *voter).count();
    until("both nodes are voters", || voters() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_moved_to_another_address_is_found_there_once_it_is_updated() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let [moved, last] = others(leader);

    let old = cluster.configs[&moved].peer_listen.to_string();
    cluster.crash(moved).await;
    let [listen, peer_listen] = free_ports(own_ip());
    let config = cluster.configs.get_mut(&moved).unwrap();
    (config.listen, config.peer_listen) = (listen, peer_listen);
    config.peers.insert(moved, peer_listen.to_string());
    cluster.start_node(moved).await;
    let mut client = cluster.client(last);
    let update = |id, address: String| UpdateNodeRequest { id, peer_address: Some(address) };
    // The leader waits a second for the node's answer: on a slow machine it is asked again.
    let mut admin = client.admin.clone();
    let mut updated = async |update: UpdateNodeRequest| {
        eventually("what the node says", async || match admin.update_node(update.clone()).await {
            Err(again) if again.code() == Code::Unavailable => None,
            told => Some(told),
        })
        .await
    };
    // Wrong addresses are refused: another node's, the old one, and no address.
    let others = cluster.configs[&leader].peer_listen.to_string();
    let refused = updated(update(moved, others)).await;
    assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    for (wrong, code) in [(old, Code::Unavailable), ("nonsense".to_owned(), Code::InvalidArgument)]
    {
        let refused = client.admin.update_node(update(moved, wrong)).await;
        assert_eq!(refused.unwrap_err().code(), code);
    }
    let unknown = client.admin.update_node(update(9, peer_listen.to_string())).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
    updated(update(moved, peer_listen.to_string())).await.unwrap();
    // A follower whom the leader does not answer in time tells what it knows, which may be less.
    eventually("the status has both new addresses", async || {
        let status = client.status().await.unwrap();
        let node = status.nodes.iter().find(|node| node.id == moved).unwrap();
        let told = (node.peer_address.as_str(), node.address.as_str());
        (told == (&*peer_listen.to_string(), &*listen.to_string())).then_some(())
    })
    .await;
    // The leader finds it there: without the third node, both are needed for a majority.
    cluster.crash(last).await;
    cluster.client(leader).next_at_last(7).await;
    // It forwards, and it can lead.
    cluster.client(moved).next_at_last(7).await;
    cluster.lead(moved).await;
    cluster.client(leader).next_at_last(7).await;
}

/// Has node 1 carry out a request that a follower passes on. The follower asked `again` if the
/// answer of an earlier leader was lost.
async fn passed_on<Q: Operation>(
    cluster: &Cluster, request: &Q, again: bool,
) -> Result<Q::Answer, Refusal> {
    let context = cluster.nodes[&1].context();
    let operation = ServedOperation::by_leader(Q::METHOD).expect("the leader's");
    let origin = Origin::Peer { namespace: None, again };
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let message = request.encode_to_vec().into();
    let asked = (message, &Asker::node(1));
    match context.operations.call(operation, asked, (origin, None), deadline).await {
        Ok((answer, _)) => Ok(Q::Answer::decode(answer).expect("an answer")),
        Err(Unanswered::Refused(refusal)) => Err(refusal),
        Err(unanswered) => panic!("{unanswered:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_try_of_the_same_call_did_is_done_if_all_is_as_it_asks() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    cluster.add_learner(1, 2).await;
    cluster.caught_up(1, 2).await;
    let film = CreateNamespaceRequest {
        name: "film".into(),
        step: Some(500),
        max: Some(1 << 40),
        ..CreateNamespaceRequest::default()
    };
    let created = passed_on(&cluster, &film, true).await.expect("a namespace");
    let other = CreateNamespaceRequest { step: Some(501), ..film.clone() };
    let refused = passed_on(&cluster, &film, false).await.expect_err("asked for once");
    assert_eq!(refused.reason(), Reason::NamespaceExists);
    let refused = passed_on(&cluster, &other, true).await.expect_err("another step");
    assert_eq!(refused.reason(), Reason::NamespaceExists);
    assert_eq!(passed_on(&cluster, &film, true).await.expect("the same"), created);

    let at = |node: u64| cluster.configs[&node].peer_listen.to_string();
    let add = AddNodeRequest { id: 2, peer_address: at(2) };
    let elsewhere = AddNodeRequest { peer_address: at(1), ..add.clone() };
    let refused = passed_on(&cluster, &add, false).await.expect_err("asked for once");
    assert_eq!(refused.reason(), Reason::NodeExists);
    let refused = passed_on(&cluster, &elsewhere, true).await.expect_err("another address");
    assert_eq!(refused.reason(), Reason::NodeExists);
    let members = passed_on(&cluster, &add, true).await.expect("the same");
    assert_eq!((members.voters, members.learners), (vec![1], vec![2]));

    let remove = RemoveNodeRequest { id: 2, force: false };
    passed_on(&cluster, &remove, false).await.expect("removed");
    let refused = passed_on(&cluster, &remove, false).await.expect_err("asked for once");
    assert_eq!(refused.reason(), Reason::NodeNotFound);
    let members = passed_on(&cluster, &remove, true).await.expect("the same");
    assert_eq!((members.voters, members.learners), (vec![1], vec![]));
    let promote = PromoteNodeRequest { id: 2, force: false };
    let refused = passed_on(&cluster, &promote, true).await.expect_err("it is no voter");
    assert_eq!(refused.reason(), Reason::NodeNotFound);
}

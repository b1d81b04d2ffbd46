//! A node that comes back with less than it knew, or beside itself, is refused. docs/recover.md has the table.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::common::{
    PATIENCE,
    cluster::{Cluster, start_at_last},
    eventually, free_ports, id, in_time,
    links::{as_peer, listening_at},
    other_than, others, own_ip,
    power::copy_all,
    until,
};
use openraft::{
    raft::{VoteRequest, VoteResponse},
    vote::RaftLeaderId,
};
use ratchet::{
    clock::{self, BootClock, Clock},
    consensus::{RaftRpc, Transport},
    node::{Config, Node, Seams, StartError, greeting},
    proto::{
        peer::{Acknowledged, HelloRequest, RaftMessage},
        v1::CreateNamespaceRequest,
    },
    storage::{LogId, Margin, Types, Vote, codec},
};
use tonic::{Code, Status};

/// Copies the data directory of a node that does not run.
fn copy(cluster: &Cluster, id: u64) -> PathBuf {
    let copied = cluster.data_dir(id).with_extension("copy");
    copy_all(cluster.data_dir(id), &copied).expect("a copy");
    copied
}

/// Puts a copy in the place of a node's data directory.
fn put_back(cluster: &Cluster, id: u64, copied: PathBuf) {
    fs::remove_dir_all(cluster.data_dir(id)).expect("a directory");
    fs::rename(copied, cluster.data_dir(id)).expect("a copy");
}

/// Asks node `to` for its vote, as the member `from` would if it wanted to lead a later term with the longest of all logs.
async fn ask_for_vote(
    cluster: &Cluster, from: u64, to: u64,
) -> Result<VoteResponse<Types>, Status> {
    let group = &cluster.nodes[&from].context().group;
    let member = group.membership.members()[&to].0.clone();
    let term = group.leadership().borrow().term;
    let last = LogId::new(Vote::new(term, 1).leader_id.to_committed(), 1_000_000);
    let request = VoteRequest::<Types>::new(Vote::new(term + 1, from), Some(last));
    let message = RaftMessage {
        header: Some(group.sender().header(to, &member)),
        payload: codec::encode(&request).expect("encoded").into(),
        ..RaftMessage::default()
    };
    let transport = as_peer();
    let reply = transport
        .raft(listening_at(&member.peer_address), RaftRpc::Vote, message, PATIENCE)
        .await?;
    Ok(codec::decode(&reply.payload).expect("decoded"))
}

/// Starts a node with this configuration, which is not one of the cluster's.
async fn start(cluster: &Cluster, config: &Config) -> Result<Node, StartError> {
    start_at_last(config, cluster.seams(config.node_id)).await
}

/// The copy knows neither the founding nor the vote that followed. It would vote again at once, and keep no promise.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_from_before_the_founding_casts_no_vote_and_its_node_stops() {
    let mut cluster = Cluster::configured(3, |_| {});
    for id in 1..=3 {
        cluster.start_node(id).await;
    }
    cluster.crash(3).await;
    let copied = copy(&cluster, 3);
    cluster.start_node(3).await;
    cluster.all_answer().await;
    let leader = cluster.leader().await;
    if leader == 3 {
        cluster.client(3).transfer(1).await.expect("node 1 leads");
    }
    let highest = cluster.client(1).next_at_last(7).await;
    cluster.crash(3).await;
    put_back(&cluster, 3, copied);
    cluster.start_node(3).await;
    let vote = ask_for_vote(&cluster, 2, 3).await.expect_err("no vote");
    assert_eq!(vote.code(), Code::FailedPrecondition, "{vote}");
    assert!(vote.message().contains("another data directory"), "{vote}");
    let fault = in_time("the end of node 3", cluster.nodes[&3].failed()).await.to_string();
    for part in ["the one here is new", "ratchet node remove 3"] {
        assert!(fault.contains(part), "{part:?} is not in {fault}");
    }
    assert!(cluster.client(1).next_at_last(7).await > highest);
}

/// The copy is of a time at which the node waited to be added.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_from_before_a_node_was_added_casts_no_vote() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    cluster.configure(2);
    cluster.start_node(2).await;
    cluster.crash(2).await;
    let copied = copy(&cluster, 2);
    cluster.start_node(2).await;
    let peer_address = cluster.configs[&2].peer_listen.to_string();
    let mut client = cluster.client(1);
    client.add_node_at_last(2, peer_address).await;
    client.promote_node(2).await.expect("promoted");
    cluster.crash(2).await;
    put_back(&cluster, 2, copied);
    cluster.start_node(2).await;
    let vote = ask_for_vote(&cluster, 1, 2).await.expect_err("no vote");
    assert!(vote.message().contains("another data directory"), "{vote}");
}

/// Node 2, added to a cluster of one whose leader has not reached it since: it holds no vote and no log.
async fn added_and_not_reached() -> Cluster {
    let mut cluster = Cluster::configured(1, |_| {});
    let mut transport = cluster.transport(1);
    let (links, is_cut) = (cluster.links.clone(), AtomicBool::new(false));
    let own = cluster.configs[&1].peer_listen.to_string();
    transport.on_answer = Box::new(move |from, _| {
        if from != own && !is_cut.swap(true, Relaxed) {
            links.cut(1, from.to_owned());
        }
    });
    let seams = cluster.seams_with(transport);
    cluster.start_node_with(1, seams).await;
    cluster.all_answer().await;
    let peer_address = cluster.start_joining(2, |_| {}).await;
    cluster.client(1).add_node_at_last(2, peer_address).await;
    cluster.crash(2).await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_started_again_before_the_leader_that_added_it_reaches_it_is_added_again() {
    let mut cluster = added_and_not_reached().await;
    cluster.start_node(2).await;
    cluster.mend();
    let this_node = cluster.nodes[&2].context().this_node.clone();
    let mut taken = this_node.taken_for_another();
    let taken = in_time("a message for its last run", taken.wait_for(Option::is_some)).await;
    assert_eq!(taken.expect("it runs"), Some(1));
    let peer_address = cluster.configs[&2].peer_listen.to_string();
    let again = cluster.client(1).add_node_at_last(2, peer_address.clone()).await;
    assert_eq!((again.voters, again.learners), (vec![1], vec![2]));
    cluster.client(1).promote_node(2).await.expect("it has the log");
    cluster.client(2).next_at_last(7).await;
    let refused = cluster.client(1).add_node(2, peer_address).await.expect_err("a voter");
    assert!(refused.message().contains("is a member already"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_directory_in_the_place_of_one_that_was_added_is_refused() {
    let mut cluster = added_and_not_reached().await;
    fs::remove_dir_all(cluster.data_dir(2)).expect("a directory");
    cluster.start_node(2).await;
    let group = cluster.nodes[&2].context().group.clone();
    cluster.mend();
    let mut taken = group.this_node.taken_for_another();
    let taken = in_time("a message for the lost directory", taken.wait_for(Option::is_some)).await;
    assert_eq!(taken.expect("it runs"), Some(1));
    assert!(!group.is_formed());
}

/// It knows neither its votes nor the entries that it acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_from_after_a_node_was_added_and_before_its_first_entry_casts_no_vote() {
    let mut cluster = added_and_not_reached().await;
    let copied = copy(&cluster, 2);
    cluster.start_node(2).await;
    cluster.mend();
    let peer_address = cluster.configs[&2].peer_listen.to_string();
    cluster.client(1).add_node_at_last(2, peer_address.clone()).await;
    cluster.client(1).promote_node(2).await.expect("promoted");
    cluster.client(2).next_at_last(7).await;
    cluster.crash(2).await;
    put_back(&cluster, 2, copied);
    cluster.start_node(2).await;
    let vote = ask_for_vote(&cluster, 1, 2).await.expect_err("no vote");
    assert!(vote.message().contains("another data directory"), "{vote}");
    let refused =
        cluster.client(1).add_node(2, peer_address).await.expect_err("no leader, or a voter");
    assert_ne!(refused.code(), Code::Ok);
    assert!(!cluster.nodes[&2].context().group.is_formed(), "it gets no entries");
}

/// The nodes that the copy knows do not lead any more; they name the one that does.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_copy_is_refused_by_a_leader_that_it_does_not_know() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let [away, stays] = others(cluster.leader().await);
    cluster.crash(away).await;
    let copied = copy(&cluster, away);
    cluster.start_node(away).await;
    cluster.client(away).next_at_last(1).await;
    cluster.add_voter(stays, 4).await;
    cluster.client(stays).transfer(4).await.expect("node 4 leads");
    for key in 100..120 {
        cluster.client(away).next_at_last(key).await;
    }
    cluster.caught_up(4, away).await;
    cluster.crash(away).await;
    put_back(&cluster, away, copied);
    let refused = start(&cluster, &cluster.configs[&away]).await;
    let error = refused.err().expect("an older copy must not vote").to_string();
    for part in ["older copy", "to node 4", "ratchet node remove"] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    cluster.client(stays).next_at_last(100).await;
}

/// A leader that was cut off with one node remembers the entries that this node acknowledged, also after the next leader has
/// cut it off.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_log_a_later_leader_has_cut_is_not_taken_for_an_older_copy() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let back = other_than(leader);
    cluster.client(leader).next_at_last(7).await;
    cluster.caught_up(leader, back).await;
    let node = cluster.nodes[&leader].context();
    let incarnation = node.group.membership.members()[&back].0.incarnation;
    let greet = async |vote_term: u64| {
        let shorter = Acknowledged { incarnation, vote_term, ..Acknowledged::default() };
        let greeting = greeting(&cluster.configs[&back], leader);
        let greeting = HelloRequest { acknowledged: Some(shorter), ..greeting };
        node.services.formation.hello(&greeting).await
    };
    for known in [0, node.group.term()] {
        let refused = greet(known).await.expect_err("an older copy").to_string();
        assert!(refused.contains("older copy"), "{refused}");
    }
    greet(node.group.term() + 1).await.expect("it follows a later leader");
}

/// A cloned machine: nothing is missing from the copy, but its owner lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_directory_beside_the_living_node_is_refused() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let cloned = other_than(leader);
    cluster.client(leader).next_at_last(7).await;
    cluster.caught_up(leader, cloned).await;
    cluster.crash(cloned).await;
    let copied = copy(&cluster, cloned);
    cluster.start_node(cloned).await;
    cluster.client(cloned).next_at_last(7).await;
    let [listen, peer_listen] = free_ports(own_ip());
    let twin = Config { data_dir: copied, listen, peer_listen, ..cluster.configs[&cloned].clone() };
    let error = start(&cluster, &twin).await.err().expect("it has a twin").to_string();
    for part in ["another process answers", "is a copy", &format!("node {cloned}")] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    // The one that the others know goes on.
    let leader = cluster.leader().await;
    let third = (1..=3).find(|id| ![cloned, leader].contains(id));
    cluster.crash(third.expect("one of three")).await;
    cluster.client(cloned).next_at_last(7).await;
}

/// A clock that stands still from a moment on, as that of a machine whose hypervisor pauses it.
#[derive(Default)]
struct StoppingClock(OnceLock<clock::Instant>);

impl Clock for StoppingClock {
    fn now(&self) -> clock::Instant {
        self.0.get().copied().unwrap_or_else(|| BootClock.now())
    }

    fn wall_ms(&self) -> u64 {
        BootClock.wall_ms()
    }
}

/// For the leader, the node acknowledged a message just now: nobody else did.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_started_again_is_no_other_process_though_the_leaders_clock_stands_still() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let stopping = Arc::new(StoppingClock::default());
    cluster.crash(1).await;
    let seams = Seams { clock: stopping.clone(), ..cluster.seams(1) };
    cluster.start_node_with(1, seams).await;
    cluster.lead(1).await;
    cluster.client(1).next_at_last(7).await;
    cluster.caught_up(1, 2).await;
    cluster.crash(2).await;
    stopping.0.set(BootClock.now()).expect("it runs until now");
    cluster.start_node(2).await;
    cluster.client(2).next_at_last(7).await;
}

/// The copy's own node is node 2 wherever it lies.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_another_nodes_directory_is_refused() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    for id in [2, 3] {
        cluster.crash(id).await;
    }
    let copied = copy(&cluster, 2);
    put_back(&cluster, 3, copied);
    let error = start(&cluster, &cluster.configs[&3]).await.err().expect("refused").to_string();
    for part in ["belongs to node 2", "not to node 3"] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_removed_comes_back_with_empty_data_alone() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let removed = other_than(leader);
    let mut client = cluster.client(leader);
    client.remove_node(removed).await.expect("removed");
    // With its old data, living or started again, it is not added.
    let peer_address = cluster.configs[&removed].peer_listen.to_string();
    // Its process lives.
    let refused = client.why_not_added(removed, &peer_address).await;
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    cluster.crash(removed).await;
    cluster.start_node(removed).await;
    // It has its old data.
    let refused = client.why_not_added(removed, &peer_address).await;
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    assert!(refused.message().contains("empty data_dir"), "{refused}");
    // With empty data it is another node for all of them.
    cluster.crash(removed).await;
    fs::remove_dir_all(cluster.data_dir(removed)).expect("a directory");
    cluster.start_node(removed).await;
    client.add_node_at_last(removed, &peer_address).await;
    client.promote_node(removed).await.expect("promoted");
    cluster.crash(others(leader)[1]).await;
    client.next_at_last(7).await;
    cluster.client(removed).next_at_last(7).await;
}

/// The voters refuse a node that comes as a removed one. A voter that did not hear that its id was given to a new node would
/// refuse that, too, and might be needed to elect it.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_the_id_of_a_removed_one_votes_and_leads_once_all_voters_know_of_it() {
    let mut cluster = Cluster::start(4, |_| {}).await;
    let leader = cluster.leader().await;
    let [again, away, other] =
        [1, 2, 3, 4].into_iter().filter(|id| *id != leader).collect::<Vec<_>>()[..]
    else {
        panic!("three followers");
    };
    let mut client = cluster.client(leader);
    client.remove_node(again).await.expect("removed");
    let knows = |cluster: &Cluster, node: u64| {
        cluster.nodes[&node].context().group.view.former_members().contains(&again)
    };
    until("the voters know of the removal", || {
        [leader, away, other].into_iter().all(|node| knows(&cluster, node))
    })
    .await;
    for gone in [again, away] {
        cluster.crash(gone).await;
    }
    cluster.add_learner(leader, again).await;
    // A majority of the four is there, and has caught up.
    let refused = client.promote_node(again).await.expect_err("one voter does not know of it");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let says = format!("node {away} does not know yet who the members are");
    assert!(refused.message().contains(&says), "{refused}");
    cluster.start_node(away).await;
    eventually("it is promoted", async || client.promote_node(again).await.ok()).await;

    // It cannot be elected without the one that was away.
    cluster.crash(other).await;
    cluster.lead(again).await;
    let highest = cluster.client(away).next_at_last(7).await;
    // Neither one that was away, nor a new one that reads of the removal, keeps it from leading.
    cluster.crash(away).await;
    cluster.start_node(away).await;
    cluster.start_node(other).await;
    cluster.add_voter(again, 5).await;
    for node in [away, other, 5] {
        until("the node has read of the removal", || knows(&cluster, node)).await;
    }
    assert!(cluster.client(5).next_at_last(7).await > highest);
}

/// A removed node that nobody stopped keeps its data, and asks for votes under the id that another one has now.
#[tokio::test(flavor = "multi_thread")]
async fn the_living_process_of_a_removed_node_does_no_harm_beside_the_one_that_has_its_id() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let [removed, stays] = others(leader);
    // It does not hear of its removal.
    cluster.cut_off(removed);
    let mut client = cluster.client(leader);
    client.remove_node(removed).await.expect("removed");
    let old = cluster.nodes.remove(&removed).expect("it runs");
    let peer_address = cluster.start_joining(removed, |_| {}).await;
    cluster.mend();
    client.add_node_at_last(removed, &peer_address).await;
    client.promote_node(removed).await.expect("promoted");
    let mut highest = client.next_at_last(7).await;
    // The old process misses its leader, and asks for votes.
    let mut leadership = old.context().group.leadership();
    let elected = leadership.wait_for(|now| now.own.is_some());
    let election_ms = cluster.configs[&leader].election_timeout_ms;
    let several_elections = Duration::from_millis(4 * election_ms);
    assert!(tokio::time::timeout(several_elections, elected).await.is_err(), "it leads");
    for node in [leader, removed, stays] {
        let next = cluster.client(node).next_at_last(7).await;
        assert!(next > highest, "{next} after {highest} by way of node {node}");
        highest = next;
    }
    old.halt().await;
}

/// The volume of a node of another cluster of the same name, as of a staging system.
#[tokio::test(flavor = "multi_thread")]
async fn the_data_of_another_cluster_of_the_same_name_takes_no_part() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let mut staging = Cluster::start(3, |_| {}).await;
    let swapped = other_than(cluster.leader().await);
    let highest = cluster.client(other_than(swapped)).next_at_last(7).await;
    cluster.crash(swapped).await;
    for id in 1..=3 {
        staging.crash(id).await;
    }
    let strange = copy(&staging, swapped);
    put_back(&cluster, swapped, strange);
    cluster.start_node(swapped).await;
    let from = other_than(swapped);
    let vote = ask_for_vote(&cluster, from, swapped).await.expect_err("no vote");
    assert!(vote.message().contains("another data directory"), "{vote}");
    assert!(cluster.client(from).next_at_last(7).await > highest);
}

/// No node is left that remembers more. The operator says how much may be missing.
#[tokio::test(flavor = "multi_thread")]
async fn after_copies_of_all_nodes_were_put_back_a_recovery_with_a_margin_repeats_no_number() {
    const STEPS: u64 = 25;
    let mut cluster = Cluster::start(3, |_| {}).await;
    let gapless = CreateNamespaceRequest {
        name: "invoice".into(),
        gapless: true,
        request_id_optional: true,
        ..CreateNamespaceRequest::default()
    };
    let mut client = cluster.client(1);
    client.admin.create_namespace(gapless).await.expect("created");
    let keys = || [("book", 7), ("book", 8), ("uid", 1_000_000), ("invoice", 5)];
    client.try_next("book", id(7), 1).await.expect("a number");
    client.try_next("invoice", id(5), 3).await.expect("numbers");
    let mut copies = BTreeMap::new();
    for id in 1..=3 {
        cluster.crash(id).await;
        copies.insert(id, copy(&cluster, id));
    }
    for id in 1..=3 {
        cluster.start_node(id).await;
    }
    cluster.client(1).next_at_last(u64::MAX).await;
    let mut seen = BTreeMap::new();
    for (namespace, key) in keys() {
        let answer = cluster.client(1).try_next(namespace, id(key), 50_000).await;
        seen.insert((namespace, key), answer.expect("numbers").last);
    }
    for id in 1..=3 {
        cluster.crash(id).await;
    }
    for (id, copied) in copies {
        put_back(&cluster, id, copied);
    }
    let margin = Margin { default_steps: STEPS, steps_by_namespace: BTreeMap::new() };
    cluster.recover(2, &margin, false).await;
    cluster.start_node(2).await;
    let mut client = cluster.client(2);
    client.next_at_last(u64::MAX).await;
    for (namespace, key) in keys() {
        let answer = eventually("a number", async || {
            client.clone().try_next(namespace, id(key), 1).await.ok()
        });
        let (first, before) = (answer.await.first, seen[&(namespace, key)]);
        assert!(first > before, "{namespace} {key}: {first} after {before}");
    }
}

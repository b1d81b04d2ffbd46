//! A cluster grows, shrinks, and brings nodes up to date that were away.

mod common;

use common::{Client, PATIENCE, history::Load, id, links::Cluster};
use ratchet::{
    consensus::{MembershipChange, ProposeError},
    proto::v1::{AddNodeRequest, NodeRequest, TransferLeadershipRequest, UpdateNodeRequest},
};
use std::time::Duration;
use tonic::Code;

async fn add(cluster: &mut Cluster, id: u64, change: impl FnOnce(&mut ratchet::node::Config)) {
    let config = cluster.configure(id);
    config.join = true;
    change(config);
    let peer_address = config.peer_listen.to_string();
    cluster.start_node(id).await;
    let mut client = cluster.client(1);
    let request = AddNodeRequest { id, peer_address };
    client
        .admin
        .add_node(request)
        .await
        .expect("a node is added");
}

/// Waits until `id` has applied what `leader` has.
async fn caught_up(cluster: &Cluster, id: u64, leader: u64) {
    let goal = last_applied(&mut cluster.client(leader), leader).await;
    let waiting = async {
        while cluster.nodes[&id]
            .context()
            .status()
            .nodes
            .iter()
            .all(|n| n.id != id || n.applied_index < goal)
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("it catches up");
}

async fn last_applied(client: &mut Client, leader: u64) -> Option<u64> {
    let status = client.status().await.unwrap();
    let node = status.nodes.iter().find(|node| node.id == leader);
    node.and_then(|node| node.applied_index)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_one_grows_to_three_under_load_and_its_founder_leaves() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    let load = Load::start(&cluster.addresses(), 4, 2, Duration::from_secs(5));
    load.answers(50).await;
    for id in [2, 3] {
        add(&mut cluster, id, |_| {}).await;
        let members = cluster
            .client(1)
            .admin
            .promote_node(NodeRequest { id, force: false })
            .await
            .unwrap();
        assert!(members.into_inner().voters.contains(&id));
        load.answers(50).await;
    }
    let mut client = cluster.client(2);
    let refused = client
        .admin
        .remove_node(NodeRequest {
            id: 1,
            force: false,
        })
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(
        refused.message().contains("ratchet transfer"),
        "{refused:?}"
    );
    let to = TransferLeadershipRequest { to: Some(2) };
    client.admin.transfer_leadership(to).await.unwrap();
    let history = load.finish().await;
    assert_eq!(history.failed, 0, "{:?}", history.failures);
    history.assert_strictly_increasing();
    client.next_at_last(0).await;
    let members = client
        .admin
        .remove_node(NodeRequest {
            id: 1,
            force: false,
        })
        .await
        .unwrap()
        .into_inner();
    assert_eq!((members.voters, members.learners), (vec![2, 3], vec![]));
    cluster.crash(1).await;
    let number = cluster.client(3).next_at_last(0).await;
    assert!(number > history.highest(0));
}

/// Waits until the log is purged, and says up to where.
async fn purged(group: &ratchet::consensus::Group) -> u64 {
    let purging = async {
        loop {
            if let Some(purged) = group.purged_index().filter(|index| *index > 100) {
                return purged;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, purging)
        .await
        .expect("the log is purged")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_while_the_log_was_purged_catches_up_by_snapshot() {
    let small = |config: &mut ratchet::node::Config| {
        config.log_keep_bytes = 1_000;
    };
    let mut cluster = Cluster::start(3, small).await;
    add(&mut cluster, 4, small).await;
    let leader = cluster.leader().await;
    cluster.crash(4).await;
    let mut client = cluster.client(leader);
    for key in 0..200 {
        client.try_next("book", id(key), 1).await.unwrap();
    }
    let group = cluster.nodes[&leader].context().group.clone();
    let purged = purged(&group).await;
    cluster.start_node(4).await;
    caught_up(&cluster, 4, leader).await;
    let learner = cluster.nodes[&4].context().group.clone();
    assert!(
        learner.purged_index() >= Some(purged),
        "it came by snapshot"
    );
    // What it holds is what the others hold: as a leader it goes on above.
    cluster
        .client(1)
        .admin
        .promote_node(NodeRequest {
            id: 4,
            force: false,
        })
        .await
        .unwrap();
    let to = TransferLeadershipRequest { to: Some(4) };
    cluster
        .client(1)
        .admin
        .transfer_leadership(to)
        .await
        .unwrap();
    for key in 0..200 {
        let number = cluster.client(4).next_at_last(key).await;
        assert_eq!(number, 2, "key {key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_arrives_damaged_is_refused_and_another_one_is_taken() {
    let small = |config: &mut ratchet::node::Config| config.log_keep_bytes = 1_000;
    let mut cluster = Cluster::start(3, small).await;
    let leader = cluster.leader().await;
    let mut client = cluster.client(leader);
    for key in 0..200 {
        client.try_next("book", id(key), 1).await.unwrap();
    }
    purged(&cluster.nodes[&leader].context().group).await;
    cluster.damage_snapshots(2);
    let config = cluster.configure(4);
    config.join = true;
    let peer_address = config.peer_listen.to_string();
    cluster.start_node(4).await;
    let request = AddNodeRequest {
        id: 4,
        peer_address,
    };
    client.admin.add_node(request).await.expect("it is added");
    caught_up(&cluster, 4, leader).await;
    let failures = |id: u64| cluster.nodes[&id].context().metrics.snapshot_failures.get();
    assert_eq!((failures(leader), failures(4)), (2, 2));
    let metrics = &cluster.nodes[&leader].context().metrics;
    let told = async {
        while metrics.snapshot_bytes.get() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, told)
        .await
        .expect("the leader hears that it is installed");
    let table = cluster.nodes[&4].context().group.view().clone();
    assert!(table.namespaces().by_name("book").is_some());
    client.next_at_last(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_to_a_membership_is_refused_with_the_reason() {
    let cluster = Cluster::start(3, |_| {}).await;
    let mut client = cluster.client(cluster.leader().await);
    let peer_address = cluster.configs[&1].peer_listen.to_string();
    let again = client.admin.add_node(AddNodeRequest {
        id: 1,
        peer_address: peer_address.clone(),
    });
    assert_eq!(again.await.unwrap_err().code(), Code::AlreadyExists);
    let zero = client.admin.add_node(AddNodeRequest {
        id: 0,
        peer_address: peer_address.clone(),
    });
    assert_eq!(zero.await.unwrap_err().code(), Code::InvalidArgument);
    let other = client
        .admin
        .add_node(AddNodeRequest {
            id: 9,
            peer_address,
        })
        .await
        .unwrap_err();
    assert_eq!(other.code(), Code::FailedPrecondition);
    assert!(other.message().contains("this is node 1"), "{other:?}");
    let nobody = AddNodeRequest {
        id: 9,
        peer_address: "127.0.0.1:1".into(),
    };
    assert_eq!(
        client.admin.add_node(nobody).await.unwrap_err().code(),
        Code::Unavailable
    );
    let odd = AddNodeRequest {
        id: 9,
        peer_address: "not an address".into(),
    };
    assert_eq!(
        client.admin.add_node(odd).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    for unknown in [
        client
            .admin
            .promote_node(NodeRequest {
                id: 9,
                force: false,
            })
            .await
            .unwrap_err(),
        client
            .admin
            .remove_node(NodeRequest {
                id: 9,
                force: false,
            })
            .await
            .unwrap_err(),
        client
            .admin
            .transfer_leadership(TransferLeadershipRequest { to: Some(9) })
            .await
            .unwrap_err(),
    ] {
        assert_eq!(unknown.code(), Code::NotFound, "{unknown:?}");
        assert!(
            unknown.message().contains("the members are 1, 2, 3"),
            "{unknown:?}"
        );
    }
}

/// A change that Raft refuses must not go on counting: with one voter fewer, its majority would not
/// be there, and the leader would hand out nothing for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_change_does_not_go_on_counting_against_the_lease() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let term = cluster.client(leader).status().await.unwrap().term;
    let group = cluster.nodes[&leader].context().group.clone();
    // Nobody ever added node 9.
    let refused = group.change(term, MembershipChange::Promote(9), None).await;
    assert!(
        matches!(refused, Err(ProposeError::Refused(_))),
        "{refused:?}"
    );
    // And a change of a term that is over is refused as well.
    let late = group
        .change(term - 1, MembershipChange::Remove(1), None)
        .await;
    assert!(matches!(late, Err(ProposeError::NotLeader(_))), "{late:?}");
    cluster.crash(leader % 3 + 1).await;
    // Two of three carry the lease on, long after the third was heard last.
    let later = group.now().after(Duration::from_secs(1));
    let lease = group.leadership().borrow().own.clone().expect("it leads");
    let renewed = lease.wait_until(|lease| lease.deadline() > later || lease.is_void());
    tokio::time::timeout(PATIENCE, renewed)
        .await
        .expect("a lease");
    cluster.client(leader).next_at_last(7).await;
}

/// The voters that are left must be able to go on.
#[tokio::test(flavor = "multi_thread")]
async fn removing_a_living_voter_while_another_one_is_dead_is_refused_unless_forced() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let (alive, dead) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.crash(dead).await;
    let mut client = cluster.client(leader);
    client.next_at_last(7).await;
    let remove = |id, force| NodeRequest { id, force };
    let refused = client
        .admin
        .remove_node(remove(alive, false))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    for says in [format!("node {dead} "), "heard".into(), "--force".into()] {
        assert!(refused.message().contains(&says), "{refused:?}");
    }
    // Nothing happened, and the dead one can go.
    client.next_at_last(7).await;
    let now = client
        .admin
        .remove_node(remove(dead, false))
        .await
        .unwrap()
        .into_inner();
    assert!(now.voters.contains(&alive) && !now.voters.contains(&dead));
    client.next_at_last(7).await;
}

/// With one voter dead, a learner that is away must not be counted in.
/// A term is given up while the last other voter is being removed. Once that one has taken it in, nobody
/// is left to elect a leader: the node must not stay as it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_gave_its_term_up_and_becomes_the_only_voter_stops_and_goes_on_when_started()
{
    let mut cluster = Cluster::start(2, |_| {}).await;
    let leader = cluster.leader().await;
    let other = 3 - leader;
    let mut client = cluster.client(leader);
    let last = client.next_at_last(1).await;
    cluster.cut_off(other);
    let group = cluster.nodes[&leader].context().group.clone();
    let lease = group.leadership().borrow().own.clone().expect("it leads");
    let before = group.log_state().last;
    let change = MembershipChange::Remove(other);
    let removing = tokio::spawn({
        let (group, term) = (group.clone(), lease.term());
        async move { group.change(term, change, None).await }
    });
    let proposed = async {
        while group.log_state().last == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, proposed)
        .await
        .expect("the change is under way");
    // As after a bump that Raft refused, or a disk that hung.
    lease.void();
    cluster.mend();
    let fault = tokio::time::timeout(PATIENCE, cluster.nodes[&leader].failed())
        .await
        .expect("it stops");
    assert!(fault.to_string().contains("only voter"), "{fault}");
    cluster.crash(leader).await;
    // Its data directory is free once nobody holds the group.
    drop(group);
    let _whatever_came_of_it = removing.await.expect("no panic");
    cluster.start_node(leader).await;
    assert!(cluster.client(leader).next_at_last(1).await > last);
}

#[tokio::test(flavor = "multi_thread")]
async fn promoting_a_learner_that_is_away_is_refused_unless_forced() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    add(&mut cluster, 2, |_| {}).await;
    let mut client = cluster.client(1);
    cluster.crash(2).await;
    let promote = |force| NodeRequest { id: 2, force };
    let refused = client.admin.promote_node(promote(false)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains("node 2 was "), "{refused:?}");
    client.next(7).await.unwrap();
    // Forced, it is done as soon as the learner is back; until then there is no majority.
    let forced = tokio::spawn({
        let mut client = client.clone();
        async move { client.admin.promote_node(promote(true)).await }
    });
    cluster.start_node(2).await;
    let now = forced.await.unwrap().unwrap().into_inner();
    assert_eq!(now.voters, [1, 2]);
    client.next_at_last(7).await;
}

/// A caller that hangs up leaves no voter halfway in.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_caller_hangs_up_is_completed() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    add(&mut cluster, 2, |_| {}).await;
    let term = cluster.client(1).status().await.unwrap().term;
    let group = cluster.nodes[&1].context().group.clone();
    let change = group.change(term, MembershipChange::Promote(2), None);
    // Polled once: it is under way, and nobody waits for it any more.
    assert!(futures::FutureExt::now_or_never(change).is_none());
    let both = async {
        while group.members().values().filter(|(_, voter)| *voter).count() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, both)
        .await
        .expect("it votes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_moves_to_another_address() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let moved = leader % 3 + 1;
    let last = (leader + 1) % 3 + 1;
    let old = cluster.configs[&moved].peer_listen.to_string();
    cluster.crash(moved).await;
    let [listen, peer_listen] = common::free_ports(common::own_ip());
    let config = cluster.configs.get_mut(&moved).unwrap();
    (config.listen, config.peer_listen) = (listen, peer_listen);
    config.peers.insert(moved, peer_listen.to_string());
    cluster.start_node(moved).await;
    let mut client = cluster.client(last);
    let update = |id, address: String| UpdateNodeRequest {
        id,
        peer_address: Some(address),
    };
    // A wrong address takes nobody away: another node's, nobody's, and where it was.
    let others = cluster.configs[&leader].peer_listen.to_string();
    for (wrong, code) in [
        (others, Code::FailedPrecondition),
        (old, Code::Unavailable),
        ("nonsense".to_owned(), Code::InvalidArgument),
    ] {
        let refused = client.admin.update_node(update(moved, wrong)).await;
        assert_eq!(refused.unwrap_err().code(), code);
    }
    let unknown = client
        .admin
        .update_node(update(9, peer_listen.to_string()))
        .await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
    let there = update(moved, peer_listen.to_string());
    client.admin.update_node(there).await.unwrap();
    let status = client.status().await.unwrap();
    let node = status.nodes.iter().find(|node| node.id == moved).unwrap();
    assert_eq!(node.peer_address, peer_listen.to_string());
    assert_eq!(node.address, listen.to_string());
    // The leader finds it there: without the third it is the majority.
    cluster.crash(last).await;
    cluster.client(leader).next_at_last(7).await;
    // And it forwards, and leads.
    cluster.client(moved).next_at_last(7).await;
    let to = TransferLeadershipRequest { to: Some(moved) };
    cluster
        .client(leader)
        .admin
        .transfer_leadership(to)
        .await
        .unwrap();
    cluster.client(leader).next_at_last(7).await;
}

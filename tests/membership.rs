//! A cluster grows, shrinks, and brings nodes up to date that were away.

mod common;

use common::{Client, PATIENCE, history::Load, id, links::Cluster};
use ratchet::proto::v1::{AddNodeRequest, NodeRequest, TransferLeadershipRequest};
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
            .shared()
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
            .promote_node(NodeRequest { id })
            .await
            .unwrap();
        assert!(members.into_inner().voters.contains(&id));
        load.answers(50).await;
    }
    let mut client = cluster.client(2);
    let refused = client
        .admin
        .remove_node(NodeRequest { id: 1 })
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
        .remove_node(NodeRequest { id: 1 })
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
    let group = cluster.nodes[&leader].shared().group.clone();
    let purged = purged(&group).await;
    cluster.start_node(4).await;
    caught_up(&cluster, 4, leader).await;
    let learner = cluster.nodes[&4].shared().group.clone();
    assert!(
        learner.purged_index() >= Some(purged),
        "it came by snapshot"
    );
    // What it holds is what the others hold: as a leader it goes on above.
    cluster
        .client(1)
        .admin
        .promote_node(NodeRequest { id: 4 })
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
    purged(&cluster.nodes[&leader].shared().group).await;
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
    let failures = |id: u64| cluster.nodes[&id].shared().metrics.snapshot_failures.get();
    assert_eq!((failures(leader), failures(4)), (2, 2));
    let metrics = &cluster.nodes[&leader].shared().metrics;
    let told = async {
        while metrics.snapshot_bytes.get() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, told)
        .await
        .expect("the leader hears that it is installed");
    let table = cluster.nodes[&4].shared().group.view().clone();
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
            .promote_node(NodeRequest { id: 9 })
            .await
            .unwrap_err(),
        client
            .admin
            .remove_node(NodeRequest { id: 9 })
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

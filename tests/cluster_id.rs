//! Every cluster has an id of its own, which all its nodes tell, and which never changes.

use crate::common::{PATIENCE, cluster::Cluster, eventually, http_get, id, with_http};
use ratchet::{
    consensus::{GrpcTransport, Transport},
    node,
    proto::peer::HelloRequest,
    storage::Margin,
};
use tonic::{Code, Status};

/// The id that node `node` tells, once it knows it.
async fn id_told_by(cluster: &Cluster, node: u64) -> String {
    let told = eventually("the id of the cluster", async || {
        let told = cluster.nodes[&node].context().status().cluster_id;
        Some(told).filter(|told| !told.is_empty())
    });
    told.await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_tells_the_id_of_its_cluster_and_it_stays_through_restarts_and_a_recovery() {
    let mut cluster = Cluster::start(3, with_http).await;
    let first = id_told_by(&cluster, 1).await;
    let form: Vec<usize> = first.split('-').map(str::len).collect();
    assert_eq!(form, [8, 4, 4, 4, 12], "{first}");
    for node in [2, 3] {
        assert_eq!(id_told_by(&cluster, node).await, first);
    }
    let address = cluster.nodes[&2].addresses().http.expect("a port");
    let page = http_get(address, "/v1/status").await;
    assert!(page.body.contains(&format!("\"cluster_id\":\"{first}\"")), "{}", page.body);
    let other = Cluster::start(1, |_| {}).await;
    assert_ne!(id_told_by(&other, 1).await, first, "another cluster of the same name");
    for node in [1, 2, 3] {
        cluster.crash(node).await;
    }
    for node in [1, 2, 3] {
        cluster.start_node(node).await;
        assert_eq!(id_told_by(&cluster, node).await, first, "after a restart");
    }
    for node in [1, 2, 3] {
        cluster.crash(node).await;
    }
    let margin = Margin { default_steps: 1, steps_by_namespace: [].into() };
    node::recover(cluster.data_dir(3), &margin, false).expect("it is recovered");
    cluster.start_node(3).await;
    cluster.client(3).next_at_last(7).await;
    assert_eq!(id_told_by(&cluster, 3).await, first, "after a recovery");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_gets_the_data_by_a_snapshot_knows_the_id_of_the_cluster() {
    let short_log = |config: &mut ratchet::node::Config| config.log_keep_bytes = 1_000;
    let mut cluster = Cluster::start(1, short_log).await;
    let group = cluster.nodes[&1].context().group.clone();
    let mut client = cluster.client(1);
    let mut key = 0;
    eventually("the log is purged beyond the entry with the id", async || {
        client.try_next("book", id(key), 1).await.expect("a number");
        key += 1;
        group.purged_index().filter(|purged| *purged > 10)
    })
    .await;
    cluster.add_learner(1, 2).await;
    assert_eq!(id_told_by(&cluster, 2).await, id_told_by(&cluster, 1).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_greeting_from_a_cluster_with_the_same_name_and_another_id_is_refused() {
    let cluster = Cluster::start(1, |_| {}).await;
    let mine = cluster.nodes[&1].context().cluster_id().expect("it has one");
    let greet = async |cluster_id: &[u8]| {
        let address = cluster.configs[&1].peer_listen.to_string();
        let request = HelloRequest {
            cluster: "test".into(),
            from: 9,
            to: 1,
            election_timeout_ms: cluster.configs[&1].election_timeout_ms,
            cluster_id: cluster_id.to_vec().into(),
            ..HelloRequest::default()
        };
        GrpcTransport::default().hello(&address, request, PATIENCE).await
    };
    greet(mine.as_bytes()).await.expect("its own");
    greet(&[]).await.expect("a node that knows none yet");
    let mut other = *mine.as_bytes();
    other[0] ^= 1;
    let refused: Status = greet(&other).await.expect_err("another cluster");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains(&mine.to_string()), "{refused}");
}

//! Every cluster has an id of its own, which all its nodes tell, and which never changes. They refuse requests that are
//! meant for another cluster.

use crate::common::{
    PATIENCE, channel,
    cluster::Cluster,
    eventually, http, http_get, hurried, id,
    links::{as_peer, listening_at},
    with_http,
};
use ratchet::{
    consensus::Transport,
    proto::{
        peer::HelloRequest,
        v1::{
            CreateNamespaceRequest, FoundRequest, NextIdsRequest, NextManyRequest, NextRequest,
            Outcome, Reason, ids_client::IdsClient,
        },
    },
    storage::Margin,
};
use tonic::{Code, Request};

/// The id that node `node` tells, once it knows it.
async fn id_told_by(cluster: &Cluster, node: u64) -> String {
    let told = eventually("the id of the cluster", async || {
        let told = cluster.nodes[&node].context().services.status.now().cluster_id;
        Some(told).filter(|told| !told.is_empty())
    });
    told.await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_tells_the_id_of_its_cluster_and_it_stays_through_restarts_and_a_recovery() {
    let mut cluster = Cluster::start(3, |config| {
        with_http(config);
        hurried(config);
    })
    .await;
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
    cluster.recover(3, &margin, false).await;
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
    let mine = cluster.nodes[&1].context().services.members.cluster_id().expect("it has one");
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
        as_peer().hello(listening_at(&address), request, PATIENCE).await
    };
    greet(mine.as_bytes()).await.expect("its own");
    greet(&[]).await.expect("a node that knows none yet");
    let mut other = *mine.as_bytes();
    other[0] ^= 1;
    let refused = greet(&other).await.expect_err("another cluster");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains(&mine.to_string()), "{refused}");
}

/// A message that is meant for the cluster with this id.
fn meant_for<M>(id: &str, message: M) -> Request<M> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("ratchet-cluster-id", id.parse().expect("ASCII"));
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_meant_for_another_cluster_is_refused_before_anything_is_done() {
    let cluster = Cluster::start(3, |_| {}).await;
    let mine = id_told_by(&cluster, 1).await;
    let other = format!("{}-58cc-4372-a567-0e02b2c3d479", &mine[..8]);
    let next = || NextRequest { namespace: "book".into(), key: id(1), ..NextRequest::default() };
    let create = |name: &str| CreateNamespaceRequest {
        name: name.into(),
        ..CreateNamespaceRequest::default()
    };
    for node in [1, 2, 3] {
        let mut client = cluster.client(node);
        let messages = || tokio_stream::once(NextManyRequest::default());
        let ids = NextIdsRequest { namespace: "order".into(), ..NextIdsRequest::default() };
        let mut of_ids = IdsClient::new(channel(cluster.address(node)));
        for refused in [
            client.sequencer.next(meant_for(&other, next())).await.expect_err("a number"),
            client.sequencer.next_many(meant_for(&other, messages())).await.expect_err("a stream"),
            client.admin.create_namespace(meant_for(&other, create("a"))).await.expect_err("a"),
            of_ids.next(meant_for(&other, ids)).await.expect_err("an id"),
        ] {
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
            let told = (Reason::ClusterMismatch, Outcome::NotDone);
            assert_eq!(ratchet::proto::reason_of(&refused), told);
            let says = refused.message();
            assert!(says.contains(&mine) && says.contains(&other), "{says}");
            let answers = refused.metadata().get("ratchet-cluster-id").expect("its own id");
            assert_eq!(answers, &mine);
        }
        let malformed = client.sequencer.next(meant_for("prod", next())).await;
        let malformed = malformed.expect_err("no id");
        assert_eq!(malformed.code(), Code::InvalidArgument, "{malformed}");
    }
    let upper_case = mine.to_ascii_uppercase();
    let mut client = cluster.client(2);
    let taken = client.sequencer.next(meant_for(&upper_case, next())).await.expect("a number");
    assert_eq!(taken.into_inner().first, 1, "nothing was taken before");
    client.admin.create_namespace(meant_for(&mine, create("a"))).await.expect("a namespace");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_a_request_may_say_for_which_cluster_it_is_and_every_answer_says_whose_it_is() {
    let cluster = Cluster::start(1, with_http).await;
    let mine = id_told_by(&cluster, 1).await;
    let other = format!("{}-58cc-4372-a567-0e02b2c3d479", &mine[..8]);
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    let named = format!("ratchet-cluster-id: {mine}");
    let next = "POST /v1/namespaces/book/keys/1:next";
    let refused = http(address, next, &format!("Ratchet-Cluster-Id: {other}\r\n"), "").await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    for part in ["FAILED_PRECONDITION", "CLUSTER_MISMATCH", "NOT_DONE", &mine, &other] {
        assert!(refused.body.contains(part), "{part}: {}", refused.body);
    }
    assert!(refused.head.contains(&named), "{}", refused.head);
    let twice = format!("{named}\r\nratchet-cluster-id: {other}\r\n");
    let refused = http(address, next, &twice, "").await;
    assert_eq!(refused.status, 409, "each of them must be meant: {}", refused.body);
    let malformed = http(address, next, "ratchet-cluster-id: prod\r\n", "").await;
    assert_eq!(malformed.status, 400, "{}", malformed.body);
    let taken = http(address, next, &format!("{named}\r\n"), "").await;
    assert_eq!(taken.status, 200, "{}", taken.body);
    assert!(taken.body.contains("\"first\":\"1\""), "nothing was taken before: {}", taken.body);
    assert!(taken.head.contains(&named), "{}", taken.head);
    let page = http_get(address, "/nowhere").await;
    assert!(page.head.contains(&named), "{}", page.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_cluster_takes_no_call_that_is_meant_for_one() {
    let mut cluster = Cluster::configured(1, |_| {});
    cluster.start_node(1).await;
    let other = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
    let asked = cluster.client(1).admin.found(meant_for(other, FoundRequest::default())).await;
    let refused = asked.expect_err("it cannot tell");
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let told = (Reason::NotFounded, Outcome::NotDone);
    assert_eq!(ratchet::proto::reason_of(&refused), told);
    assert!(!cluster.nodes[&1].context().group.is_formed(), "nothing is founded");
}

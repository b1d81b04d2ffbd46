//! An address of a cluster that leads to another one later: a client takes nothing from there, so no number comes twice.

use std::{net::SocketAddr, time::Duration};

use crate::common::{
    cluster::Cluster,
    eventually, hurried, id,
    invoices::{INVOICE, create_invoices},
    other_than,
    rust_client::{builder, client, client_of, create_with_format},
};
use ratchet::{
    node::Config,
    proto::{reason_of, v1::Reason},
};
use ratchet_client::{Client, Error, api::CreateNamespaceRequest};

/// A cluster of one, at the address where node 1 of `first` was.
async fn recycled(first: &mut Cluster) -> Cluster {
    let address = first.address(1);
    first.crash(1).await;
    let second = Cluster::start(1, |config| config.listen = address).await;
    create_invoices(&mut second.client(1), |_| {}).await;
    create_with_format(&client([address]), "order", "snowflake").await;
    second
}

fn id_of(cluster: &Cluster) -> String {
    let node = cluster.nodes.values().next().expect("a running node");
    node.context().services.members.printed_cluster_id()
}

/// Every kind of call of `client`, and how it ended.
async fn ask_for_everything(client: &Client) -> Vec<(&'static str, Result<(), Error>)> {
    let create = CreateNamespaceRequest { name: "new".into(), ..CreateNamespaceRequest::default() };
    let mut ids = Ok(());
    if let Err(error) = client.ids_as("order", "a holder").await {
        ids = Err(error);
    }
    vec![
        ("next", client.next("book", 1).await.map(drop)),
        ("next, of a key that the client never asked for", client.next("book", 2).await.map(drop)),
        ("next_range", client.next_range("book", 3, 10).await.map(drop)),
        ("next of invoices", client.next(INVOICE, 1).await.map(drop)),
        ("next_once", client.next_once(INVOICE, 2, 1, "order-7").await.map(drop)),
        ("segment", client.segment("book", 4, 10).next().await.map(drop)),
        ("current", client.current("book", 1).await.map(drop)),
        ("raise", client.raise("book", 5, 100).await.map(drop)),
        ("ids", ids),
        ("next_ids", client.next_ids("order", None, 1, &[]).await.map(drop)),
        ("lease_worker", client.lease_worker("order", "another").await.map(drop)),
        ("create_namespace", client.create_namespace(create).await.map(drop)),
        ("status", client.status().await.map(drop)),
        ("export", client.export("book").await.map(drop)),
    ]
}

/// The cluster has handed out and changed nothing since it was `recycled`.
async fn assert_untouched(cluster: &Cluster) {
    let mut asking = cluster.client(1);
    for key in 1..=5 {
        assert_eq!(asking.current("book", id(key)).await.expect("an answer"), None, "book {key}");
        assert_eq!(asking.current(INVOICE, id(key)).await.expect("an answer"), None, "{key}");
    }
    let asking = client_of(cluster, &[1]);
    let names: Vec<String> =
        (asking.list_namespaces().await.expect("all")).into_iter().map(|one| one.name).collect();
    assert!(!names.contains(&"new".to_owned()), "{names:?}");
    let workers = asking.list_workers("order".to_owned()).await.expect("workers").workers;
    assert!(workers.is_empty(), "{workers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_only_address_leads_to_another_cluster_gets_nothing_from_there() {
    let mut first = Cluster::start(1, |_| {}).await;
    let address = first.address(1);
    let follows = client([address]);
    let stays = builder([address]).follow_leader(false).build().expect("a client");
    let makes_ids = client([address]);
    create_invoices(&mut first.client(1), |_| {}).await;
    create_with_format(&makes_ids, "order", "snowflake").await;
    let expected = id_of(&first);
    let given = builder([address]).cluster_id(expected.to_ascii_uppercase());
    let given = given.build().expect("a client");
    for client in [&follows, &stays] {
        assert_eq!(client.cluster_id(), None);
        client.next("book", 1).await.expect("a number");
        assert_eq!(client.cluster_id(), Some(expected.clone()));
    }
    assert_eq!(makes_ids.cluster_id(), Some(expected.clone()), "from an answer of administration");

    let second = recycled(&mut first).await;
    let found = id_of(&second);
    for client in [&follows, &stays, &makes_ids, &given] {
        for (what, ended) in ask_for_everything(client).await {
            let refused = ended.expect_err(what);
            let Error::OtherCluster { expected: own, found: other, .. } = &refused else {
                panic!("{what}: {refused}");
            };
            assert_eq!((own, other), (&expected, &found), "{what}");
            let says = refused.to_string();
            assert!(says.contains(&expected) && says.contains(&found), "{says}");
            assert!(!refused.is_retryable(), "{says}");
        }
    }
    assert_untouched(&second).await;
    let new = client([address]);
    for (what, ended) in ask_for_everything(&new).await {
        ended.expect(what);
    }
}

/// One of the clients that `new` makes that asks `server` first. A client begins with any of its servers.
fn that_begins_with(server: SocketAddr, new: impl Fn() -> Client) -> Client {
    let begins_there = |client: &Client| client.servers()[0] == server.to_string();
    std::iter::repeat_with(new).find(begins_there).expect("endless")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_leaves_a_server_of_another_cluster_and_goes_on_with_the_others() {
    let mut first = Cluster::start(3, |_| {}).await;
    let before = first.client(1).next(1).await.expect("a number");
    let second = recycled(&mut first).await;
    first.client(2).next_at_last(9).await;
    let servers: Vec<_> = (1..=3).map(|node| first.address(node)).collect();
    let new = || builder(&servers).cluster_id(id_of(&first)).build().expect("a client");
    let [asks, takes] = [(); 2].map(|()| that_begins_with(servers[0], new));
    // The last number is the ceiling, if node 1 led.
    assert!(asks.current("book", 1).await.expect("from the others") >= Some(before));
    assert!(takes.next("book", 1).await.expect("from the others") > before);
    for client in [asks, takes] {
        let known = client.servers();
        assert!(!known.contains(&servers[0].to_string()), "{known:?}");
        assert!(known.contains(&servers[1].to_string()), "{known:?}");
    }
    assert_untouched(&second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_was_given_servers_of_two_clusters_stays_with_the_one_that_answers_first() {
    let [mut first, second] = [Cluster::start(1, |_| {}).await, Cluster::start(1, |_| {}).await];
    let servers = [first.address(1), second.address(1)];
    let client = that_begins_with(servers[0], || client(servers));
    client.current("book", 1).await.expect("an answer");
    assert_eq!(client.cluster_id(), Some(id_of(&first)));
    client.next("book", 1).await.expect("a number");
    first.crash(1).await;
    let asked = tokio::time::timeout(Duration::from_secs(2), client.current("book", 1)).await;
    assert!(!matches!(asked, Ok(Ok(_))), "nobody else is asked: {asked:?}");
    first.start_node(1).await;
    assert!(client.next("book", 1).await.expect("from the first one") > 1);
    assert_eq!(second.client(1).current("book", id(1)).await.expect("an answer"), None);
}

/// The leader is gone, and another cluster of the same name has its address. No request that is forwarded there is carried out.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_cluster_refuses_at_the_leaders_address_goes_on_to_the_next_leader() {
    // The other cluster starts again before another node of this one is elected.
    let slow =
        |config: &mut Config| (config.election_timeout_ms, config.lease_ms) = (15_000, 12_000);
    let mut cluster = Cluster::start(3, slow).await;
    create_invoices(&mut cluster.client(1), |request| request.request_id_optional = true).await;
    let leader = cluster.leader().await;
    let asked = other_than(leader);
    let taken = cluster.client(asked).try_next(INVOICE, id(1), 1).await;
    let before = taken.expect("a number").last;
    // It is founded elsewhere: where the leader was, the others' calls could reach it first, and keep it from being founded.
    let mut other = Cluster::configured(0, |_| {});
    hurried(other.configure(leader));
    other.start_node(leader).await;
    other.all_answer().await;
    other.crash(leader).await;
    let address = cluster.configs[&leader].peer_listen;
    cluster.crash(leader).await;
    other.configs.get_mut(&leader).expect("it").peer_listen = address;
    other.start_node(leader).await;
    other.all_answer().await;
    assert_eq!(cluster.leader_seen_by(asked, |_| true).await, leader, "no other one leads yet");
    // The first request may still be sent over the stream to the leader that was killed. Nobody knows then whether it was
    // carried out. It was not.
    let number = eventually("a number", async || {
        match cluster.client(asked).try_next(INVOICE, id(1), 1).await {
            Ok(number) => Some(number),
            Err(refused) if reason_of(&refused).0 == Reason::OutcomeUnknown => None,
            Err(refused) => panic!("{refused:?}"),
        }
    })
    .await;
    assert_eq!(number.first, before + 1);
}

#[test]
fn a_client_is_not_built_for_what_is_no_id_of_a_cluster() {
    let refused = Client::builder().cluster_id("prod").build().expect_err("no id");
    let says = refused.to_string();
    assert!(says.contains("\"prod\"") && says.contains("ratchet status"), "{says}");
}

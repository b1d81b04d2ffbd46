//! The refusals of requests for ids of a key, and of namespaces that have such ids.

use crate::common::{
    cluster::Cluster,
    other_than,
    rust_client::{self, create_with_format},
};
use ratchet::proto::{Operation, peer::TakeIdNumbersRequest};
use ratchet_client::{
    Code, Key,
    api::{CreateNamespaceRequest, UpdateNamespaceRequest},
};

/// Ten ids a second for each key.
const SLOW: &str = "digits epoch=2020-01-01 time-s:10 sequence:1 key:2";

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_made_of_a_key_is_refused_with_what_to_do() {
    let cluster = Cluster::start(1, |_| {}).await;
    let client = rust_client::client_of(&cluster, &[1]);
    create_with_format(&client, "orders", "snowflake").await;
    create_with_format(&client, "chat", "rongcloud").await;
    create_with_format(&client, "few", "digits step=100 date:8 sequence:3").await;
    let refused = async |namespace: &str, key: Option<Key>, count, parameters: &[(&str, u64)]| {
        let error = client.next_ids(namespace, key, count, parameters).await;
        let error = error.expect_err("a refusal");
        (error.code().expect("a code"), error.to_string())
    };
    let of_type = [("type", 1)];
    for (key, parameters, why) in [
        (None, &of_type[..], "come from the sequence of a key, and none is given"),
        (
            Some(Key::Id(4_194_304)),
            &of_type,
            "key 4194304 does not fit: the greatest value is 4194303",
        ),
        (Some(Key::from("a")), &of_type, "the key has no id"),
        (Some(Key::Id(1)), &[], "the parameter type is missing"),
        (Some(Key::Id(1)), &[("type", 16)], "type 16 does not fit: the greatest value is 15"),
    ] {
        let (code, text) = refused("chat", key, 1, parameters).await;
        assert_eq!(code, Code::InvalidArgument, "{text}");
        assert!(text.contains(why), "{text}");
    }
    let (code, text) = refused("orders", Some(Key::Id(1)), 1, &[]).await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(text.contains("leave the key out"), "{text}");
    let (code, text) = refused("few", Some(Key::Id(1)), 10, &[]).await;
    assert_eq!(code, Code::OutOfRange);
    assert!(text.contains("key 1 has 9 of its 9 order numbers left"), "{text}");
    let nine = client.next_ids("few", Some(Key::Id(1)), 9, &[]).await.expect("all");
    assert!(nine[0].ends_with("100") && nine[8].ends_with("900"), "{nine:?}");
    let (code, _) = refused("few", Some(Key::Id(1)), 1, &[]).await;
    assert_eq!(code, Code::OutOfRange);

    create_with_format(&client, "slow", SLOW).await;
    let (code, text) = refused("slow", Some(Key::Id(1)), 11, &[]).await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(text.contains("a key has 10 ids"), "{text}");

    let error = client.ids("chat").await.expect_err("a refusal");
    assert_eq!(error.code(), Some(Code::FailedPrecondition), "{error}");
    assert!(error.to_string().contains("has no worker: the leader makes its ids"), "{error}");
    let error = client.next("chat", 1).await.expect_err("a refusal");
    assert!(error.to_string().contains("hands out ids of format rongcloud"), "{error}");
    for (format, name_keys, why) in [
        ("rongcloud", true, "key_kind is name"),
        ("digits step=100 date:8 sequence:2", false, "step=100 does not fit into sequence:2"),
    ] {
        let request = CreateNamespaceRequest {
            name: "another".to_owned(),
            format: Some(format.to_owned()),
            key_kind: if name_keys { 2 } else { 0 },
            ..CreateNamespaceRequest::default()
        };
        let error = client.create_namespace(request).await.expect_err("a refusal");
        assert_eq!(error.code(), Some(Code::InvalidArgument), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_that_would_leave_the_time_is_refused() {
    let cluster = Cluster::start(1, |_| {}).await;
    let client = rust_client::client_of(&cluster, &[1]);
    let named = |format: &str| CreateNamespaceRequest {
        name: "chat".to_owned(),
        format: Some(format.to_owned()),
        ..CreateNamespaceRequest::default()
    };
    let (timed, dated) = (named("rongcloud"), named("yuewen-chapter"));
    let create = |start, max, step, like: &CreateNamespaceRequest| CreateNamespaceRequest {
        start,
        max,
        step,
        ..like.clone()
    };
    for (request, why) in [
        (create(Some(5), None, None, &timed), "start is 5; ids of a key begin and end"),
        (create(None, Some(5), None, &timed), "max is 5; ids of a key begin and end"),
        (
            create(None, None, Some(1_365_334), &timed),
            "step is 1365334; after a crash of the leader ids may lie 30 steps ahead",
        ),
        (create(None, Some(10_000), None, &dated), "max is 10000; a key has 9999 order numbers"),
    ] {
        let error = client.create_namespace(request).await.expect_err("a refusal");
        assert_eq!(error.code(), Some(Code::InvalidArgument), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    client.create_namespace(timed).await.expect("created");
    let update = UpdateNamespaceRequest {
        namespace: "chat".to_owned(),
        start: Some(9),
        ..UpdateNamespaceRequest::default()
    };
    let error = client.update_namespace(update).await.expect_err("a refusal");
    assert!(error.to_string().contains("start is 9; ids of a key"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_release_does_not_know_the_request_is_named_at_once() {
    let mut cluster = Cluster::configured(3, |_| {});
    for id in 1..=3 {
        let mut transport = cluster.transport(id);
        // So an earlier release reads a request that it does not know.
        transport.on_administer = Box::new(|message| {
            if message.method == TakeIdNumbersRequest::METHOD {
                message.method.push('2');
            }
        });
        let seams = cluster.seams_with(transport);
        cluster.start_node_with(id, seams).await;
    }
    cluster.found().await;
    let leader = cluster.leader().await;
    let client = rust_client::staying_at(&cluster, leader);
    create_with_format(&client, "chat", "rongcloud").await;
    let of_type = [("type", 1)];
    let own = client.next_ids("chat", Some(Key::Id(1)), 1, &of_type).await;
    own.expect("the leader's own request is not sent");
    let client = rust_client::staying_at(&cluster, other_than(leader));
    let error = client.next_ids("chat", Some(Key::Id(1)), 1, &of_type).await;
    let error = error.expect_err("a refusal");
    assert_eq!(error.code(), Some(Code::FailedPrecondition), "{error}");
    const METHOD: &str = TakeIdNumbersRequest::METHOD;
    let says = format!("node {leader} leads, and its release does not know {METHOD}; upgrade it");
    assert!(error.to_string().contains(&says), "{error}");
}

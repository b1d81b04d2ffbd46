//! Namespaces through their life: described, limited, changed, deleted, created again, and the space that comes back.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use crate::common::{
    Client, cluster::Cluster, http, id, name, other_than, rust_client::client_of, scale, until,
    with_http,
};
use futures::{FutureExt, future::join_all};
use prost::Message;
use ratchet::proto::{
    peer::{ForwardReplies, forward_reply::Reply},
    v1::{
        CreateNamespaceRequest, DeleteNamespaceRequest, Failure, GetNamespaceRequest,
        ListNamespacesRequest, NextManyRequest, NextManyResponse, Reason, RefusedKeys,
        UpdateNamespaceRequest,
    },
};
use tonic::{Code, Status};

fn assert_refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, says: &[&str]) {
    let status = answer.expect_err("it is refused");
    assert_eq!(status.code(), code, "{status}");
    for text in says {
        assert!(status.message().contains(text), "{text}: {status}");
    }
}

async fn delete(client: &mut Client, name: &str, forget: bool) -> Result<Option<u64>, Status> {
    let delete =
        DeleteNamespaceRequest { namespace: name.to_owned(), confirm: name.to_owned(), forget };
    let deleted = client.admin.delete_namespace(delete).await?;
    Ok(deleted.into_inner().floor)
}

async fn create(client: &mut Client, namespace: CreateNamespaceRequest) -> u64 {
    let created = client.admin.create_namespace(namespace).await;
    created.expect("created").into_inner().start
}

fn book() -> CreateNamespaceRequest {
    CreateNamespaceRequest { name: "book".to_owned(), ..CreateNamespaceRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_deleted_and_created_again_goes_on_above_what_it_handed_out() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let (mut here, mut there) = (cluster.client(leader), cluster.client(other_than(leader)));
    let term = cluster.nodes[&leader].context().group.leadership().borrow().term;
    for key in 0..100 {
        here.next(key).await.expect("a number");
    }
    let wrong = DeleteNamespaceRequest {
        namespace: "book".to_owned(),
        confirm: "bok".to_owned(),
        forget: false,
    };
    assert_refused(
        there.admin.delete_namespace(wrong).await,
        Code::InvalidArgument,
        &["\"bok\"", "\"book\""],
    );
    // The floor is the ceiling, and eight steps for epochs.
    assert_eq!(delete(&mut there, "book", false).await.unwrap(), Some(90_000));
    for client in [&mut here, &mut there] {
        let says = ["\"book\"", "ratchet namespace create book"];
        assert_refused(client.next(7).await, Code::NotFound, &says);
        assert_refused(client.current("book", id(7)).await, Code::NotFound, &says);
    }
    let refused = delete(&mut here, "book", false).await;
    assert_refused(refused, Code::NotFound, &["90000", "--forget"]);
    assert_eq!(create(&mut there, book()).await, 90_001);
    assert_eq!(there.current("book", id(7)).await.unwrap(), None);
    for client in [&mut here, &mut there] {
        assert!(client.next(7).await.unwrap() > 90_000);
    }
    let now = cluster.nodes[&leader].context().group.leadership().borrow().term;
    assert_eq!(now, term, "the deletion ended no term");
    here.transfer(Some(other_than(leader))).await.expect("handed over");
    assert_eq!(there.next_at_last(7).await, 90_003);
    assert_eq!(delete(&mut here, "book", true).await.unwrap(), None);
    assert_eq!(create(&mut there, book()).await, 1);
    assert_eq!(there.next(7).await.unwrap(), 1);
}

/// Takes the second key's number out of a reply, as if the leader had handed over before it was that key's turn.
fn make_late(replies: &mut ForwardReplies) {
    for reply in &mut replies.replies {
        if let Some(Reply::Answer(answer)) = &mut reply.reply {
            // The answers to one key have other fields.
            let Ok(mut many) = NextManyResponse::decode(answer.clone()) else { continue };
            if many.firsts.len() < 2 {
                continue;
            }
            many.firsts[1] = 0;
            let failure = Failure {
                code: Code::ResourceExhausted.into(),
                message: "the leader handed over".to_owned(),
                reason: Reason::Busy.into(),
                ..Failure::default()
            };
            many.refused.push(RefusedKeys {
                places: vec![1],
                failure: Some(Box::new(failure)),
                left_to_next_leader: true,
            });
            *answer = many.encode_to_vec().into();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_never_gets_numbers_of_two_namespaces_that_have_its_name_one_after_the_other() {
    let mut cluster = Cluster::configured(3, |_| {});
    let is_late = Arc::new(AtomicBool::new(false));
    let by_another = cluster.client(1);
    for node in 1..=3 {
        let mut transport = cluster.transport(node);
        let (is_late, client) = (is_late.clone(), by_another.clone());
        transport.on_replies = Arc::new(move |mut replies| {
            let (is_late, mut client) = (is_late.clone(), client.clone());
            let replacing = async move {
                if is_late.swap(false, SeqCst) {
                    make_late(&mut replies);
                    delete(&mut client, "book", true).await.expect("deleted");
                    create(&mut client, book()).await;
                }
                replies
            };
            replacing.boxed()
        });
        let seams = cluster.seams_with(transport);
        cluster.start_node_with(node, seams).await;
    }
    cluster.all_answer().await;
    let leader = cluster.leader().await;
    let mut client = cluster.client(other_than(leader));
    client.next_of_each(vec![7, 8]).await.expect("the first numbers");
    is_late.store(true, SeqCst);
    let message = NextManyRequest {
        namespace: "book".to_owned(),
        ids: vec![7, 8],
        ..NextManyRequest::default()
    };
    let answers = client.sequencer.next_many(tokio_stream::once(message)).await;
    let answer = answers.expect("a stream").into_inner().message().await;
    let answer = answer.expect("an answer").expect("an answer");
    assert_eq!(answer.firsts, [2, 0], "{answer:?}");
    let refused = &answer.refused[0];
    let why = refused.failure.as_ref().expect("it says why");
    assert_eq!((&refused.places[..], why.code), (&[1][..], Code::Aborted.into()), "{why:?}");
    assert!(why.message.contains("ask again for this key"), "{why:?}");
    assert_eq!(client.current("book", id(8)).await.expect("an answer"), None, "nothing was taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_under_way_see_a_deletion_as_an_answer_and_the_other_namespaces_go_on() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let mut client = cluster.client(leader);
    let short = || CreateNamespaceRequest {
        name: "short".to_owned(),
        // Every number waits for a bump.
        step: Some(1),
        ..CreateNamespaceRequest::default()
    };
    create(&mut client, short()).await;
    let mut last = 0;
    for _ in 0..20 {
        let ask = |key: u64| {
            let mut client = client.clone();
            async move { client.try_next("short", id(key % 4), 1).await }
        };
        let (answers, deleted) = tokio::join!(join_all((0..40).map(ask)), async {
            let mut client = client.clone();
            delete(&mut client, "short", false).await
        });
        let floor = deleted.expect("deleted").unwrap_or(last);
        let mut seen = BTreeSet::new();
        for (key, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(range) => {
                    assert!(range.first > last && range.first <= floor, "{range:?} up to {floor}");
                    assert!(seen.insert((key % 4, range.first)), "{range:?} came twice");
                }
                Err(status) => assert_eq!(status.code(), Code::NotFound, "{status}"),
            }
        }
        create(&mut client, short()).await;
        last = floor;
        client.next(7).await.expect("books go on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_keys_beyond_keys_max_are_refused_by_name_and_all_others_go_on() {
    let cluster = Cluster::start(3, with_http).await;
    let leader = cluster.leader().await;
    let (mut here, mut there) = (cluster.client(leader), cluster.client(other_than(leader)));
    let few = CreateNamespaceRequest {
        name: "few".to_owned(),
        keys_max: Some(2),
        ..CreateNamespaceRequest::default()
    };
    create(&mut here, few).await;
    for client in [&mut here, &mut there] {
        for key in [1, 2] {
            client.try_next("few", id(key), 1).await.expect("a number");
        }
        let says = ["\"few\"", "keys_max 2", "update few --keys-max"];
        let refused = client.try_next("few", id(3), 1).await;
        assert_refused(refused, Code::FailedPrecondition, &says);
        let many = NextManyRequest {
            namespace: "few".to_owned(),
            ids: vec![1, 3, 2, 4],
            ..NextManyRequest::default()
        };
        let stream = client.sequencer.next_many(tokio_stream::once(many)).await;
        let answer = stream.expect("a stream").into_inner().message().await;
        let answer = answer.expect("an answer").expect("an answer");
        assert!(answer.failure.is_none(), "{answer:?}");
        let got: Vec<bool> = answer.firsts.iter().map(|first| *first > 0).collect();
        assert_eq!(got, [true, false, true, false]);
        assert_eq!(answer.refused[0].places, [1, 3]);
        let failure = answer.refused[0].failure.as_ref().expect("why");
        assert_eq!(failure.code, i32::from(Code::FailedPrecondition));
    }
    // The client merges its callers' requests: each gets its own outcome.
    let client = client_of(&cluster, &[leader]);
    let asked = join_all((0..40).map(|call| client.next("few", call % 4))).await;
    for (call, answer) in asked.iter().enumerate() {
        assert_eq!(answer.is_ok(), [1, 2].contains(&(call % 4)), "{call}: {answer:?}");
    }
    let port = cluster.nodes[&leader].addresses().http.expect("a port");
    let page = http(port, "POST /v1/namespaces/few:next", "", r#"{"ids": ["1", "9"]}"#).await;
    assert!(page.body.contains(r#""refused":[{"places":[1],"failure":{"#), "{}", page.body);
    assert!(page.body.contains(r#""reason":"REASON_KEYS_MAX_REACHED""#), "{}", page.body);
    let page = http(port, "POST /v1/namespaces/few/keys/9:next", "", "").await;
    assert_eq!(page.status, 409, "{}", page.body);
    let more = UpdateNamespaceRequest {
        namespace: "few".to_owned(),
        keys_max: Some(3),
        ..UpdateNamespaceRequest::default()
    };
    there.admin.update_namespace(more).await.expect("updated");
    there.try_next("few", id(3), 1).await.expect("a number");
    let refused = there.try_next("few", id(4), 1).await;
    assert_refused(refused, Code::FailedPrecondition, &["keys_max 3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_above_the_namespaces_own_limit_is_refused_and_merged_calls_are_not() {
    let cluster = Cluster::start(1, |_| {}).await;
    let mut client = cluster.client(1);
    let small = CreateNamespaceRequest {
        name: "small".to_owned(),
        count_max: Some(10),
        ..CreateNamespaceRequest::default()
    };
    create(&mut client, small).await;
    client.try_next("small", id(1), 10).await.expect("numbers");
    let refused = client.try_next("small", id(1), 11).await;
    let says = ["count is 11", "\"small\"", "between 1 and 10", "count_max"];
    assert_refused(refused, Code::InvalidArgument, &says);
    let many = NextManyRequest {
        namespace: "small".to_owned(),
        ids: vec![1, 2, 3],
        counts: vec![1, 11, 10],
        ..NextManyRequest::default()
    };
    let stream = client.sequencer.next_many(tokio_stream::once(many)).await;
    let answer = stream.expect("a stream").into_inner().message().await;
    let answer = answer.expect("an answer").expect("an answer");
    assert_eq!(answer.firsts, [11, 0, 1]);
    assert_eq!(answer.refused[0].places, [1]);
    let client = client_of(&cluster, &[1]);
    let asked = join_all((0..50).map(|_| client.next_range("small", 7, 3))).await;
    let numbers: BTreeSet<u64> =
        asked.into_iter().flat_map(|numbers| numbers.expect("numbers")).collect();
    assert_eq!(numbers.len(), 150);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_orders_numbers_changes_until_the_first_one_and_is_refused_with_reasons_later() {
    let cluster = Cluster::start(1, |_| {}).await;
    let mut client = cluster.client(1);
    let create_draft = CreateNamespaceRequest {
        name: "draft".to_owned(),
        description: Some("to be decided".to_owned()),
        ..CreateNamespaceRequest::default()
    };
    create(&mut client, create_draft).await;
    let update = |increment| UpdateNamespaceRequest {
        namespace: "draft".to_owned(),
        increment: Some(increment),
        start: Some(increment),
        section_size: Some(10),
        description: Some("chapters".to_owned()),
        ..UpdateNamespaceRequest::default()
    };
    let changed = client.admin.update_namespace(update(100)).await;
    let changed = changed.expect("changed").into_inner();
    assert_eq!((changed.start, changed.section_size), (100, 10));
    assert_eq!(changed.description, "chapters");
    let range = client.try_next("draft", id(1), 2).await.expect("numbers");
    assert_eq!((range.first, range.last), (100, 200));
    let refused = client.admin.update_namespace(update(1)).await;
    let says = ["\"draft\"", "increment (", "start ("];
    assert_refused(refused, Code::FailedPrecondition, &says);
    let range = client.try_next("draft", id(1), 1).await.expect("numbers");
    assert_eq!(range.first, 300, "nothing has changed");
    for (change, says) in [
        (
            UpdateNamespaceRequest { section_size: Some(1_000_001), ..update(100) },
            "section_size is 1000001",
        ),
        (UpdateNamespaceRequest { section_size: Some(0), ..update(100) }, "section_size is 0"),
        (
            UpdateNamespaceRequest { description: Some("d".repeat(257)), ..update(100) },
            "257 characters",
        ),
        (UpdateNamespaceRequest { description: Some("a\nb".to_owned()), ..update(100) }, "'\\n'"),
        (UpdateNamespaceRequest { increment: Some(0), ..update(100) }, "increment is 0"),
    ] {
        let refused = client.admin.update_namespace(change).await;
        assert_refused(refused, Code::InvalidArgument, &[says]);
    }
    let named = client.try_next("draft", name(b"x"), 1).await;
    assert_refused(named, Code::InvalidArgument, &["kind id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_namespaces_are_the_founders_choice_and_do_not_come_back() {
    let names = async |client: &mut Client| {
        let list = client.admin.list_namespaces(ListNamespacesRequest {}).await;
        let list = list.expect("a list").into_inner().namespaces;
        list.into_iter().map(|one| one.name).collect::<Vec<_>>()
    };
    let mut without = Cluster::configured(1, |config| config.no_default_namespaces = true);
    without.start_node(1).await;
    without.found().await;
    let mut client = without.client(1);
    assert!(names(&mut client).await.is_empty());
    create(&mut client, book()).await;
    client.next_at_last(7).await;
    without.nodes.remove(&1).expect("a node").stop().await;
    let config = without.configs.get_mut(&1).expect("a configuration");
    config.no_default_namespaces = false;
    without.start_node(1).await;
    let mut client = without.client(1);
    client.next_at_last(7).await;
    assert_eq!(names(&mut client).await, ["book"]);

    let mut with = Cluster::start(1, |_| {}).await;
    let mut client = with.client(1);
    client.next_at_last(7).await;
    for name in ["book", "uid"] {
        delete(&mut client, name, true).await.expect("deleted");
    }
    with.nodes.remove(&1).expect("a node").stop().await;
    with.start_node(1).await;
    let mut client = with.client(1);
    with.leader().await;
    assert!(names(&mut client).await.is_empty());
    let gone = GetNamespaceRequest { namespace: "uid".to_owned() };
    let gone = client.admin.get_namespace(gone).await;
    assert_refused(gone, Code::NotFound, &["\"uid\""]);
}

/// How many bytes a node's tables take up.
fn table_bytes(cluster: &Cluster, id: u64) -> u64 {
    let store = &cluster.nodes[&id].context().this_node.store;
    store.disk_usage().expect("the disk tells").table_bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn the_space_of_a_deleted_namespace_comes_back_on_every_node_also_after_a_restart() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let mut client = cluster.client(leader);
    for first in (0..200_000).step_by(20_000) {
        let ids = (first..first + 20_000).collect();
        client.next_of_each(ids).await.expect("numbers");
    }
    let follower = other_than(leader);
    cluster.caught_up(leader, follower).await;
    let full = table_bytes(&cluster, leader);
    assert!(full > 8 << 20, "{full} bytes");
    delete(&mut client, "book", false).await.expect("deleted");
    for node in 1..=3 {
        let is_back = || table_bytes(&cluster, node) < full / 4;
        until("the space", is_back).await;
    }
    cluster.nodes.remove(&follower).expect("a node").stop().await;
    cluster.start_node(follower).await;
    assert!(table_bytes(&cluster, follower) < full / 4);
    create(&mut client, book()).await;
    assert!(client.next(7).await.expect("a number") > 90_000);
}

/// How many sections the namespace has that is deleted by hand (`SECTIONS` in the environment says otherwise).
const SECTIONS: u64 = 10_000_000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes and gigabytes: cargo test --test scenarios namespace_life -- --ignored --nocapture"]
async fn ten_million_keys_are_deleted_at_once_and_their_space_comes_back_within_a_minute() {
    let sections = std::env::var("SECTIONS").map_or(SECTIONS, |n| n.parse().expect("a number"));
    let mut cluster = Cluster::start(1, |_| {}).await;
    // A node that stops leaves its sections to the next term: this one could write none.
    cluster.crash(1).await;
    scale::fill(&cluster.configs[&1], sections).await;
    cluster.start_node(1).await;
    let mut client = cluster.client(1);
    client.next_at_last(0).await;
    let full = table_bytes(&cluster, 1);
    println!("{sections} sections take up {} MB", full >> 20);
    let began = Instant::now();
    delete(&mut client, "book", false).await.expect("deleted");
    println!("deleted after {:.1?}", began.elapsed());
    let mut longest = Duration::ZERO;
    while table_bytes(&cluster, 1) > full / 20 {
        let asked = Instant::now();
        client.try_next("uid", id(1), 1).await.expect("a number");
        longest = longest.max(asked.elapsed());
        assert!(began.elapsed() < Duration::from_secs(60), "the space is not back");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!(
        "{} MB left after {:.1?}; the longest call meanwhile took {longest:.1?}",
        table_bytes(&cluster, 1) >> 20,
        began.elapsed()
    );
}

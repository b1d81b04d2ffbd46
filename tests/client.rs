//! The client library: requests that travel together, order, the way to the leader, segments.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::common::{
    cluster::Cluster,
    id, in_time,
    invoices::create_invoices,
    other_than,
    rust_client::{assert_no_repeats, builder, client_of, take},
};
use futures::future::join_all;
use ratchet::{
    metrics::Interface,
    proto::v1::{CreateNamespaceRequest, KeyKind},
};
use ratchet_client::{Error, Key};
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tasks_send_few_messages_and_no_number_is_skipped_or_repeated() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let client = client_of(&cluster, &[leader]);
    let requests = cluster.nodes[&leader].context().metrics.request_seconds.of(Interface::grpc);
    let before = requests.count();
    let all = take(&client, 1_000, 20, 10).await;
    assert_no_repeats(&all);
    for (key, numbers) in &all {
        assert_eq!(numbers.iter().max(), Some(&2_000), "key {key} has no gap");
    }
    let messages = requests.count() - before;
    assert!(messages < 2_000, "{messages} messages for 20 000 numbers");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_together_for_one_key_get_one_range_in_the_order_of_asking() {
    let cluster = Cluster::start(1, |_| {}).await;
    let leader = cluster.leader().await;
    let client = client_of(&cluster, &[leader]);
    let context = cluster.nodes[&leader].context().clone();
    // On a runtime of their own, where all of them wait before the client looks at any of them.
    let asking = tokio::task::spawn_blocking(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        // From now on the client runs here, and knows the kind of the namespace.
        runtime.block_on(client.next("book", 6)).expect("a number");
        let requests = context.metrics.request_seconds.of(Interface::grpc);
        let before = requests.count();
        let asked = (0..500u64).map(|n| client.next_range("book", 5, 1 + n % 3));
        let answers = runtime.block_on(tokio::task::unconstrained(join_all(asked)));
        (answers, requests.count() - before)
    });
    let (answers, messages) = asking.await.expect("asked");
    let mut last = 0;
    for numbers in answers {
        let numbers = numbers.expect("numbers");
        assert_eq!(numbers.first, last + 1);
        last = numbers.last;
    }
    assert_eq!(messages, 1, "one message");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_numbers_that_are_left_go_to_as_many_of_the_merged_calls() {
    let cluster = Cluster::start(1, |_| {}).await;
    let leader = cluster.leader().await;
    let few = CreateNamespaceRequest {
        name: "few".into(),
        max: Some(50),
        ..CreateNamespaceRequest::default()
    };
    let mut admin = cluster.client(leader).admin;
    admin.create_namespace(few).await.expect("created");
    let client = client_of(&cluster, &[leader]);
    let all = join_all((0..60).map(|_| client.next("few", 7))).await;
    let numbers: BTreeSet<u64> = (all.iter().flatten().copied()).collect();
    assert_eq!(numbers, (1..=50).collect());
    for refused in all.iter().filter_map(|answer| answer.as_ref().err()) {
        let Error::Server { code, message: says, .. } = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(*code, ratchet_client::Code::OutOfRange);
        assert!(says.contains("count is 1, and 0 numbers are left"), "{says}");
        assert!(says.contains("ratchet namespace update few --max"), "{says}");
    }
    assert_eq!(all.iter().filter(|answer| answer.is_err()).count(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_goes_straight_to_the_leader_once_it_knows_it_and_one_that_stays_does_not() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let follower = other_than(leader);
    let forwards = &cluster.nodes[&follower].context().metrics.forwards;
    let client = client_of(&cluster, &[follower]);
    client.next("book", 1).await.expect("a number");
    assert!(forwards.get() > 0, "the first went by way of the follower");
    let straight = async {
        // Until the leader has taken a stream, the follower forwards.
        loop {
            let before = forwards.get();
            client.next("book", 1).await.expect("a number");
            if forwards.get() == before {
                return before;
            }
        }
    };
    let before = in_time("the way straight to the leader", straight).await;
    assert_no_repeats(&take(&client, 8, 20, 2).await);
    // A message that the follower had before the leader took the stream may be answered late.
    let late_max = before + 1;
    assert!(forwards.get() <= late_max, "{} after {before}", forwards.get());
    let servers = [cluster.address(follower).to_string()];
    let staying = builder(&servers).follow_leader(false).build().unwrap();
    assert_no_repeats(&take(&staying, 8, 20, 2).await);
    assert!(forwards.get() > late_max);
    assert_eq!(staying.servers(), servers);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stays_exports_from_the_servers_that_it_was_given_alone() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let staying = |node| {
        let builder = builder([cluster.address(node)]).follow_leader(false);
        builder.build().expect("a client")
    };
    let refused = staying(other_than(leader)).export("book").await.err().expect("a refusal");
    assert_eq!(refused.code(), Some(ratchet_client::Code::Unavailable), "{refused}");
    staying(leader).export("book").await.expect("from the leader");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_request_fails_alone_among_those_that_it_travels_with() {
    let cluster = Cluster::start(1, |_| {}).await;
    let client = client_of(&cluster, &[cluster.leader().await]);
    let good = (0..50).map(|id| client.next_range("book", Key::Id(id), 1));
    let bad = [
        (Key::Id(1), 0, "count is 0"),
        (Key::Id(2), 2_000_000, "count is 2000000"),
        (Key::from("x"), 1, "takes keys of kind id"),
    ];
    let wrong = (bad.iter()).map(|(key, count, _)| client.next_range("book", key.clone(), *count));
    let all = join_all(good.chain(wrong)).await;
    let (good, wrong) = all.split_at(50);
    for answer in good {
        assert_eq!(answer.as_ref().expect("numbers").first, 1);
    }
    for (answer, (_, _, says)) in wrong.iter().zip(&bad) {
        let Err(Error::Server { code, message, .. }) = answer else {
            panic!("{says}: {answer:?}");
        };
        assert_eq!(*code, ratchet_client::Code::InvalidArgument);
        assert!(message.contains(says), "{message}");
    }
    let unknown = client.next("film", 1).await;
    assert!(unknown.unwrap_err().to_string().contains("\"film\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_are_disjoint_and_most_of_their_numbers_cost_no_request() {
    let cluster = Cluster::start(1, |_| {}).await;
    let leader = cluster.leader().await;
    let client = client_of(&cluster, &[leader]);
    let requests = cluster.nodes[&leader].context().metrics.request_seconds.of(Interface::grpc);
    let before = requests.count();
    let segments = [(); 2].map(|()| client.segment("book", 3, 100));
    let mut seen = BTreeSet::new();
    let mut last = [0; 2];
    for _ in 0..1_000 {
        for (segment, last) in segments.iter().zip(&mut last) {
            let number = segment.next().await.expect("a number");
            assert!(number > *last, "within a segment's holder numbers grow");
            assert!(seen.insert(number), "{number} came twice");
            *last = number;
        }
    }
    let asked = requests.count() - before;
    // Two of them may travel together.
    assert!((10..=26).contains(&asked), "{asked} requests for 2 x 1000 numbers");
    let highest = cluster.client(leader).current("book", id(3)).await.unwrap();
    assert!(highest >= seen.last().copied());
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_long_names_at_once_fit_the_messages_at_the_leader_and_through_a_follower() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let room = CreateNamespaceRequest {
        name: "room".into(),
        key_kind: KeyKind::Name.into(),
        ..CreateNamespaceRequest::default()
    };
    let mut admin = cluster.client(leader).admin;
    admin.create_namespace(room).await.expect("created");
    let mut before = vec![0; 12_000];
    for node in [leader, other_than(leader)] {
        let staying = builder([cluster.address(node)]).follow_leader(false);
        let client = staying.build().unwrap();
        let names = (0..12_000).map(|n| format!("{n:0>256}"));
        let asked = names.map(|name| client.next("room", name));
        for (answer, before) in join_all(asked).await.into_iter().zip(&mut before) {
            let number = answer.expect("a number");
            assert!(number > *before, "{number} after {before}");
            *before = number;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_kind_of_call_leaves_a_gap_in_a_gapless_namespace_while_leaders_crash() {
    const KEYS: u64 = 4;
    let mut cluster = Cluster::start(3, |_| {}).await;
    create_invoices(&mut cluster.client(1), |create| create.request_id_optional = false).await;
    let client = client_of(&cluster, &[1, 2, 3]);
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for caller in 0..12u64 {
        let (client, stop) = (client.clone(), stop.clone());
        callers.spawn(async move {
            // A segment's numbers are taken ahead of its callers: it has a key of its own.
            let segment = client.segment("invoice", 1_000 + caller, 10);
            let mut taken = Vec::new();
            for number in 0u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let key = number % KEYS;
                match caller % 4 {
                    0 => {
                        let number = client.next("invoice", key).await.expect("a number");
                        taken.push((key, number, number));
                    }
                    1 => {
                        let range = client.next_range("invoice", key, 3).await.expect("numbers");
                        taken.push((key, range.first, range.last));
                    }
                    2 => {
                        let id = format!("{caller}-{number}");
                        let asked = client.next_once("invoice", key, 2, &id).await;
                        let range = asked.expect("numbers");
                        taken.push((key, range.first, range.last));
                    }
                    _ => {
                        let number = segment.next().await.expect("a number");
                        taken.push((1_000 + caller, number, number));
                    }
                }
            }
            taken
        });
    }
    for _ in 0..2 {
        cluster.crash_leader_for_a_while().await;
        cluster.all_answer().await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut ranges = BTreeMap::new();
    while let Some(taken) = callers.join_next().await {
        for (key, first, last) in taken.expect("a caller") {
            let before = ranges.insert((key, first), last);
            assert_eq!(before, None, "{first} of key {key} twice");
        }
    }
    let mut expected = BTreeMap::new();
    for ((key, first), last) in ranges {
        let next = expected.entry(key).or_insert(1);
        assert_eq!(first, *next, "a gap in key {key}, or a number twice");
        *next = last + 1;
    }
    for key in 0..KEYS {
        let current = client.current("invoice", key).await.expect("an answer");
        assert_eq!(current, Some(expected[&key] - 1), "key {key}: numbers that nobody got");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_an_id_gets_the_same_numbers_when_it_is_asked_again() {
    let cluster = Cluster::start(3, |_| {}).await;
    let client = client_of(&cluster, &[1, 2, 3]);
    create_invoices(&mut cluster.client(1), |create| create.request_id_optional = false).await;
    let first = client.next_once("invoice", 7, 3, "order-7").await;
    let first = first.expect("numbers");
    assert_eq!((first.first, first.last), (1, 3));
    cluster.lead(other_than(cluster.leader().await)).await;
    let other = client_of(&cluster, &[2]);
    let again = other.next_once("invoice", 7, 3, "order-7").await;
    assert_eq!(again.expect("numbers"), first);
    assert_eq!(client.next("invoice", 7).await.expect("a number"), 4);
    let refused = client.next_once("invoice", 8, 3, "order-7").await;
    let refused = refused.expect_err("another key");
    assert_eq!(refused.code(), Some(ratchet_client::Code::FailedPrecondition));
    let ordinary = client.next_once("book", 7, 1, "order-7").await;
    let ordinary = ordinary.expect_err("an id in an ordinary namespace");
    assert_eq!(ordinary.code(), Some(ratchet_client::Code::FailedPrecondition));
    assert!(ordinary.to_string().contains("ask without one"), "{ordinary}");
}

//! Request ids: a message of a gapless namespace is answered once, however often it is sent.

use std::{collections::BTreeMap, time::Duration};

use crate::common::{
    Client,
    cluster::Cluster,
    id, in_time,
    invoices::{INVOICE, cluster_with_invoices, create_invoices},
    name, other_than, others,
};
use bytes::Bytes;
use ratchet::{
    metrics::SkipCause,
    proto::{
        reason_of,
        v1::{
            KeyKind, NextManyRequest, NextManyResponse, NextRequest, NextResponse, Outcome, Reason,
            UpdateNamespaceRequest,
        },
    },
};
use tokio::task::JoinSet;
use tonic::{Code, Status};
use tonic_types::StatusExt;

async fn once(
    client: &mut Client, namespace: &str, key: u64, count: u64, request: &str,
) -> Result<NextResponse, Status> {
    let message = NextRequest {
        namespace: namespace.to_owned(),
        key: id(key),
        count: Some(count),
        request_id: Some(request.to_owned().into()),
        ..NextRequest::default()
    };
    let answer = client.sequencer.next(message).await?;
    Ok(answer.into_inner())
}

/// The numbers of a request, asked for until they come.
async fn once_at_last(cluster: &[Client], request: &str, count: u64) -> NextResponse {
    let asking = async {
        let mut clients = cluster.iter().cloned().cycle();
        loop {
            let mut client = clients.next().expect("clients");
            match once(&mut client, INVOICE, 7, count, request).await {
                Ok(answer) => return answer,
                Err(status) => {
                    // The transport has codes of its own for a connection that breaks.
                    let is_broken = std::error::Error::source(&status).is_some();
                    assert!(
                        is_broken
                            || [
                                Code::Unavailable,
                                Code::DeadlineExceeded,
                                Code::Cancelled,
                                Code::Unknown
                            ]
                            .contains(&status.code()),
                        "{status}"
                    );
                    // The node may be down, which cannot be awaited.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    };
    in_time("an answer", asking).await
}

fn skipped(cluster: &Cluster) -> u64 {
    let causes = [
        SkipCause::leader_change,
        SkipCause::fence,
        SkipCause::deadline,
        SkipCause::cancelled,
        SkipCause::shared_section,
    ];
    let of = |node: &ratchet::node::Node| {
        let metrics = &node.context().metrics;
        causes.iter().map(|cause| metrics.skipped(*cause)).sum::<u64>()
    };
    cluster.nodes.values().map(of).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_with_ids_tile_the_numbers_exactly_once_while_leaders_crash() {
    const CALLERS: u64 = 8;
    const EACH: u64 = 40;
    let mut cluster = cluster_with_invoices().await;
    let clients: Vec<Client> = [1, 2, 3].map(|node| cluster.client(node)).into();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let mut clients = clients.clone();
        clients.rotate_left(caller as usize % 3);
        callers.spawn(async move {
            let mut ranges = BTreeMap::new();
            for number in 0..EACH {
                let (request, count) = (format!("{caller}-{number}"), 1 + number % 3);
                let first = once_at_last(&clients, &request, count).await;
                // The same holds when nothing failed, at any node.
                let again = once_at_last(&clients[1..], &request, count).await;
                assert_eq!(
                    (first.first, first.last),
                    (again.first, again.last),
                    "request {request}"
                );
                ranges.insert(first.first, first.last);
            }
            ranges
        });
    }
    for _ in 0..2 {
        cluster.crash_leader_for_a_while().await;
    }
    let mut ranges = BTreeMap::new();
    while let Some(done) = callers.join_next().await {
        ranges.extend(done.expect("a caller"));
    }
    assert_eq!(ranges.len() as u64, CALLERS * EACH);
    let mut expected = 1;
    for (first, last) in ranges {
        assert_eq!(first, expected, "a gap, or a number twice");
        expected = last + 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_outlives_leaders_and_is_refused_for_another_request() {
    let cluster = cluster_with_invoices().await;
    let leader = cluster.leader().await;
    let mut client = cluster.client(other_than(leader));
    let first = once(&mut client, INVOICE, 7, 2, "a").await.expect("numbers");
    client.try_next(INVOICE, id(7), 1).await.expect("a number");
    let again = once(&mut client, INVOICE, 7, 2, "a").await.expect("numbers");
    assert_eq!((again.first, again.last), (first.first, first.last));
    for (key, count) in [(8, 2), (7, 1)] {
        let refused = once(&mut client, INVOICE, key, count, "a").await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert_eq!(reason_of(&refused), (Reason::RequestIdReused, Outcome::NotDone));
        let used = "used for 2 numbers of key 7 of namespace \"invoice\"; give";
        assert!(refused.message().contains(used), "{refused}");
    }
    let other = once(&mut client, INVOICE, 7, 1, "b").await.expect("a number");
    assert_eq!(other.first, first.last + 2, "no refused request took a number");
    client.transfer(None).await.expect("transferred");
    let later = once(&mut client, INVOICE, 7, 2, "a").await.expect("numbers");
    assert_eq!(later.first, first.first);
    assert_eq!(skipped(&cluster), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_says_a_wrong_time_takes_nothing_and_is_told_the_right_one() {
    let cluster = cluster_with_invoices().await;
    let leader = cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let mut client = cluster.client(node);
        let mut next = async |made_ms: Option<u64>| {
            let message = NextRequest {
                namespace: INVOICE.to_owned(),
                key: id(node),
                request_id: Some(format!("{node}").into()),
                retry_window_ms: Some(60_000),
                made_ms,
                ..NextRequest::default()
            };
            client.sequencer.next(message).await
        };
        let without = next(None).await.unwrap_err();
        assert_eq!(without.code(), Code::InvalidArgument);
        assert!(without.message().contains("made_ms is missing"), "{without}");
        let early = next(Some(1 << 40)).await.unwrap_err();
        assert_eq!(early.code(), Code::FailedPrecondition);
        assert_eq!(reason_of(&early), (Reason::RequestIdExpired, Outcome::NotDone));
        assert!(early.message().contains("made_ms is 1099511627776"), "{early}");
        let told = early.get_details_error_info().expect("an ErrorInfo");
        let now_ms = told.metadata["request_clock_ms"].parse().expect("a time");
        let taken = next(Some(now_ms)).await.expect("a number").into_inner();
        assert_eq!(taken.first, 1, "no refused message took a number");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_is_refused_where_it_means_nothing_and_asked_for_where_a_retry_could_leave_a_gap()
 {
    let cluster = Cluster::start(3, |_| {}).await;
    create_invoices(&mut cluster.client(1), |create| create.request_id_optional = false).await;
    let leader = cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let mut client = cluster.client(node);
        let refused = once(&mut client, "book", 7, 1, "a").await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert_eq!(reason_of(&refused), (Reason::RequestIdUnsupported, Outcome::NotDone));
        assert!(refused.message().contains("ask without one"), "{refused}");
        let refused = client.try_next(INVOICE, id(7), 1).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert_eq!(reason_of(&refused), (Reason::RequestIdRequired, Outcome::NotDone));
        assert!(refused.message().contains("--request-id-optional true"), "{refused}");
        let info = refused.get_details_error_info().expect("an ErrorInfo");
        assert_eq!(
            (&*info.reason, &*info.metadata["outcome"]),
            ("REQUEST_ID_REQUIRED", "NOT_DONE")
        );
        let many = next_many(&mut client, "book", Some("a")).await;
        assert_eq!(many.failure.expect("refused").reason(), Reason::RequestIdUnsupported);
        let many = next_many(&mut client, INVOICE, None).await;
        assert_eq!(many.failure.expect("refused").reason(), Reason::RequestIdRequired);
    }
    let mut client = cluster.client(leader);
    let allow = UpdateNamespaceRequest {
        namespace: INVOICE.to_owned(),
        request_id_optional: Some(true),
        ..UpdateNamespaceRequest::default()
    };
    let updated = client.admin.update_namespace(allow).await.expect("updated").into_inner();
    assert!(updated.request_id_optional);
    let first = client.try_next(INVOICE, id(7), 1).await.expect("a number");
    assert_eq!(first.first, 1, "nothing was taken before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_hears_no_leader_does_not_say_that_a_request_id_means_nothing() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let [alone, other] = others(leader);
    let mut client = cluster.client(alone);
    once(&mut client, "book", 7, 1, "a").await.expect_err("the namespace is not gapless");
    cluster.crash(other).await;
    cluster.crash(leader).await;
    // Another namespace may have the name by now, and have carried the message out.
    let message = NextRequest {
        namespace: "book".to_owned(),
        key: id(7),
        request_id: Some(Bytes::from_static(b"b")),
        retry_window_ms: Some(60_000),
        made_ms: Some(0),
        ..NextRequest::default()
    };
    let refused = in_time("the refusal for want of a leader", async {
        loop {
            let mut message = tonic::Request::new(message.clone());
            message.set_timeout(Duration::from_secs(2));
            let refused = client.sequencer.next(message).await.expect_err("no leader is left");
            // The first one may have been on its way to the leader.
            if ![Reason::OutcomeUnknown, Reason::DeadlineExceeded].contains(&reason_of(&refused).0)
            {
                break refused;
            }
        }
    });
    let refused = refused.await;
    assert_eq!(reason_of(&refused).0, Reason::NoLeader, "{refused}");
}

/// The answer to a message for keys 7, 8 and 7 again.
async fn next_many(
    client: &mut Client, namespace: &str, request: Option<&str>,
) -> NextManyResponse {
    let message = NextManyRequest {
        namespace: namespace.to_owned(),
        ids: vec![7, 8, 7],
        counts: vec![1, 2, 1],
        request_id: request.map(|id| id.to_owned().into()),
        retry_window_ms: request.map(|_| 60_000),
        made_ms: request.map(|_| 0),
        ..NextManyRequest::default()
    };
    let answers = client.sequencer.next_many(tokio_stream::once(message));
    let answer = answers.await.expect("a stream").into_inner().message().await;
    answer.expect("an answer").expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_many_keys_is_answered_once_whichever_node_is_asked_and_whoever_leads() {
    let cluster = cluster_with_invoices().await;
    let leader = cluster.leader().await;
    let mut client = cluster.client(other_than(leader));
    let first = next_many(&mut client, INVOICE, Some("a")).await;
    assert_eq!((first.failure, first.firsts.clone()), (None, vec![1, 1, 2]));
    let other = next_many(&mut client, INVOICE, Some("b")).await;
    assert_eq!(other.firsts, [3, 3, 4]);
    client.transfer(None).await.expect("transferred");
    for node in [1, 2, 3] {
        let again = next_many(&mut cluster.client(node), INVOICE, Some("a")).await;
        assert_eq!(again.firsts, first.firsts);
    }
    // The id names the whole message, not one of its keys.
    let refused = once(&mut client, INVOICE, 7, 1, "a").await.unwrap_err();
    assert_eq!(reason_of(&refused).0, Reason::RequestIdReused);
    assert!(refused.message().contains("and for 2 other keys"), "{refused}");
    assert_eq!(skipped(&cluster), 0);
}

/// From now on a request may take `count_max` numbers of an invoice's key.
async fn limit_invoices(client: &mut Client, count_max: u64) {
    let limit = UpdateNamespaceRequest {
        namespace: INVOICE.to_owned(),
        count_max: Some(count_max),
        ..UpdateNamespaceRequest::default()
    };
    client.admin.update_namespace(limit).await.expect("updated");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_under_a_request_id_is_answered_after_the_namespaces_count_max_was_lowered()
{
    let cluster = cluster_with_invoices().await;
    let mut client = cluster.client(cluster.leader().await);
    let one = once(&mut client, INVOICE, 7, 2, "one").await.expect("numbers");
    let many = next_many(&mut client, INVOICE, Some("many")).await;
    assert_eq!(many.firsts, [3, 1, 4]);
    limit_invoices(&mut client, 1).await;
    let limited = next_many(&mut client, INVOICE, Some("limited")).await;
    assert_eq!(limited.firsts, [5, 0, 6], "key 8 was asked for 2 numbers");
    assert_eq!(limited.refused[0].places, [1]);
    for node in [1, 2, 3] {
        let mut client = cluster.client(node);
        let again = once(&mut client, INVOICE, 7, 2, "one").await.expect("what it took");
        assert_eq!((again.first, again.last), (one.first, one.last));
        assert_eq!(next_many(&mut client, INVOICE, Some("many")).await.firsts, many.firsts);
        assert_eq!(next_many(&mut client, INVOICE, Some("limited")).await.firsts, limited.firsts);
        let refused = once(&mut client, INVOICE, 7, 2, "new").await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains("its count_max"), "{refused}");
        let reused = once(&mut client, INVOICE, 7, 3, "one").await.unwrap_err();
        assert_eq!(reason_of(&reused).0, Reason::RequestIdReused);
    }
    let next = once(&mut client, INVOICE, 7, 1, "next").await.expect("a number");
    assert_eq!(next.first, 7, "no refused request took a number");
    assert_eq!(skipped(&cluster), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_answered_as_its_first_try_whatever_the_namespaces_count_max_has_become() {
    let cluster = Cluster::start(3, |_| {}).await;
    create_invoices(&mut cluster.client(1), |_| {}).await;
    let mut client = cluster.client(cluster.leader().await);
    let ask = async |client: &mut Client, counts: [u64; 3], request: &str| {
        let message = NextManyRequest {
            namespace: INVOICE.to_owned(),
            ids: vec![7, 8, 9],
            counts: counts.to_vec(),
            request_id: Some(request.to_owned().into()),
            ..NextManyRequest::default()
        };
        let answers = client.sequencer.next_many(tokio_stream::once(message));
        let answer = answers.await.expect("a stream").into_inner().message().await;
        answer.expect("an answer").expect("an answer")
    };
    limit_invoices(&mut client, 5).await;
    let first = ask(&mut client, [1, 10, 3], "a").await;
    assert_eq!((&first.firsts[..], &first.refused[0].places[..]), (&[1, 0, 1][..], &[1][..]));
    for (limit, says) in [(20, "left the key out"), (2, "its count_max"), (5, "its count_max")] {
        limit_invoices(&mut client, limit).await;
        let again = ask(&mut client, [1, 10, 3], "a").await;
        assert_eq!(again.failure, None, "count_max {limit}");
        assert_eq!(again.firsts, first.firsts, "count_max {limit}");
        assert_eq!(again.refused[0].places, [1], "count_max {limit}");
        let why = again.refused[0].failure.as_ref().expect("it says why");
        assert!(why.message.contains(says), "count_max {limit}: {why:?}");
    }
    limit_invoices(&mut client, 20).await;
    // A message that the first try could not have been is another one.
    for counts in [[1, 2, 3], [1, 10, 2], [2, 10, 3]] {
        let other = ask(&mut client, counts, "a").await;
        let why = other.failure.expect("refused");
        assert_eq!(why.reason(), Reason::RequestIdReused, "{counts:?}: {why:?}");
    }
    let next = ask(&mut client, [1, 10, 3], "b").await;
    assert_eq!(next.firsts, [2, 1, 4], "nothing else was taken");
    assert_eq!(skipped(&cluster), 0);
}

/// The answer to a message for numbers of these keys under a request id.
async fn ask_many(client: &mut Client, asked: &[(u64, u64)], request: &str) -> NextManyResponse {
    let message = NextManyRequest {
        namespace: INVOICE.to_owned(),
        ids: asked.iter().map(|(key, _)| *key).collect(),
        counts: asked.iter().map(|(_, count)| *count).collect(),
        request_id: Some(request.to_owned().into()),
        ..NextManyRequest::default()
    };
    let answers = client.sequencer.next_many(tokio_stream::once(message));
    let answer = answers.await.expect("a stream").into_inner().message().await;
    answer.expect("an answer").expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_further_keys_is_another_one_even_if_their_counts_are_greater() {
    let cluster = cluster_with_invoices().await;
    let mut client = cluster.client(cluster.leader().await);
    let first = ask_many(&mut client, &[(7, 1)], "a").await;
    assert_eq!((first.failure, first.firsts), (None, vec![1]));
    for node in [1, 2, 3] {
        let other = ask_many(&mut cluster.client(node), &[(7, 1), (8, 2)], "a").await;
        let why = other.failure.expect("refused");
        assert_eq!(why.reason(), Reason::RequestIdReused, "{why:?}");
    }
    let next = ask_many(&mut client, &[(7, 1), (8, 2)], "b").await;
    assert_eq!(next.firsts, [2, 1], "no refused message took a number");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_several_parts_is_answered_as_its_first_try_though_all_of_one_part_was_too_large()
 {
    let cluster = Cluster::start(3, |_| {}).await;
    create_invoices(&mut cluster.client(1), |_| {}).await;
    let mut client = cluster.client(cluster.leader().await);
    for (request, large) in [("last", 1_024..1_100), ("first", 0..1_024)] {
        limit_invoices(&mut client, 5).await;
        let asked: Vec<(u64, u64)> =
            (0..1_100).map(|place| (place, if large.contains(&place) { 6 } else { 1 })).collect();
        let first = ask_many(&mut client, &asked, request).await;
        assert_eq!(first.failure, None);
        let refused: Vec<u32> = large.map(|place| place as u32).collect();
        assert_eq!(first.refused[0].places, refused);
        for limit in [10, 1, 5] {
            limit_invoices(&mut client, limit).await;
            let again = ask_many(&mut client, &asked, request).await;
            assert_eq!(again.failure, None, "count_max {limit}");
            assert_eq!(again.firsts, first.firsts, "count_max {limit}");
            assert_eq!(again.refused[0].places, refused, "count_max {limit}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_of_a_message_of_several_parts_is_refused_for_another_one_whichever_part_differs()
 {
    let cluster = cluster_with_invoices().await;
    let mut client = cluster.client(cluster.leader().await);
    let asked: Vec<(u64, u64)> = (0..1_100).map(|key| (key, 1)).collect();
    let first = ask_many(&mut client, &asked, "a").await;
    assert_eq!((first.failure, first.firsts), (None, vec![1; 1_100]));
    let with = |place: usize, other: (u64, u64)| {
        let mut asked = asked.clone();
        asked[place] = other;
        asked
    };
    let longer = [&asked[..], &[(0, 1)]].concat();
    let others = [
        with(0, (2_000, 1)),
        with(1_099, (2_000, 1)),
        with(1_099, (1_099, 2)),
        asked[..1_024].to_vec(),
        asked[..1_099].to_vec(),
        longer,
    ];
    for other in &others {
        let refused = ask_many(&mut client, other, "a").await.failure.expect("refused");
        let told = (refused.reason(), refused.outcome());
        assert_eq!(told, (Reason::RequestIdReused, Outcome::NotDone), "{refused:?}");
    }
    let next = ask_many(&mut client, &asked, "b").await;
    assert_eq!(next.firsts, [2; 1_100], "no refused message took a number");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_under_a_request_id_is_answered_after_the_nodes_count_max_was_lowered() {
    let mut cluster = Cluster::start(1, |config| config.count_max = 1_000).await;
    create_invoices(&mut cluster.client(1), |_| {}).await;
    let before = once(&mut cluster.client(1), INVOICE, 7, 900, "a").await.expect("numbers");
    cluster.crash(1).await;
    cluster.configs.get_mut(&1).expect("a node").count_max = 100;
    cluster.start_node(1).await;
    let mut client = cluster.client(1);
    client.next_at_last(1).await;
    let again = once(&mut client, INVOICE, 7, 900, "a").await.expect("what it took");
    assert_eq!((again.first, again.last), (before.first, before.last));
    let refused = once(&mut client, INVOICE, 7, 900, "b").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let refused = once(&mut client, INVOICE, 7, 0, "b").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let next = once(&mut client, INVOICE, 7, 100, "c").await.expect("numbers");
    assert_eq!(next.first, before.last + 1);
}

/// A node that remembers 2 MB of request ids, 1 MB for callers of one address, and has invoices whose keys are names.
async fn of_little_memory() -> (Cluster, Client) {
    let cluster = Cluster::start(1, |config| config.request_ids_max_mb = 2).await;
    let mut client = cluster.client(1);
    create_invoices(&mut client, |create| create.key_kind = KeyKind::Name.into()).await;
    (cluster, client)
}

/// The longest name of a key: the memory of it has 280 bytes.
fn long_name(number: usize) -> Bytes {
    format!("{number:0>256}").into()
}

/// The answer to a message with a request id, for a number of each of so many keys. Without a window the id is remembered as
/// long as the node is configured to.
async fn take_of_long_names(
    client: &mut Client, keys: usize, request: &str, retry_window_ms: Option<u64>,
) -> NextManyResponse {
    let message = NextManyRequest {
        namespace: INVOICE.to_owned(),
        names: (0..keys).map(long_name).collect(),
        request_id: Some(request.to_owned().into()),
        retry_window_ms,
        made_ms: retry_window_ms.map(|_| 0),
        ..NextManyRequest::default()
    };
    let answers = client.sequencer.next_many(tokio_stream::once(message));
    let answer = answers.await.expect("a stream").into_inner().message().await;
    answer.expect("an answer").expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_more_is_taken_under_request_ids_once_as_much_is_remembered_as_may_be() {
    let (_cluster, mut client) = of_little_memory().await;
    let mut asked = 0;
    let full = loop {
        let answer = take_of_long_names(&mut client, 1_000, &asked.to_string(), None).await;
        match answer.failure {
            None => asked += 1,
            Some(failure) => break failure,
        }
        assert!(asked < 10, "it is never full");
    };
    assert_eq!(asked, (1 << 20) / (1_000 * 280));
    assert_eq!(full.reason(), Reason::RequestIdsFull);
    assert!(full.retry_after_ms.is_some());
    for told in
        ["820 kB of request ids are remembered for callers of your address", "2 MB are for all"]
    {
        assert!(full.message.contains(told), "{}", full.message);
    }
    let without = client.try_next(INVOICE, name(&long_name(7)), 1).await.expect("a number");
    assert_eq!(without.first, asked as u64 + 1);
}

/// Its first part was taken: a caller that had to ask again would have that written once more.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_waits_for_room_for_the_request_id_of_its_second_part() {
    // Two parts. One message of them fits the memory, and two do not.
    const KEYS: usize = 2 * 1_024;
    let (cluster, mut client) = of_little_memory().await;
    let before = take_of_long_names(&mut client, KEYS, "before", Some(4_000)).await;
    assert_eq!((before.failure, before.firsts), (None, vec![1; KEYS]));
    let waited = take_of_long_names(&mut client, KEYS, "waits", None).await;
    assert_eq!((waited.failure, waited.firsts), (None, vec![2; KEYS]));
    let takes = cluster.nodes[&1].context().metrics.of_set(1).takes.get();
    assert!(takes < 6 * KEYS as u64, "{takes}: it was tried more often than once a second");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_is_forgotten_once_its_time_has_passed_and_not_before() {
    const KEEP: Duration = Duration::from_secs(1);
    let keep = KEEP.as_millis() as u64;
    let cluster = Cluster::start(1, |config| config.request_id_keep_ms = keep).await;
    let mut client = cluster.client(1);
    create_invoices(&mut client, |_| {}).await;
    let asked = std::time::Instant::now();
    let first = once(&mut client, INVOICE, 7, 1, "a").await.expect("a number");
    let forgotten = async {
        loop {
            let again = once(&mut client, INVOICE, 7, 1, "a").await;
            if again.expect("a number").first != first.first {
                return;
            }
        }
    };
    in_time("the id is forgotten", forgotten).await;
    // Time is counted in whole milliseconds.
    let kept = asked.elapsed() + Duration::from_millis(1);
    assert!(kept >= KEEP, "{kept:?}");
}

//! Gapless namespaces: every number is handed out, in order, through crashes and handovers. Request ids: one request is
//! answered once, however often it is sent.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use crate::common::{
    Client, PATIENCE,
    cluster::Cluster,
    disk::{Disk, Fsync},
    id, in_time, name, other_than, unhurried, until,
};
use ratchet::{
    allocator::{FenceKind, MemoryLimits, RequestIdLimits, Term, TermOptions},
    clock::BootClock,
    metrics::{Metrics, SkipCause},
    node::{Failure, KnownRoute, Next, Origin},
    proto::{
        reason_of,
        v1::{
            CreateNamespaceRequest, DeleteNamespaceRequest, KeyKind, NextManyRequest,
            NextManyResponse, NextRequest, NextResponse, Outcome, Reason, UpdateNamespaceRequest,
        },
    },
    sequence::{Key, OwnedKey},
};
use tokio::task::JoinSet;
use tonic::{Code, Status};
use tonic_types::StatusExt;

const INVOICE: &str = "invoice";

async fn create(client: &mut Client, change: impl FnOnce(&mut CreateNamespaceRequest)) {
    let mut create = CreateNamespaceRequest {
        name: INVOICE.to_owned(),
        gapless: true,
        request_id_optional: true,
        ..CreateNamespaceRequest::default()
    };
    change(&mut create);
    client.admin.create_namespace(create).await.expect("created");
}

async fn cluster_with_invoices() -> Cluster {
    let cluster = Cluster::start(3, |_| {}).await;
    create(&mut cluster.client(1), |_| {}).await;
    cluster
}

async fn once(
    client: &mut Client, namespace: &str, key: u64, count: u64, request: &str,
) -> Result<NextResponse, Status> {
    let mut message = tonic::Request::new(NextRequest {
        namespace: namespace.to_owned(),
        key: id(key),
        count: Some(count),
        request_id: Some(request.to_owned().into()),
        ..NextRequest::default()
    });
    message.set_timeout(Duration::from_secs(2));
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
                    assert!(
                        [Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled, Code::Unknown]
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
async fn every_node_hands_out_numbers_without_a_gap_and_any_kind_of_call_sees_them() {
    let cluster = cluster_with_invoices().await;
    let mut last = 0;
    for node in [1, 2, 3, 3, 2, 1] {
        let mut client = cluster.client(node);
        let range = client.try_next(INVOICE, id(7), 3).await.expect("numbers");
        assert_eq!((range.first, range.last), (last + 1, last + 3));
        let message = NextManyRequest {
            namespace: INVOICE.to_owned(),
            ids: vec![7, 8, 7],
            counts: vec![1, 2, 1],
            ..NextManyRequest::default()
        };
        let many = client.sequencer.next_many(tokio_stream::once(message));
        let many = many.await.expect("a stream").into_inner().message().await;
        let many = many.expect("an answer").expect("an answer");
        assert_eq!(many.failure, None);
        assert_eq!((many.firsts[0], many.firsts[2]), (last + 4, last + 5));
        last += 5;
        let current = client.current(INVOICE, id(7)).await;
        assert_eq!(current.expect("an answer"), Some(last));
    }
    let mut client = cluster.client(1);
    assert_eq!(client.current(INVOICE, id(9)).await.expect("an answer"), None);
    assert_eq!(client.current(INVOICE, id(8)).await.expect("an answer"), Some(12));
}

#[tokio::test(flavor = "multi_thread")]
async fn handovers_and_crashes_skip_nothing_and_have_nothing_to_give_back() {
    let mut cluster = cluster_with_invoices().await;
    let mut expected = 1;
    for round in 0..3 {
        let leader = cluster.leader().await;
        for _ in 0..5 {
            let mut client = cluster.client(other_than(leader));
            let range = client.try_next(INVOICE, id(7), 1).await.expect("a number");
            assert_eq!(range.first, expected);
            expected += 1;
        }
        match round {
            1 => {
                cluster.crash(leader).await;
                let other = other_than(leader);
                cluster.leader_seen_by(other, |seen| seen != leader).await;
                cluster.client(other).next_at_last(1).await;
                cluster.start_node(leader).await;
                cluster.all_answer().await;
            }
            _ => {
                let transferred = cluster.client(leader).transfer(None).await;
                transferred.expect("transferred");
            }
        }
        let term = cluster.nodes[&other_than(leader)].context();
        let section = term.group.view().namespaces();
        let invoice = section.by_name(INVOICE).expect("it was created");
        let record = term.group.view();
        let record = record.section(&invoice.section_of(ratchet::sequence::Key::Id(7)));
        let record = record.expect("a record");
        assert!(record.max_seq < expected, "{record:?}");
        assert_eq!((record.floor, record.step, record.unused_max), (record.max_seq, 0, 0));
    }
    let leader = cluster.leader().await;
    let range = cluster.client(leader).try_next(INVOICE, id(7), 1).await;
    assert_eq!(range.expect("a number").first, expected);
}

/// Its answer could be lost, and a second one would leave a gap.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_a_follower_that_takes_the_namespace_for_an_older_one_is_not_carried_out() {
    let cluster = Cluster::start(3, unhurried).await;
    let leader = cluster.leader().await;
    let follower = other_than(leader);
    let known = |node: u64| {
        let namespaces = cluster.nodes[&node].context().group.view().namespaces();
        namespaces.by_name(INVOICE).map(|known| (known.id, known.config.gapless))
    };
    let mut client = cluster.client(leader);
    create(&mut client, |create| {
        (create.gapless, create.request_id_optional) = (false, false);
    })
    .await;
    until("the follower knows it", || known(follower).is_some()).await;
    let older = known(follower).expect("just seen");
    // It learns nothing from here on, and forwards, until it would stand for election.
    cluster.links.cut(leader, cluster.configs[&follower].peer_listen.to_string());
    let delete = DeleteNamespaceRequest {
        name: INVOICE.to_owned(),
        confirm: INVOICE.to_owned(),
        ..DeleteNamespaceRequest::default()
    };
    client.admin.delete_namespace(delete).await.expect("deleted");
    create(&mut client, |_| {}).await;
    assert_eq!((known(follower), older.1), (Some(older), false));

    let next = Next {
        namespace: INVOICE.to_owned(),
        key: OwnedKey::Id(7),
        count: 1,
        id: None,
        known: KnownRoute::default(),
    };
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mistaken = Origin::Peer { namespace: Some(older.0) };
    let leading = cluster.nodes[&leader].context();
    let refused = leading.serve(next.clone(), mistaken, deadline).await;
    let Err(Failure::NotLeader(why)) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.other_namespace, "{why:?}");
    assert_eq!(client.current(INVOICE, id(7)).await.expect("an answer"), None);

    // The follower asks once more, and will not ask again then.
    let following = cluster.nodes[&follower].context();
    let (forwards, takes) = (following.metrics.forwards.get(), leading.metrics.takes.get());
    let served = following.serve(next, Origin::Client, deadline).await;
    assert_eq!(served.expect("a number").answer.first, 1);
    assert_eq!(following.metrics.forwards.get() - forwards, 2);
    assert_eq!(leading.metrics.takes.get() - takes, 1);
}

/// A second allocator of the leader's term stands in for the node's own, so that the test says when it is closed.
#[tokio::test(flavor = "multi_thread")]
async fn keys_whose_turn_comes_after_the_term_was_closed_take_nothing_and_the_others_leave_no_gap()
{
    // One more than are taken at once.
    const KEYS: usize = 1_025;
    let mut cluster = Cluster::configured(1, |_| {});
    let (disk, mut seams) = (Disk::default(), cluster.seams(1));
    seams.storage = disk.under(&seams.storage);
    cluster.start_node_with(1, seams).await;
    cluster.all_answer().await;
    create(&mut cluster.client(1), |_| {}).await;
    let node = cluster.nodes[&1].context();
    let lease = node.group.leadership().borrow().own.clone();
    let (lease, metrics) = (lease.expect("it leads"), Metrics::new());
    let options = TermOptions {
        fence: FenceKind::Lease,
        memory: MemoryLimits::default(),
        request_ids: RequestIdLimits { keep: Duration::from_secs(1), bytes_max: 1 },
    };
    let clock = Arc::new(BootClock);
    let term = Term::open(node.group.clone(), lease, 1, None, options, clock, metrics.clone());
    let invoices = node.group.view().namespaces().by_name(INVOICE).cloned();
    let invoices = invoices.expect("it was created");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let hanging = disk.hang_then(Fsync::Succeeds);
    let ask = |place: usize| (Key::Id(place as u64), 1);
    let mut taking = pin!(term.next_many_gapless(&invoices, KEYS, ask, None, deadline));
    assert!(futures::poll!(&mut taking).is_pending(), "its first keys wait for the disk");
    let mut closing = pin!(term.close());
    assert!(futures::poll!(&mut closing).is_pending(), "the call is inside");
    drop(hanging);
    let taken = in_time("an answer", taking).await.expect("numbers of the first keys");
    assert_eq!((taken.too_late, taken.firsts[KEYS - 1]), (1, 0));
    assert!(taken.firsts[..KEYS - 1].iter().all(|first| *first == 1), "{:?}", taken.firsts);
    in_time("the term is closed", closing).await.expect("closed");
    assert_eq!((metrics.numbers.get(), metrics.skipped(SkipCause::cancelled)), (1_024, 0));
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
                // Also when nothing failed, whichever node is asked.
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
        let leader = cluster.leader().await;
        cluster.crash(leader).await;
        let other = other_than(leader);
        cluster.leader_seen_by(other, |seen| seen != leader).await;
        cluster.client(other).next_at_last(1).await;
        cluster.start_node(leader).await;
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
async fn a_request_id_is_refused_where_it_means_nothing_and_asked_for_where_a_retry_could_leave_a_gap()
 {
    let cluster = Cluster::start(3, |_| {}).await;
    create(&mut cluster.client(1), |create| create.request_id_optional = false).await;
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
        name: INVOICE.to_owned(),
        request_id_optional: Some(true),
        ..UpdateNamespaceRequest::default()
    };
    let updated = client.admin.update_namespace(allow).await.expect("updated").into_inner();
    assert!(updated.request_id_optional);
    let first = client.try_next(INVOICE, id(7), 1).await.expect("a number");
    assert_eq!(first.first, 1, "nothing was taken before");
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
        retry_window_ms: request.map(|_| 10_000),
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

#[tokio::test(flavor = "multi_thread")]
async fn nothing_more_is_taken_under_request_ids_once_as_much_is_remembered_as_may_be() {
    let cluster = Cluster::start(1, |config| config.request_ids_max_mb = 1).await;
    let mut client = cluster.client(1);
    create(&mut client, |create| create.key_kind = KeyKind::Name.into()).await;
    let key = |number: usize| format!("{number:0>256}").into_bytes();
    let mut asked = 0;
    let full = loop {
        let message = NextManyRequest {
            namespace: INVOICE.to_owned(),
            names: (0..1_000).map(|key_number| key(key_number).into()).collect(),
            request_id: Some(format!("{asked}").into()),
            ..NextManyRequest::default()
        };
        let answers = client.sequencer.next_many(tokio_stream::once(message));
        let answer = answers.await.expect("a stream").into_inner().message().await;
        match answer.expect("an answer").expect("an answer").failure {
            None => asked += 1,
            Some(failure) => break failure,
        }
        assert!(asked < 10, "it is never full");
    };
    // 1 000 names of 256 bytes each, and 24 more.
    assert_eq!(asked, (1 << 20) / (1_000 * 280));
    assert_eq!(full.reason(), Reason::RequestIdsFull);
    assert!(full.retry_after_ms.is_some());
    assert!(full.message.contains("1 MB of request ids are remembered"), "{}", full.message);
    let without = client.try_next(INVOICE, name(&key(7)), 1).await.expect("a number");
    assert_eq!(without.first, asked as u64 + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_is_forgotten_once_its_time_has_passed_and_not_before() {
    const KEEP: Duration = Duration::from_secs(1);
    let keep = KEEP.as_millis() as u64;
    let cluster = Cluster::start(1, |config| config.request_id_keep_ms = keep).await;
    let mut client = cluster.client(1);
    create(&mut client, |_| {}).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_gapless_namespace_is_refused_shared_sections_and_bounds_and_ends_at_its_max() {
    let cluster = Cluster::start(1, |_| {}).await;
    let mut client = cluster.client(1);
    type Change = fn(&mut CreateNamespaceRequest);
    let refused: [(Change, &str); 3] = [
        (|c| c.section_size = Some(2), "section_size is 2, but a gapless namespace"),
        (|c| c.step_min = Some(3), "step_min is 3, but a gapless namespace"),
        (|c| c.step_max = Some(20_000), "step_max is 20000, but a gapless namespace"),
    ];
    for (change, why) in refused {
        let mut create = CreateNamespaceRequest {
            name: INVOICE.to_owned(),
            gapless: true,
            ..CreateNamespaceRequest::default()
        };
        change(&mut create);
        let refused = client.admin.create_namespace(create).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(why), "{refused}");
    }
    create(&mut client, |create| {
        create.key_kind = KeyKind::Name.into();
        (create.start, create.increment, create.max) = (Some(100), Some(10), Some(139));
    })
    .await;
    let range = client.try_next(INVOICE, name(b"a"), 3).await.expect("numbers");
    assert_eq!((range.first, range.last, range.increment), (100, 120, 10));
    let refused = client.try_next(INVOICE, name(b"a"), 2).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange);
    assert!(refused.message().contains("only 1 numbers are left"), "{refused}");
    let last = client.try_next(INVOICE, name(b"a"), 1).await.expect("a number");
    assert_eq!(last.first, 130);
    let other = client.try_next(INVOICE, name(b"b"), 1).await.expect("a number");
    assert_eq!(other.first, 100);
}

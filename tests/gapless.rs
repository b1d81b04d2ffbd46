//! Gapless namespaces: every number is handed out, in order, through crashes and handovers.

use std::{pin::pin, sync::Arc, time::Duration};

use crate::common::{
    PATIENCE,
    cluster::Cluster,
    disk::{Disk, Fsync},
    eventually, id, in_time,
    invoices::{INVOICE, cluster_with_invoices, create_invoices},
    name, other_than, others, until,
};
use futures::{StreamExt, stream::FuturesUnordered};
use ratchet::{
    allocator::{
        FenceKind, GaplessLimits, MemoryLimits, RefusedPlaces, Term, TermOptions, Unserved, Why,
    },
    clock::BootClock,
    metrics::{Metrics, SkipCause},
    node::{Asker, CheckedRequest, Origin, Unanswered},
    proto::v1::{
        CreateNamespaceRequest, DeleteNamespaceRequest, KeyKind, NextManyRequest, NextRequest,
        Outcome,
    },
    sequence::{Key, Namespace},
};
use tonic::Code;

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
async fn handovers_and_crashes_skip_nothing_and_have_nothing_to_return() {
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
                cluster.crash_leader_for_a_while().await;
                cluster.all_answer().await;
            }
            _ => {
                let transferred = cluster.client(leader).transfer(None).await;
                transferred.expect("transferred");
            }
        }
        let term = cluster.nodes[&other_than(leader)].context();
        let section = term.group.view.namespaces();
        let invoice = section.by_name(INVOICE).expect("it was created");
        let record = &term.group.view;
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
    // Nobody stands for election while this goes on, however busy the machine is.
    let cluster = Cluster::start(3, |config| {
        (config.election_timeout_ms, config.lease_ms) = (15_000, 12_000);
    })
    .await;
    let leader = cluster.leader().await;
    let follower = other_than(leader);
    let known = |node: u64| {
        let namespaces = cluster.nodes[&node].context().group.view.namespaces();
        namespaces.by_name(INVOICE).map(|known| (known.id, known.config.gapless))
    };
    let mut client = cluster.client(leader);
    create_invoices(&mut client, |create| {
        (create.gapless, create.request_id_optional) = (false, false);
    })
    .await;
    until("the follower knows it", || known(follower).is_some()).await;
    let older = known(follower).expect("just seen");
    // It learns nothing from here on, and forwards.
    cluster.links.cut(leader, cluster.configs[&follower].peer_listen.to_string());
    let delete = DeleteNamespaceRequest {
        namespace: INVOICE.to_owned(),
        confirm: INVOICE.to_owned(),
        ..DeleteNamespaceRequest::default()
    };
    client.admin.delete_namespace(delete).await.expect("deleted");
    create_invoices(&mut client, |_| {}).await;
    assert_eq!((known(follower), older.1), (Some(older), false));

    let next = NextRequest { namespace: INVOICE.to_owned(), key: id(7), ..NextRequest::default() };
    let next = CheckedRequest::new(next, Asker::node(1)).expect("a request");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mistaken = Origin::Peer { namespace: Some(older.0), again: false };
    let leading = cluster.nodes[&leader].context();
    let refused = leading.numbers.serve(&next, mistaken, deadline).await;
    assert!(matches!(refused, Err(Unanswered::Mistaken)), "{refused:?}");
    assert_eq!(client.current(INVOICE, id(7)).await.expect("an answer"), None);

    // The follower asks once more, and will not ask again then.
    let following = cluster.nodes[&follower].context();
    let (forwards, takes) =
        (following.metrics.forwards.get(), leading.metrics.of_set(1).takes.get());
    let served = following.numbers.serve(&next, Origin::Client, deadline).await;
    assert_eq!(served.expect("a number").first, 1);
    assert_eq!(following.metrics.forwards.get() - forwards, 2);
    assert_eq!(leading.metrics.of_set(1).takes.get() - takes, 1);

    // Now the leader reaches no node that could store its entry. That the id means nothing in the older namespace is no
    // answer.
    let third = others(leader).into_iter().find(|node| *node != follower).expect("a third node");
    cluster.links.cut(leader, cluster.configs[&third].peer_listen.to_string());
    let with_id = NextRequest {
        namespace: INVOICE.to_owned(),
        key: id(7),
        request_id: Some("a".into()),
        ..NextRequest::default()
    };
    let with_id = CheckedRequest::new(with_id, Asker::node(1)).expect("a request");
    // On a busy machine its time may be over before the leader is asked.
    eventually("a call of which nobody knows whether it is done", async || {
        let deadline = tokio::time::Instant::now() + Duration::from_millis(1_500);
        let lost = following.numbers.serve(&with_id, Origin::Client, deadline).await;
        let Err(Unanswered::Refused(lost)) = lost else {
            panic!("{lost:?}");
        };
        (lost.outcome() == Outcome::Unknown).then_some(())
    })
    .await;
}

/// A node on a disk that hangs on demand, and a second allocator of its term, which stands in for the node's own so that a
/// test says when it is closed.
struct Closable {
    _cluster: Cluster,
    disk: Disk,
    term: Term,
    metrics: Arc<Metrics>,
    invoices: Namespace,
}

impl Closable {
    async fn start() -> Closable {
        let mut cluster = Cluster::configured(1, |_| {});
        let (disk, mut seams) = (Disk::default(), cluster.seams(1));
        seams.storage = disk.under(&seams.storage);
        cluster.start_node_with(1, seams).await;
        cluster.all_answer().await;
        create_invoices(&mut cluster.client(1), |_| {}).await;
        let node = cluster.nodes[&1].context();
        let lease = node.group.leadership().borrow().own.clone();
        let (lease, metrics) = (lease.expect("it leads"), Metrics::new());
        let options = TermOptions {
            fence: FenceKind::Lease,
            memory: MemoryLimits::default(),
            gapless: GaplessLimits { keep: Duration::from_secs(1), bytes_max: 1, count_max: 1_000 },
        };
        let clock = Arc::new(BootClock);
        let term = Term::open(node.group.clone(), lease, 1, None, options, clock, metrics.clone());
        let invoices = node.group.view.namespaces().by_name(INVOICE).cloned();
        let invoices = invoices.expect("it was created");
        Closable { _cluster: cluster, disk, term, metrics, invoices }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_that_is_closed_waits_for_the_entries_under_way_and_for_no_call_behind_them() {
    // Of calls that have as many keys as an entry needs to go beside others, at most 16 are in the four entries.
    const CALLS: usize = 24;
    const KEYS: usize = 1_024;
    let Closable { _cluster, disk, term, metrics, invoices } = Closable::start().await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let hanging = disk.hang_then(Fsync::Succeeds);
    let call = |call: usize| {
        let ask = move |place: usize| (Key::Id((call * KEYS + place) as u64), 1);
        let (term, invoices) = (&term, &invoices);
        async move { term.next_many_gapless(invoices, KEYS, ask, None, deadline).await }
    };
    let mut calls: FuturesUnordered<_> = (0..CALLS).map(call).collect();
    assert!(futures::poll!(calls.next()).is_pending(), "the disk hangs");
    until("an entry is on its way to the disk", || disk.hanging() > 0).await;
    let mut closing = pin!(term.close());
    assert!(futures::poll!(&mut closing).is_pending(), "the calls are inside");
    for _ in 0..CALLS - 16 {
        let refused = in_time("an answer before the disk's", calls.next()).await;
        let refused = refused.expect("a call").expect_err("it took nothing");
        let Unserved { why, may_be_done } = refused;
        assert_eq!((why, may_be_done), (Why::AskLeader, 0));
    }
    drop(hanging);
    in_time("the term is closed", async {
        let (closed, rest) = tokio::join!(closing, calls.collect::<Vec<_>>());
        closed.expect("closed");
        let taken = rest.iter().filter(|taken| taken.is_ok()).count();
        assert!(taken > 0);
        assert_eq!(
            metrics.of_set(1).takes.get(),
            (taken * KEYS) as u64,
            "each that was taken is answered"
        );
    })
    .await;
    assert_eq!(metrics.skipped(SkipCause::cancelled), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_whose_turn_comes_after_the_term_was_closed_take_nothing_and_the_others_leave_no_gap()
{
    // One more than are taken at once.
    const KEYS: usize = 1_025;
    let Closable { _cluster, disk, term, metrics, invoices } = Closable::start().await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let hanging = disk.hang_then(Fsync::Succeeds);
    let ask = |place: usize| (Key::Id(place as u64), 1);
    let mut taking = pin!(term.next_many_gapless(&invoices, KEYS, ask, None, deadline));
    assert!(futures::poll!(&mut taking).is_pending(), "its first keys wait for the disk");
    until("their entry is on its way to the disk", || disk.hanging() > 0).await;
    let mut closing = pin!(term.close());
    assert!(futures::poll!(&mut closing).is_pending(), "the call is inside");
    drop(hanging);
    let taken = in_time("an answer", taking).await.expect("numbers of the first keys");
    let late = RefusedPlaces { why: Why::LeftToNextLeader, places: vec![(KEYS - 1, 0)] };
    assert_eq!((&taken.refused[..], taken.firsts[KEYS - 1]), (&[late][..], 0));
    assert!(taken.firsts[..KEYS - 1].iter().all(|first| *first == 1), "{:?}", taken.firsts);
    in_time("the term is closed", closing).await.expect("closed");
    assert_eq!((metrics.numbers.get(), metrics.skipped(SkipCause::cancelled)), (1_024, 0));
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
    create_invoices(&mut client, |create| {
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

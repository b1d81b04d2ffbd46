//! A handover waits for no call that waits for the disk, and skips nothing of the keys in use.

use std::collections::BTreeMap;

use crate::common::{
    PATIENCE,
    cluster::Cluster,
    disk::{HangingReads, Reads},
    id, in_time, other_than, until,
};
use futures::future::join_all;
use ratchet::{
    allocator::WAITING_KEY_BYTES,
    metrics::{HandoverEnd, HandoverPhase, SkipCause},
    node::{Asker, CheckedRequest, Node, Origin, SequenceRequest},
    proto::v1::{CurrentManyRequest, NextManyRequest, RaiseRequest},
};
use tokio::{task::JoinHandle, time::Instant};

/// How many reads of records a node has under way at most.
const READS_MAX: usize = 16;

/// A cluster in use, whose leader's reads of records hang from now on.
struct Slow {
    cluster: Cluster,
    leader: u64,
    reads: Reads,
    /// Lets the reads go when it is dropped.
    _hanging: HangingReads,
}

impl Slow {
    /// Number 1 of book 7 is handed out.
    async fn start() -> Slow {
        let mut cluster = Cluster::configured(3, |_| {});
        let mut disks = BTreeMap::new();
        for id in 1..=3 {
            let (reads, mut seams) = (Reads::default(), cluster.seams(id));
            seams.storage = reads.under(&seams.storage);
            cluster.start_node_with(id, seams).await;
            disks.insert(id, reads);
        }
        cluster.all_answer().await;
        let leader = cluster.leader().await;
        assert_eq!(cluster.client(leader).next(7).await.expect("a number"), 1);
        let reads = disks.remove(&leader).expect("its disk");
        Slow { cluster, leader, _hanging: reads.hang(), reads }
    }

    fn node(&self) -> &Node {
        &self.cluster.nodes[&self.leader]
    }

    /// Asks the leader.
    fn ask<Q: SequenceRequest + 'static>(&self, request: Q) -> JoinHandle<Q::Answer> {
        self.ask_at(self.leader, request)
    }

    /// Asks a node.
    fn ask_at<Q: SequenceRequest + 'static>(&self, node: u64, request: Q) -> JoinHandle<Q::Answer> {
        let node = self.cluster.nodes[&node].context().clone();
        let deadline = Instant::now() + PATIENCE;
        tokio::spawn(async move {
            let asked = CheckedRequest::new(request, Asker::node(1)).expect("a request");
            let answered = node.numbers.serve(&asked, Origin::Client, deadline).await;
            answered.expect("an answer, from the next leader")
        })
    }

    /// Waits until so many reads hang.
    async fn hanging(&self, reads: usize) {
        until("the calls read", || self.reads.hanging() >= reads).await;
    }

    /// Hands over, which leaves the memory to the successor.
    async fn transfer(&self) {
        let successor = other_than(self.leader);
        let transferred = self.cluster.client(self.leader).transfer(successor).await;
        assert_eq!(transferred.expect("a transfer").leader, successor);
        let metrics = &self.node().context().metrics;
        let closing = metrics.of_set(1).handover_seconds.of(HandoverPhase::close).get();
        println!("the calls left within {closing} s");
        assert_eq!(metrics.of_set(1).handovers.get(HandoverEnd::memory), 1, "{closing} s");
    }

    /// How many numbers were skipped, on all nodes.
    fn skipped(&self, cause: SkipCause) -> u64 {
        let nodes = self.cluster.nodes.values();
        nodes.map(|node| node.context().metrics.skipped(cause)).sum()
    }

    fn assert_nothing_is_skipped(&self) {
        for cause in [SkipCause::leader_change, SkipCause::fence, SkipCause::cancelled] {
            assert_eq!(self.skipped(cause), 0, "{cause:?}");
        }
    }

    /// The next number of book 7.
    async fn next(&self) -> u64 {
        self.cluster.client(self.leader).next_at_last(7).await
    }
}

/// So many new books from `first` on.
fn cold(first: u64, books: u64) -> Vec<u64> {
    (first..first + books).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_beside_fifty_calls_that_read_many_records_waits_for_none_and_skips_nothing() {
    const CALLS: u64 = 50;
    const BOOKS: u64 = 2_048;
    let slow = Slow::start().await;
    let calls = (0..CALLS).map(|call| {
        slow.ask(CurrentManyRequest {
            namespace: "book".into(),
            ids: cold(1_000 + call * BOOKS, BOOKS),
            ..CurrentManyRequest::default()
        })
    });
    let calls: Vec<_> = calls.collect();
    slow.hanging(READS_MAX).await;
    slow.transfer().await;
    for answer in in_time("the answers", join_all(calls)).await {
        assert_eq!(answer.expect("a caller").last, vec![0; BOOKS as usize]);
    }
    assert_eq!(slow.next().await, 2);
    slow.assert_nothing_is_skipped();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_beside_first_touches_waits_for_none_and_skips_nothing() {
    // They are taken in three slices.
    const BOOKS: u64 = 3_000;
    let slow = Slow::start().await;
    let next = slow.ask(next_many(cold(1_000, BOOKS), vec![]));
    let raise = slow.ask(RaiseRequest {
        namespace: "book".into(),
        key: id(100),
        at_least: 50,
        ..RaiseRequest::default()
    });
    slow.hanging(1).await;
    slow.transfer().await;
    let ranges = in_time("numbers", next).await.expect("a caller");
    assert_eq!(ranges.firsts, vec![1; BOOKS as usize]);
    assert_eq!(in_time("a floor", raise).await.expect("a caller").floor, 50);
    assert_eq!(slow.next().await, 2);
    slow.assert_nothing_is_skipped();
}

/// A request for numbers of books, as many of each as `counts` says.
fn next_many(ids: Vec<u64>, counts: Vec<u64>) -> NextManyRequest {
    NextManyRequest { namespace: "book".into(), ids, counts, ..NextManyRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_call_has_when_its_term_is_closed_is_answered_and_the_next_leader_gives_the_rest() {
    let slow = Slow::start().await;
    // Book 7 has numbers in memory, and book 100 none.
    let next = slow.ask(next_many(vec![7, 100], vec![5, 1]));
    slow.hanging(1).await;
    slow.transfer().await;
    assert_eq!(in_time("numbers", next).await.expect("a caller").firsts, [2, 1]);
    assert_eq!(slow.next().await, 7);
    slow.assert_nothing_is_skipped();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_brought_to_a_key_of_a_message_while_it_waited_for_another_is_not_skipped() {
    const MORE_THAN_A_STEP: u64 = 20_000;
    let slow = Slow::start().await;
    let metrics = &slow.node().context().metrics;
    let bumps = metrics.of_set(1).bumps.get();
    // A bump brings the numbers of book 7 while the record of book 100 is read.
    let next = slow.ask(next_many(vec![100, 7], vec![1, MORE_THAN_A_STEP]));
    slow.hanging(1).await;
    until("the bump is answered", || metrics.of_set(1).bumps.get() > bumps).await;
    slow.transfer().await;
    assert_eq!(in_time("numbers", next).await.expect("a caller").firsts, [1, 2]);
    assert_eq!(slow.next().await, 2 + MORE_THAN_A_STEP);
    slow.assert_nothing_is_skipped();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_beside_many_messages_that_wait_skips_nothing_of_any_of_them() {
    const CALLS: u64 = 20;
    const COLD: u64 = 2_000;
    let slow = Slow::start().await;
    let calls = (0..CALLS).map(|call| {
        let first = 1_000 + call * COLD;
        let mut books: Vec<u64> = (first..first + COLD).collect();
        // Book 7 is in the second slice.
        books.push(7);
        // Every other one comes by way of a follower.
        let asked = [slow.leader, other_than(slow.leader)][call as usize % 2];
        slow.ask_at(asked, next_many(books, vec![]))
    });
    let calls: Vec<_> = calls.collect();
    let metrics = &slow.node().context().metrics;
    let all_wait = (CALLS * COLD) as i64 * WAITING_KEY_BYTES as i64;
    until("the cold keys wait", || metrics.request_bytes.get() >= all_wait).await;
    slow.transfer().await;
    let mut of_book_7 = Vec::new();
    for answer in in_time("numbers", join_all(calls)).await {
        let mut firsts = answer.expect("a caller").firsts;
        of_book_7.extend(firsts.pop());
        assert_eq!(firsts, vec![1; COLD as usize]);
    }
    of_book_7.sort_unstable();
    assert_eq!(of_book_7, (2..2 + CALLS).collect::<Vec<_>>());
    assert_eq!(slow.next().await, 2 + CALLS);
    slow.assert_nothing_is_skipped();
}

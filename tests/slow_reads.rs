//! A handover waits for no call that waits for the disk, and skips nothing of the keys in use.

use std::collections::BTreeMap;

use crate::common::{
    PATIENCE,
    cluster::Cluster,
    disk::{HangingReads, Reads},
    in_time, other_than, until,
};
use futures::future::join_all;
use ratchet::{
    metrics::{HandoverEnd, HandoverPhase, SkipCause},
    node::{
        CurrentMany, Keys, KnownRoute, LastNumbers, NextMany, Node, Origin, Raise, SequenceRequest,
    },
    sequence::OwnedKey,
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
        let node = self.node().context().clone();
        let deadline = Instant::now() + PATIENCE;
        tokio::spawn(async move {
            let answered = node.serve(request, Origin::Client, deadline).await;
            answered.expect("an answer, from the next leader").answer
        })
    }

    /// Waits until so many reads hang.
    async fn hanging(&self, reads: usize) {
        until("the calls read", || self.reads.hanging() >= reads).await;
    }

    /// Hands over, which leaves the memory to the successor.
    async fn transfer(&self) {
        let heir = other_than(self.leader);
        let transferred = self.cluster.client(self.leader).transfer(heir).await;
        assert_eq!(transferred.expect("a transfer").leader, heir);
        let metrics = &self.node().context().metrics;
        let closing = metrics.handover_seconds.of(HandoverPhase::close).get();
        println!("the calls left within {closing} s");
        assert_eq!(metrics.handovers.get(HandoverEnd::memory), 1, "{closing} s");
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
fn cold(first: u64, books: u64) -> Keys {
    Keys::Ids((first..first + books).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_beside_fifty_calls_that_read_many_records_waits_for_none_and_skips_nothing() {
    const CALLS: u64 = 50;
    const BOOKS: u64 = 2_048;
    let slow = Slow::start().await;
    let calls = (0..CALLS).map(|call| {
        let books = cold(1_000 + call * BOOKS, BOOKS);
        let current = CurrentMany::new("book".into(), books, KnownRoute::default());
        slow.ask(current.expect("a request"))
    });
    let calls: Vec<_> = calls.collect();
    slow.hanging(READS_MAX).await;
    slow.transfer().await;
    for answer in in_time("the answers", join_all(calls)).await {
        assert_eq!(answer.expect("a caller"), LastNumbers(vec![0; BOOKS as usize]));
    }
    assert_eq!(slow.next().await, 2);
    slow.assert_nothing_is_skipped();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_beside_first_touches_waits_for_none_and_skips_nothing() {
    // They are taken in three slices.
    const BOOKS: u64 = 3_000;
    let slow = Slow::start().await;
    let next =
        NextMany::new("book".into(), cold(1_000, BOOKS), vec![], None, KnownRoute::default());
    let next = slow.ask(next.expect("a request"));
    let raise = slow.ask(Raise {
        namespace: "book".into(),
        key: OwnedKey::Id(100),
        at_least: 50,
        known: KnownRoute::default(),
    });
    slow.hanging(1).await;
    slow.transfer().await;
    let ranges = in_time("numbers", next).await.expect("a caller");
    assert_eq!(ranges.firsts, vec![1; BOOKS as usize]);
    assert_eq!(in_time("a floor", raise).await.expect("a caller").floor, 50);
    assert_eq!(slow.next().await, 2);
    slow.assert_nothing_is_skipped();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_call_had_taken_that_leaves_a_closed_term_is_skipped_and_counted() {
    let slow = Slow::start().await;
    let books = Keys::Ids(vec![7, 100]);
    let next = NextMany::new("book".into(), books, vec![5, 1], None, KnownRoute::default());
    let next = slow.ask(next.expect("a request"));
    slow.hanging(1).await;
    slow.transfer().await;
    let ranges = in_time("numbers", next).await.expect("a caller");
    // Book 7 gave 2 to 6 in the term before.
    assert_eq!(ranges.firsts, [7, 1]);
    assert_eq!(slow.skipped(SkipCause::fence), 5);
    assert_eq!(slow.skipped(SkipCause::cancelled) + slow.skipped(SkipCause::leader_change), 0);
    assert_eq!(slow.next().await, 12);
}

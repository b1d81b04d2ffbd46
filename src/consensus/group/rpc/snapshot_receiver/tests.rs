//! Snapshots that arrive at a follower in orders that networks and slow disks can cause.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;
use openraft::{EntryPayload, Membership, entry::RaftEntry, vote::RaftLeaderId};
use openraft::{storage::RaftStateMachine, type_config::async_runtime::watch::WatchReceiver};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::*;
use crate::{
    clock::{BootClock, Clock},
    consensus::{
        Destination, Group, GroupConfig, NodeBudget, RaftRpc, StateMachine, ThisNode, Transport,
    },
    metrics::Metrics,
    proto::{Code, Refusal, peer::*},
    sequence::{ClusterId, Command},
    storage::{Entry, Member, Store, StoreOptions, codec},
    tasks::Tasks,
};

const LEADER: u64 = 1;

fn log_id(index: u64) -> LogId {
    LogId::new(Vote::new(1, LEADER).leader_id.to_committed(), index)
}

fn vote() -> Vote {
    Vote::new_committed(1, LEADER)
}

/// The log that the leader has, up to `last`.
fn entries(last: u64) -> Vec<Entry> {
    let members = Membership::<u64, Member>::new_with_defaults(vec![BTreeSet::from([1, 2])], []);
    let founding = Entry::new(log_id(0), EntryPayload::Membership(members));
    let rest = (1..=last).map(|index| Entry::new(log_id(index), EntryPayload::Blank));
    [founding].into_iter().chain(rest).collect()
}

/// As [`entries`], and the first entry after the founding one names the cluster.
fn naming(cluster: u8, last: u64) -> Vec<Entry> {
    let mut log = entries(last);
    let name = Command::NameCluster(ClusterId::from_random([cluster; 16]));
    log[1] = Entry::new(log_id(1), EntryPayload::Normal(name));
    log
}

fn store(dir: &Path) -> Arc<Store> {
    let clock: Arc<dyn Clock> = Arc::new(BootClock);
    Store::open(dir, "test", 2, StoreOptions::new(clock)).unwrap()
}

/// Nobody is reached over it.
struct NoNetwork;

fn nobody<T>() -> Result<T, Refusal> {
    Err(refusal!(NoLeader, "nobody is there"))
}

#[async_trait]
impl Transport for NoNetwork {
    async fn raft(
        &self, _: Destination<'_>, _: RaftRpc, _: RaftMessage, _: Duration,
    ) -> Result<RaftReply, Refusal> {
        nobody()
    }

    async fn install_snapshot(
        &self, _: Destination<'_>, _: BoxStream<'static, SnapshotPart>,
    ) -> Result<RaftReply, Refusal> {
        nobody()
    }

    async fn send_memory(
        &self, _: Destination<'_>, _: BoxStream<'static, MemoryPart>,
    ) -> Result<MemoryReply, Refusal> {
        nobody()
    }

    async fn hello(
        &self, _: Destination<'_>, _: HelloRequest, _: Duration,
    ) -> Result<HelloResponse, Refusal> {
        nobody()
    }

    async fn forward(
        &self, _: Destination<'_>, _: BoxStream<'static, ForwardRequests>,
    ) -> Result<BoxStream<'static, Result<ForwardReplies, Refusal>>, Refusal> {
        nobody()
    }

    async fn administer(
        &self, _: Destination<'_>, _: AdministerRequest, _: Duration,
    ) -> Result<AdministerReply, Refusal> {
        nobody()
    }
}

/// A follower that hears only from the test. Its election timeout is longer than the test.
async fn follower(dir: &Path) -> Arc<RpcHandler> {
    let config = GroupConfig {
        set: 1,
        heartbeat_ms: 50,
        election_timeout_ms: 60_000,
        lease_ms: 200,
        log_hold_times: 8,
    };
    let transport = Arc::new(NoNetwork);
    let clock = Arc::new(BootClock);
    let (tasks, budget) = (Tasks::default(), NodeBudget::of_a_test());
    let this_node = ThisNode::new("test".to_owned(), 2, store(dir), tasks, budget);
    let started = Group::start(config, this_node, transport, clock, &Metrics::new()).await;
    Arc::new(RpcHandler::new(started.unwrap()))
}

/// The header of a message from the leader.
fn header(group: &Group) -> Header {
    Header {
        cluster: "test".to_owned(),
        set: 1,
        from: LEADER,
        to: group.node(),
        to_incarnation: group.this_node.store.incarnation(),
        from_incarnation: 7,
        election_timeout_ms: group.config.election_timeout_ms,
    }
}

async fn append(handler: &Arc<RpcHandler>, prev: Option<u64>, entries: Vec<Entry>, commit: u64) {
    let request = AppendEntriesRequest::<Types> {
        vote: vote(),
        prev_log_id: prev.map(log_id),
        entries,
        leader_commit: Some(log_id(commit)),
    };
    let message = RaftMessage {
        header: Some(header(&handler.group)),
        payload: codec::encode(&request).unwrap().into(),
        ..RaftMessage::default()
    };
    handler.handle(RaftRpc::Append, message, ()).await.unwrap();
}

/// Sends the follower a snapshot of the leader's table as of `last`.
async fn send_snapshot(handler: Arc<RpcHandler>, last: u64) -> Result<Vec<u8>, Refusal> {
    let arrived = arrived_snapshot(&handler, entries(last)).await?;
    handler.install_snapshot(arrived).await
}

/// A snapshot of the leader's table after the entries of `log`, which has arrived at the follower.
async fn arrived_snapshot(
    handler: &RpcHandler, log: Vec<Entry>,
) -> Result<ArrivingSnapshot, Refusal> {
    let dir = TempDir::new().unwrap();
    let store = store(dir.path());
    let mut leader = StateMachine::open(&store, 1).unwrap();
    let log = log.into_iter().map(|entry| Ok((entry, None)));
    leader.apply(futures::stream::iter(log)).await.unwrap();
    let snapshot = leader.get_current_snapshot().await.unwrap().unwrap();
    let SnapshotData::Outgoing(mut parts) = snapshot.snapshot else {
        panic!("the leader's own snapshot is outgoing");
    };
    let first = SnapshotPart {
        header: Some(header(&handler.group)),
        payload: codec::encode(&(vote(), snapshot.meta)).unwrap().into(),
    };
    let mut arriving = handler.begin_snapshot(&first).await?.expect("it leads");
    while let Some(part) = parts.next_part().await {
        arriving = handler.write_snapshot_part(arriving, part.unwrap().into()).await?;
    }
    Ok(arriving)
}

/// Waits until Raft knows that everything up to `index` is committed.
async fn committed(group: &Group, index: u64) {
    loop {
        let now = group.raft.with_raft_state(|state| state.local_committed().copied());
        if now.await.unwrap() == Some(log_id(index)) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn applied(group: &Group, index: u64) {
    let mut metrics = group.raft.metrics();
    let there = metrics.wait_until(|seen| seen.last_applied == Some(log_id(index)));
    let there = tokio::time::timeout(Duration::from_secs(300), there).await;
    assert!(matches!(there, Ok(Ok(_))), "{index} was not applied");
    assert_eq!(*group.stopped().borrow(), None);
}

/// If a follower's answers were lost, the leader does not know how far its log reaches.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_ends_before_the_log_does_not_make_raft_panic() {
    let dir = TempDir::new().unwrap();
    let handler = follower(dir.path()).await;
    let group = &handler.group;
    append(&handler, None, entries(300), 100).await;
    applied(group, 100).await;
    send_snapshot(handler.clone(), 200).await.unwrap();
    applied(group, 200).await;
    append(&handler, Some(300), vec![], 250).await;
    applied(group, 250).await;
    send_snapshot(handler.clone(), 400).await.unwrap();
    applied(group, 400).await;
    group.stop().await;
}

/// A leader may send another snapshot if the answer to the first one does not come.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_arrives_while_another_is_being_installed_is_installed_after_it() {
    let dir = TempDir::new().unwrap();
    let handler = follower(dir.path()).await;
    let group = &handler.group;
    append(&handler, None, entries(300), 100).await;
    applied(group, 100).await;
    // The state machine is busy until `go`, so that installing waits.
    let (go, wait) = oneshot::channel::<()>();
    let busy = group.raft.clone();
    let busy = tokio::spawn(async move {
        busy.with_state_machine(|_| Box::pin(async { wait.await.unwrap() })).await
    });
    let first = tokio::spawn(send_snapshot(handler.clone(), 400));
    committed(group, 400).await;
    let second = tokio::spawn(send_snapshot(handler.clone(), 500));
    // Long enough for Raft to have the second one as well.
    tokio::time::sleep(Duration::from_millis(200)).await;
    go.send(()).unwrap();
    busy.await.unwrap().unwrap();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    applied(group, 500).await;
    group.stop().await;
}

/// Only a node that is confused, or lies, sends one.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_another_cluster_is_refused_and_the_follower_goes_on() {
    let dir = TempDir::new().unwrap();
    let handler = follower(dir.path()).await;
    let group = &handler.group;
    append(&handler, None, naming(7, 100), 100).await;
    applied(group, 100).await;
    let own = group.view.cluster_id();
    assert!(own.is_some());
    let other = arrived_snapshot(&handler, naming(8, 200)).await.unwrap();
    let refused = handler.install_snapshot(other).await.expect_err("of another cluster");
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    append(&handler, Some(100), vec![], 100).await;
    applied(group, 100).await;
    let next = arrived_snapshot(&handler, naming(7, 300)).await.unwrap();
    handler.install_snapshot(next).await.unwrap();
    applied(group, 300).await;
    assert_eq!(group.view.cluster_id(), own);
    group.stop().await;
}

/// Its cluster would not know the node any more, though the node has acknowledged its messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_a_message_of_a_cluster_has_reached_is_not_claimed_and_keeps_its_incarnation() {
    let dir = TempDir::new().unwrap();
    let handler = follower(dir.path()).await;
    let group = &handler.group;
    let incarnation = || group.this_node.store.incarnation();
    let first = incarnation();
    assert!(group.this_node.be_claimed(false).await.unwrap());
    assert_eq!(incarnation(), first);
    let arrived = arrived_snapshot(&handler, entries(100)).await.unwrap();
    assert!(group.this_node.be_claimed(true).await.unwrap());
    let second = incarnation();
    assert_ne!(second, first);
    let refused = handler.install_snapshot(arrived).await.expect_err("for another incarnation");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    // A heartbeat: the node belongs to no cluster that it knows, and follows a leader.
    append(&handler, None, vec![], 0).await;
    assert!(!group.is_formed());
    for renews in [true, false] {
        assert!(!group.this_node.be_claimed(renews).await.unwrap());
    }
    assert_eq!(incarnation(), second);
    group.stop().await;
}

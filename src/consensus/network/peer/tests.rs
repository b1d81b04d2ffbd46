//! An acknowledgement counts for the message that it answers, and for no other.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use openraft::{
    EntryPayload, Membership, entry::RaftEntry, raft::SnapshotResponse, storage::RaftStateMachine,
    vote::RaftLeaderId,
};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::*;
use crate::{
    clock::{Clock, Instant},
    consensus::{
        StateMachine,
        lease::Quorums,
        network::{Destination, MessageSender, Network, Transport},
        this_node::{NodeBudget, ThisNode},
    },
    metrics::Metrics,
    proto::{Refusal, peer::*, refusal, refuse},
    storage::{Entry, LogId, Member, Store, StoreOptions, codec},
    tasks::Tasks,
};

#[derive(Default)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::SeqCst))
    }

    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst) / 1_000_000
    }
}

/// A transport to a peer that accepts every message. Its answers are held back until the test adds
/// permits.
struct HeldAnswers {
    answers: Semaphore,
    answer: AppendEntriesResponse<Types>,
    /// The format version of the peer's answers.
    format_version: AtomicU8,
    /// The open ports of the peer, as its answers tell them.
    open: Mutex<Option<Bytes>>,
    /// The CRC-32 of those that the leader knows, by the last message.
    open_known: AtomicU32,
}

#[async_trait]
impl Transport for HeldAnswers {
    async fn raft(
        &self, _to: Destination<'_>, _rpc: RaftRpc, message: RaftMessage, _timeout: Duration,
    ) -> Result<RaftReply, Refusal> {
        self.open_known.store(message.open_known, Ordering::SeqCst);
        let one = self.answers.acquire().await;
        one.map_err(|e| refusal!(Internal, "{e}"))?.forget();
        let mut payload = codec::encode(&self.answer).unwrap();
        payload[0] = self.format_version.load(Ordering::SeqCst);
        let open = self.open.lock().clone();
        Ok(RaftReply { payload: payload.into(), open, ..RaftReply::default() })
    }

    async fn install_snapshot(
        &self, _to: Destination<'_>, parts: BoxStream<'static, SnapshotPart>,
    ) -> Result<RaftReply, Refusal> {
        parts.count().await;
        let AppendEntriesResponse::HigherVote(vote) = self.answer else {
            refuse!(Unsupported, "not in this test");
        };
        let payload = codec::encode(&SnapshotResponse::<Types>::new(vote)).unwrap();
        Ok(RaftReply { payload: payload.into(), ..RaftReply::default() })
    }

    async fn send_memory(
        &self, _to: Destination<'_>, _parts: BoxStream<'static, MemoryPart>,
    ) -> Result<MemoryReply, Refusal> {
        Err(refusal!(Unsupported, "not in this test"))
    }

    async fn hello(
        &self, _to: Destination<'_>, _request: HelloRequest, _timeout: Duration,
    ) -> Result<HelloResponse, Refusal> {
        Err(refusal!(Unsupported, "not in this test"))
    }

    async fn forward(
        &self, _to: Destination<'_>, _requests: BoxStream<'static, ForwardRequests>,
    ) -> Result<BoxStream<'static, Result<ForwardReplies, Refusal>>, Refusal> {
        Err(refusal!(Unsupported, "not in this test"))
    }

    async fn administer(
        &self, _to: Destination<'_>, _request: AdministerRequest, _timeout: Duration,
    ) -> Result<AdministerReply, Refusal> {
        Err(refusal!(Unsupported, "not in this test"))
    }
}

/// Node 1, which leads, and its transport to node 2.
struct Leader {
    clock: Arc<ManualClock>,
    held: Arc<HeldAnswers>,
    lease: Arc<LeaseClock>,
    network: Network,
    /// Holds the sender's incarnation.
    _dir: TempDir,
}

const LEASE: Duration = Duration::from_millis(200);

/// How fast snapshots are sent: so slowly that one with two members takes some time.
const BYTES_PER_SECOND: u64 = 8;

impl Leader {
    fn new(answer: AppendEntriesResponse<Types>) -> Self {
        let clock = Arc::new(ManualClock::default());
        let held = Arc::new(HeldAnswers {
            answers: Semaphore::new(0),
            answer,
            format_version: AtomicU8::new(codec::VERSION),
            open: Mutex::default(),
            open_known: AtomicU32::default(),
        });
        let lease = Arc::new(LeaseClock::new(clock.clone(), 1, LEASE));
        let dir = TempDir::new().unwrap();
        let options = StoreOptions::new(clock.clone());
        let store = Store::open(dir.path(), "test", 1, options).unwrap();
        let (tasks, budget) = (Tasks::default(), NodeBudget::of_a_test());
        let sender = Arc::new(MessageSender {
            this_node: ThisNode::new("test".into(), 1, store, tasks, budget),
            set: 1,
            election_timeout_ms: 300,
        });
        Leader {
            _dir: dir,
            network: Network::new(
                sender,
                held.clone(),
                lease.clone(),
                Metrics::new().of_set(1),
                BYTES_PER_SECOND,
            ),
            clock,
            held,
            lease,
        }
    }

    fn at(&self, ms: u64) -> Instant {
        self.clock.0.store(ms * 1_000_000, Ordering::SeqCst);
        self.clock.now()
    }

    /// Sends a heartbeat of term 3. When this returns, the heartbeat is on its way.
    async fn send(&self) -> tokio::task::JoinHandle<()> {
        let peer = self.network.peer(2, &Member::default());
        let heartbeat = AppendEntriesRequest {
            vote: Vote::new_committed(3, 1),
            prev_log_id: None,
            entries: Vec::new(),
            leader_commit: None,
        };
        let sent = tokio::spawn(async move {
            let answer = peer.append(&heartbeat, Duration::from_secs(60)).await;
            assert!(answer.is_ok(), "{answer:?}");
        });
        tokio::task::yield_now().await;
        sent
    }
}

#[tokio::test]
async fn an_answer_of_another_release_becomes_an_error_that_names_the_peer() {
    let leader = Leader::new(AppendEntriesResponse::Success);
    leader.held.answers.add_permits(1);
    leader.held.format_version.store(codec::VERSION + 1, Ordering::SeqCst);
    let peer = leader.network.peer(2, &Member::default());
    let heartbeat = AppendEntriesRequest {
        vote: Vote::new_committed(3, 1),
        prev_log_id: None,
        entries: Vec::new(),
        leader_commit: None,
    };
    let answer = peer.append(&heartbeat, Duration::from_secs(60)).await;
    let error = answer.unwrap_err().to_string();
    for part in
        ["node 2 runs another release", &format!("version {}", codec::VERSION + 1), "on all nodes"]
    {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}

fn three() -> Quorums {
    Quorums::new(0, [BTreeSet::from([1, 2, 3])])
}

#[tokio::test]
async fn a_late_acknowledgement_counts_from_the_sending_of_its_message() {
    let leader = Leader::new(AppendEntriesResponse::Success);
    let lease = leader.lease.begin(3, three());
    let sent = leader.at(1_000);
    let first = leader.send().await;
    let now = leader.at(1_150);
    let second = leader.send().await;
    assert!(!lease.is_valid(now), "nothing was acknowledged");
    leader.held.answers.add_permits(1);
    first.await.unwrap();
    // The answer counts for its own message, not for the later one that is still on its way.
    assert_eq!(lease.deadline(), sent.after(LEASE));
    let much_later = leader.at(5_000);
    leader.held.answers.add_permits(1);
    second.await.unwrap();
    assert_eq!(lease.deadline(), now.after(LEASE));
    assert!(!lease.is_valid(much_later), "an old acknowledgement extends nothing");
}

#[tokio::test]
async fn an_acknowledgement_that_comes_after_the_leader_was_deposed_extends_nothing() {
    let leader = Leader::new(AppendEntriesResponse::Success);
    let lease = leader.lease.begin(3, three());
    leader.at(1_000);
    let held_back = leader.send().await;
    leader.lease.void_before(4);
    let next = leader.lease.begin(5, three());
    leader.held.answers.add_permits(1);
    held_back.await.unwrap();
    let now = leader.at(1_001);
    assert!(!lease.is_valid(now), "the term is over");
    assert!(!next.is_valid(now), "it was for another term");
}

#[tokio::test]
async fn an_answer_from_a_peer_that_lacks_entries_extends_the_lease_and_a_higher_vote_voids_it() {
    let leader = Leader::new(AppendEntriesResponse::Conflict);
    let lease = leader.lease.begin(3, three());
    let sent = leader.at(1_000);
    leader.held.answers.add_permits(1);
    leader.send().await.await.unwrap();
    assert_eq!(lease.deadline(), sent.after(LEASE));

    let leader = Leader::new(AppendEntriesResponse::HigherVote(Vote::new(4, 2)));
    let lease = leader.lease.begin(3, three());
    leader.held.answers.add_permits(1);
    leader.send().await.await.unwrap();
    assert!(lease.is_void(), "another node may be elected: no answer in this term any more");
}

#[tokio::test]
async fn a_peer_hears_what_is_known_of_it_to_be_open_and_what_it_does_not_tell_again_is_kept() {
    let leader = Leader::new(AppendEntriesResponse::Success);
    let _lease = leader.lease.begin(3, three());
    leader.at(1_000);
    let mut known = Vec::new();
    for told in [Some("node 2 is open"), None, Some(""), None] {
        *leader.held.open.lock() = told.map(Bytes::from);
        leader.held.answers.add_permits(1);
        leader.send().await.await.unwrap();
        known.push(leader.held.open_known.load(Ordering::SeqCst));
    }
    let open = crc32fast::hash(b"node 2 is open");
    assert_eq!(known, [0, open, open, 0]);
}

/// Has the leader of term 3 send a snapshot of a table with two members to node 2.
async fn send_snapshot(
    leader: &Leader, peer: &mut Peer,
) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
    let dir = TempDir::new().unwrap();
    let store =
        Store::open(dir.path(), "test", 1, StoreOptions::new(leader.clock.clone())).unwrap();
    let mut table = StateMachine::open(&store, 1).unwrap();
    let members = Membership::new_with_defaults(vec![BTreeSet::from([1, 2])], []);
    let founded = LogId::new(Vote::new(1, 1).leader_id.to_committed(), 0);
    let founding = Entry::new(founded, EntryPayload::Membership(members));
    let entries = futures::stream::iter([Ok((founding, None))]);
    table.apply(entries).await.unwrap();
    let snapshot = table.get_current_snapshot().await.unwrap().unwrap();
    let (vote, never) = (Vote::new_committed(3, 1), std::future::pending());
    let option = RPCOption::new(Duration::from_secs(60));
    peer.full_snapshot(vote, snapshot, never, option).await
}

#[tokio::test]
async fn a_higher_vote_in_the_answer_to_a_snapshot_voids_the_lease() {
    let leader = Leader::new(AppendEntriesResponse::HigherVote(Vote::new(4, 2)));
    let lease = leader.lease.begin(3, three());
    let mut peer = leader.network.peer(2, &Member::default());
    let answer = send_snapshot(&leader, &mut peer).await;
    assert_eq!(answer.unwrap().vote, Vote::new(4, 2));
    assert!(lease.is_void());
}

/// How long a snapshot takes that is sent to node 2, and answered by a vote of the leader's term.
async fn snapshot_takes(leader: &Leader) -> Duration {
    let began = tokio::time::Instant::now();
    let mut peer = leader.network.peer(2, &Member::default());
    send_snapshot(leader, &mut peer).await.unwrap();
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_sent_slowly_only_while_numbers_flow_without_its_receiver() {
    let leader = Leader::new(AppendEntriesResponse::HigherVote(Vote::new_committed(3, 1)));
    leader.lease.begin(3, three());
    leader.at(1_000);
    leader.lease.record_ack(3, 3, leader.clock.now());
    let fast = snapshot_takes(&leader).await;
    assert!(fast < Duration::from_secs(1), "nothing of the term is committed: {fast:?}");
    leader.lease.committed(3);
    let slow = snapshot_takes(&leader).await;
    assert!(slow > Duration::from_secs(4), "node 3 was heard: {slow:?}");
    let sending = snapshot_takes(&leader);
    let loses_node_3 = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        leader.at(1_300);
    };
    let (hurried, ()) = tokio::join!(sending, loses_node_3);
    assert!(hurried < Duration::from_secs(3), "node 3 is not heard any more: {hurried:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_snapshot_is_sent_again_soon_if_no_numbers_flow_without_its_receiver() {
    let leader = Leader::new(AppendEntriesResponse::Success);
    leader.lease.begin(3, three());
    leader.lease.committed(3);
    let mut peer = leader.network.peer(2, &Member::default());
    let began = tokio::time::Instant::now();
    for _ in 0..7 {
        send_snapshot(&leader, &mut peer).await.unwrap_err();
    }
    let fast = began.elapsed();
    assert!(fast < Duration::from_secs(8), "a second each: {fast:?}");

    leader.lease.record_ack(3, 3, leader.clock.now());
    let began = tokio::time::Instant::now();
    let loses_node_3 = async {
        tokio::time::sleep(Duration::from_secs(50)).await;
        assert_eq!(began.elapsed(), Duration::from_secs(50));
        leader.at(300);
    };
    let (failed, ()) = tokio::join!(send_snapshot(&leader, &mut peer), loses_node_3);
    failed.unwrap_err();
    let waited = began.elapsed();
    // It would wait for 64 s, after the time that the sending takes.
    assert!(waited >= Duration::from_secs(50) && waited < Duration::from_secs(51), "{waited:?}");
}

#[tokio::test]
async fn nothing_of_a_term_that_is_given_up_is_sent_but_to_its_successor() {
    let leader = Leader::new(AppendEntriesResponse::Success);
    leader.lease.begin(3, three());
    assert!(leader.lease.give_up_to(3, 2));
    leader.held.answers.add_permits(1);
    leader.send().await.await.unwrap();
    let other = leader.network.peer(3, &Member::default());
    let heartbeat = AppendEntriesRequest {
        vote: Vote::new_committed(3, 1),
        prev_log_id: None,
        entries: Vec::new(),
        leader_commit: None,
    };
    // Nobody would answer it.
    let refused = other.append(&heartbeat, Duration::from_secs(60)).await.unwrap_err();
    assert!(refused.to_string().contains("term 3, which is given up"), "{refused}");
}

#[tokio::test]
async fn the_lease_is_void_before_a_transfer_leaves() {
    let leader = Leader::new(AppendEntriesResponse::Success);
    let lease = leader.lease.begin(3, three());
    let mut peer = leader.network.peer(2, &Member::default());
    let transfer = TransferLeaderRequest::new(Vote::new_committed(3, 1), 2, None);
    let option = RPCOption::new(Duration::from_secs(60));
    let sending = tokio::spawn(async move {
        // This answer cannot be read. The test is about what happens before it.
        let _ = peer.transfer_leader(transfer, option).await;
    });
    tokio::task::yield_now().await;
    assert!(lease.is_void());
    sending.abort();
}

#[test]
fn a_conflict_below_the_acknowledged_index_becomes_an_error() {
    let leader = Leader::new(AppendEntriesResponse::Success);
    let peer = leader.network.peer(2, &Member::default());
    let append = |term, up_to| AppendEntriesRequest {
        vote: Vote::new_committed(term, 1),
        prev_log_id: Some(crate::storage::LogId::new(
            Vote::new(term, 1).leader_id.to_committed(),
            up_to,
        )),
        entries: Vec::new(),
        leader_commit: None,
    };
    let (success, conflict) = (AppendEntriesResponse::Success, AppendEntriesResponse::Conflict);
    assert!(
        peer.record_acknowledged_index(&append(3, 9), &conflict).is_ok(),
        "it never had the entry"
    );
    assert!(peer.record_acknowledged_index(&append(3, 5), &success).is_ok());
    assert!(
        peer.record_acknowledged_index(&append(3, 6), &conflict).is_ok(),
        "it never had the entry"
    );
    let forgot = peer.record_acknowledged_index(&append(3, 5), &conflict).unwrap_err();
    assert!(forgot.to_string().contains("ratchet node remove 2"), "{forgot}");
    assert!(
        peer.record_acknowledged_index(&append(4, 5), &conflict).is_ok(),
        "a later term may have overwritten it"
    );
    let another = Member { incarnation: 7, ..Member::default() };
    let replaced = leader.network.peer(2, &another);
    assert!(
        replaced.record_acknowledged_index(&append(3, 5), &conflict).is_ok(),
        "it has another data directory"
    );
}

//! What acknowledgements are worth: an answer counts for the message that it answers.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
};

use async_trait::async_trait;
use futures::stream::BoxStream;
use openraft::vote::RaftLeaderId;
use tokio::sync::Semaphore;

use super::*;
use crate::{
    clock::{Clock, Instant},
    consensus::lease::Quorums,
    proto::peer::*,
};

#[derive(Default)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// A peer that has accepted every message, and whose answers are held back until let go.
struct Held {
    answers: Semaphore,
    answer: AppendEntriesResponse<Types>,
    /// Of its messages.
    format_version: AtomicU8,
}

#[async_trait]
impl Transport for Held {
    async fn raft(
        &self,
        _address: &str,
        _rpc: RaftRpc,
        _message: RaftMessage,
        _timeout: Duration,
    ) -> Result<RaftReply, Status> {
        let one = self.answers.acquire().await;
        one.map_err(|e| Status::internal(e.to_string()))?.forget();
        let mut payload = codec::encode(&self.answer).unwrap();
        payload[0] = self.format_version.load(Ordering::SeqCst);
        Ok(RaftReply {
            payload: payload.into(),
        })
    }

    async fn install_snapshot(
        &self,
        _address: &str,
        _parts: BoxStream<'static, SnapshotPart>,
    ) -> Result<RaftReply, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn hello(
        &self,
        _address: &str,
        _request: HelloRequest,
        _timeout: Duration,
    ) -> Result<HelloResponse, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn forward(
        &self,
        _address: &str,
        _requests: BoxStream<'static, ForwardRequests>,
    ) -> Result<BoxStream<'static, Result<ForwardReplies, Status>>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn administer(
        &self,
        _address: &str,
        _request: AdministerRequest,
        _timeout: Duration,
    ) -> Result<AdministerReply, Status> {
        Err(Status::unimplemented("not in this test"))
    }
}

struct Bench {
    clock: Arc<ManualClock>,
    held: Arc<Held>,
    lease: Arc<LeaseClock>,
    network: Network,
}

const LEASE: Duration = Duration::from_millis(200);

impl Bench {
    fn new(answer: AppendEntriesResponse<Types>) -> Self {
        let clock = Arc::new(ManualClock::default());
        let held = Arc::new(Held {
            answers: Semaphore::new(0),
            answer,
            format_version: AtomicU8::new(codec::VERSION),
        });
        let lease = Arc::new(LeaseClock::new(clock.clone(), 1, LEASE));
        let sender = Arc::new(Sender {
            cluster: "test".into(),
            set: 1,
            node: 1,
            incarnation: 1,
            election_timeout_ms: 300,
        });
        Bench {
            network: Network::new(sender, held.clone(), lease.clone(), Metrics::new()),
            clock,
            held,
            lease,
        }
    }

    fn at(&self, ms: u64) -> Instant {
        self.clock.0.store(ms * 1_000_000, Ordering::SeqCst);
        self.clock.now()
    }

    /// Sends a heartbeat of term 3; it is on its way when this returns.
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
async fn a_peer_whose_answer_is_of_another_release_is_named() {
    let bench = Bench::new(AppendEntriesResponse::Success);
    bench.held.answers.add_permits(1);
    bench.held.format_version.store(9, Ordering::SeqCst);
    let peer = bench.network.peer(2, &Member::default());
    let heartbeat = AppendEntriesRequest {
        vote: Vote::new_committed(3, 1),
        prev_log_id: None,
        entries: Vec::new(),
        leader_commit: None,
    };
    let answer = peer.append(&heartbeat, Duration::from_secs(60)).await;
    let error = answer.unwrap_err().to_string();
    for part in ["node 2 runs another release", "version 9", "on all nodes"] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}

fn three() -> Quorums {
    Quorums::new([BTreeSet::from([1, 2, 3])])
}

#[tokio::test]
async fn an_acknowledgement_that_comes_late_counts_from_when_its_message_was_sent() {
    let bench = Bench::new(AppendEntriesResponse::Success);
    let lease = bench.lease.begin(3, three());
    let sent = bench.at(1_000);
    let first = bench.send().await;
    let now = bench.at(1_150);
    let second = bench.send().await;
    assert!(!lease.is_valid(now), "nothing was acknowledged");
    bench.held.answers.add_permits(1);
    first.await.unwrap();
    // One answer counts for its own message, not for the later one that is still on its way.
    assert_eq!(lease.deadline(), sent.after(LEASE));
    let much_later = bench.at(5_000);
    bench.held.answers.add_permits(1);
    second.await.unwrap();
    assert_eq!(lease.deadline(), now.after(LEASE));
    assert!(
        !lease.is_valid(much_later),
        "an old acknowledgement extends nothing"
    );
}

#[tokio::test]
async fn acknowledgements_held_back_until_the_leader_is_deposed_extend_nothing() {
    let bench = Bench::new(AppendEntriesResponse::Success);
    let lease = bench.lease.begin(3, three());
    bench.at(1_000);
    let held_back = bench.send().await;
    bench.lease.void_before(4);
    let next = bench.lease.begin(5, three());
    bench.held.answers.add_permits(1);
    held_back.await.unwrap();
    let now = bench.at(1_001);
    assert!(!lease.is_valid(now), "the term is over");
    assert!(!next.is_valid(now), "it was for another term");
}

#[tokio::test]
async fn a_peer_that_lacks_entries_follows_all_the_same_and_one_with_a_higher_vote_does_not() {
    let bench = Bench::new(AppendEntriesResponse::Conflict);
    let lease = bench.lease.begin(3, three());
    let sent = bench.at(1_000);
    bench.held.answers.add_permits(1);
    bench.send().await.await.unwrap();
    assert_eq!(lease.deadline(), sent.after(LEASE));

    let bench = Bench::new(AppendEntriesResponse::HigherVote(Vote::new(4, 2)));
    let lease = bench.lease.begin(3, three());
    bench.held.answers.add_permits(1);
    bench.send().await.await.unwrap();
    assert!(
        lease.is_void(),
        "somebody may be elected: nothing more in this term"
    );
}

#[tokio::test]
async fn the_lease_is_void_before_a_transfer_leaves() {
    let bench = Bench::new(AppendEntriesResponse::Success);
    let lease = bench.lease.begin(3, three());
    let mut peer = bench.network.peer(2, &Member::default());
    let transfer = TransferLeaderRequest::new(Vote::new_committed(3, 1), 2, None);
    let option = RPCOption::new(Duration::from_secs(60));
    let sending = tokio::spawn(async move {
        // The answer is of another kind here; what matters is what happened before it.
        let _ = peer.transfer_leader(transfer, option).await;
    });
    tokio::task::yield_now().await;
    assert!(lease.is_void());
    sending.abort();
}

#[test]
fn a_peer_that_forgets_what_it_acknowledged_is_kept_from_raft() {
    let bench = Bench::new(AppendEntriesResponse::Success);
    let peer = bench.network.peer(2, &Member::default());
    let append = |term, up_to| AppendEntriesRequest {
        vote: Vote::new_committed(term, 1),
        prev_log_id: Some(crate::storage::LogId::new(
            Vote::new(term, 1).leader_id.to_committed(),
            up_to,
        )),
        entries: Vec::new(),
        leader_commit: None,
    };
    let (success, conflict) = (
        AppendEntriesResponse::Success,
        AppendEntriesResponse::Conflict,
    );
    assert!(
        peer.remember(&append(3, 9), &conflict).is_ok(),
        "never had it"
    );
    assert!(peer.remember(&append(3, 5), &success).is_ok());
    assert!(
        peer.remember(&append(3, 6), &conflict).is_ok(),
        "never had it"
    );
    let forgot = peer.remember(&append(3, 5), &conflict).unwrap_err();
    assert!(
        forgot.to_string().contains("ratchet node remove 2"),
        "{forgot}"
    );
    assert!(
        peer.remember(&append(4, 5), &conflict).is_ok(),
        "a later term may have overwritten it"
    );
    let another = Member {
        incarnation: 7,
        ..Member::default()
    };
    let replaced = bench.network.peer(2, &another);
    assert!(
        replaced.remember(&append(3, 5), &conflict).is_ok(),
        "a directory of its own"
    );
}

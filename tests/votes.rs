//! A voter keeps the promise of its last run when it restarts: no vote within a lease.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::common::{
    cluster::{Cluster, once_free},
    in_time,
    links::listening_at,
    others,
};
use openraft::{
    raft::{VoteRequest, VoteResponse},
    vote::RaftLeaderId,
};
use ratchet::{
    clock::BootClock,
    consensus::{RaftRpc, Transport},
    proto::peer::RaftMessage,
    server::GrpcTransport,
    storage::{LogId, Store, StoreOptions, Types, Vote, codec},
};

/// While the leader is cut off, one of its followers restarts. The follower's promise to keep out
/// of elections has not run out, so the other follower must not be elected with its vote before.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_voter_keeps_the_promise_of_its_last_run() {
    let mut cluster = Cluster::start(3, |config| {
        // This is long enough to see that the promise is kept, on a busy machine, too.
        config.election_timeout_ms = 3_000;
        config.lease_ms = 2_500;
        config.heartbeat_ms = 100;
    })
    .await;
    let leader = cluster.leader().await;
    let [restarted, other] = others(leader);
    let term = cluster.client(leader).status().await.unwrap().term;
    cluster.cut_off(leader);
    // Both followers promised at this moment at the latest, and at a heartbeat before it at the
    // earliest.
    let promised = Instant::now();
    // The other follower's own promise is void: it restarts as well, and asks for votes as soon as
    // it may.
    cluster.crash(restarted).await;
    cluster.start_node(restarted).await;
    let started = Instant::now();
    assert!(
        started - promised >= Duration::from_millis(3_000),
        "the node was up again after {:?}, while its promise lasted",
        started - promised
    );
    let mut leadership = cluster.nodes[&other].context().group.leadership();
    let later = leadership.wait_for(|now| now.term > term && now.leader.is_some());
    drop(in_time("a new leader", later).await.unwrap());
    let elected = Instant::now();
    assert!(
        elected - promised >= Duration::from_millis(2_900),
        "a leader was elected after {:?}, within the lease",
        elected - promised
    );
}

/// The promise of the last run was longer than the promises of this run.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_voter_keeps_a_longer_promise_of_its_last_run() {
    const PROMISE: Duration = Duration::from_millis(2_000);
    let mut cluster = Cluster::start(3, |config| {
        config.election_timeout_ms = PROMISE.as_millis() as u64;
        config.lease_ms = 1_500;
        config.heartbeat_ms = 100;
    })
    .await;
    let leader = cluster.leader().await;
    let [restarted, _] = others(leader);
    cluster.crash(restarted).await;
    let ended = Instant::now();
    let config = cluster.configs.get_mut(&restarted).expect("it");
    config.election_timeout_ms = 300;
    config.lease_ms = 200;
    config.heartbeat_ms = 50;
    cluster.start_node(restarted).await;
    assert!(
        ended.elapsed() >= PROMISE,
        "the node was up again after {:?}; its last run promised {PROMISE:?}",
        ended.elapsed()
    );
    // The run before this one promised no more than 300 ms.
    cluster.crash(restarted).await;
    let options = || StoreOptions::new(Arc::new(BootClock));
    let dir = cluster.data_dir(restarted);
    let store = once_free(|| Store::open(dir, "test", restarted, options())).await;
    let store = store.expect("a store");
    assert_eq!(store.promise_ms(1).expect("a record"), Some(300));
}

/// Asks the restarted node for its vote directly, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_voter_grants_no_vote_within_a_lease() {
    const LEASE: Duration = Duration::from_millis(2_000);
    let mut cluster = Cluster::start(3, |config| {
        config.election_timeout_ms = LEASE.as_millis() as u64;
        config.lease_ms = 1_500;
        config.heartbeat_ms = 100;
    })
    .await;
    let leader = cluster.leader().await;
    let [restarted, other] = others(leader);
    let shared = cluster.nodes[&other].context();
    let member = shared.group.membership.members()[&restarted].0.clone();
    let header = shared.group.sender().header(restarted, &member);
    let term = cluster.client(leader).status().await.unwrap().term;
    let request = VoteRequest::<Types>::new(
        Vote::new(term + 1, other),
        Some(LogId::new(Vote::new(term, 1).leader_id.to_committed(), 1_000)),
    );
    let payload = codec::encode(&request).unwrap();
    let asking = async move {
        let transport = GrpcTransport::default();
        loop {
            let message = RaftMessage {
                header: Some(header.clone()),
                payload: payload.clone().into(),
                ..RaftMessage::default()
            };
            let timeout = Duration::from_millis(50);
            let reply = transport
                .raft(listening_at(&member.peer_address), RaftRpc::Vote, message, timeout)
                .await;
            if let Ok(reply) = reply {
                let answer: VoteResponse<Types> = codec::decode(&reply.payload).unwrap();
                // It may also have voted for somebody in a later election, before this one asked again.
                if answer.vote_granted || answer.vote.leader_id.term > term {
                    return Instant::now();
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    cluster.cut_off(leader);
    // The last heartbeat may be this old.
    let promised = Instant::now() - Duration::from_millis(150);
    cluster.crash(restarted).await;
    let asking = tokio::spawn(asking);
    cluster.start_node(restarted).await;
    let granted = in_time("a granted vote", asking).await.unwrap();
    assert!(granted - promised >= LEASE, "granted after {:?}", granted - promised);
}

/// A node that votes for the first time in its life has promised nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_node_starts_without_waiting_for_a_lease() {
    const LEASE: Duration = Duration::from_secs(60);
    let started = Instant::now();
    let cluster = Cluster::start(1, |config| {
        config.election_timeout_ms = LEASE.as_millis() as u64;
        config.lease_ms = 50_000;
    })
    .await;
    assert!(started.elapsed() < LEASE, "{:?}", started.elapsed());
    drop(cluster);
}

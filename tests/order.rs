//! A deposed leader that does not know yet that it is deposed hands out no old numbers.

use std::time::Duration;

use crate::common::{
    Client, HURRIED, cluster::Cluster, history::Load, hurried, id, is_late, other_than, others,
    processes::Processes,
};
use ratchet::allocator::FenceKind;

/// Three times the lease, and the followers' on top: by then another leader answers.
const LONGER_THAN_A_LEASE: Duration = Duration::from_millis(900);

/// A request over each of `clients`' connections: calls and streams by turns.
fn ask_all(clients: &[Client], key: u64) -> Vec<tokio::task::JoinHandle<u64>> {
    clients
        .iter()
        .cloned()
        .zip([false, true].into_iter().cycle())
        .map(|(mut client, by_stream)| {
            tokio::spawn(async move {
                match by_stream {
                    true => client.next_by_stream(key).await.unwrap(),
                    false => client.next(key).await.unwrap(),
                }
            })
        })
        .collect()
}

/// The requests sit in the paused leader's sockets until it goes on; by then the others have handed
/// out higher numbers.
async fn a_paused_leader(flags: &[&str]) {
    let cluster = Processes::start(3, &[&HURRIED, flags].concat()).await;
    for round in 0..5 {
        let leader = cluster.leader().await;
        let others = others(leader);
        // The connections are warm, and numbers are left in the leader's memory.
        let mut clients = Vec::new();
        for _ in 0..32 {
            let mut client = cluster.client(leader);
            client.next(round).await.unwrap();
            clients.push(client);
        }
        cluster.pause(leader);
        let early = ask_all(&clients, round);
        tokio::time::sleep(LONGER_THAN_A_LEASE).await;
        let mut newer = 0;
        for id in &others {
            newer = cluster.client(*id).next_at_last(round).await;
        }
        // Asked after `newer` was known, of the leader that is about to wake up, and left in its
        // sockets. (That they have arrived there cannot be awaited.)
        let late = ask_all(&clients, round);
        tokio::time::sleep(Duration::from_millis(50)).await;
        cluster.resume(leader);
        let mut all = vec![newer];
        for answer in late {
            let number = answer.await.unwrap();
            assert!(number > newer, "round {round}: {number} was handed out after {newer}");
            all.push(number);
        }
        // These may lie anywhere, their calls began before; but none repeats.
        for answer in early {
            all.push(answer.await.unwrap());
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "round {round}: a number was handed out twice");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_paused_for_three_leases_hands_out_nothing_old_when_it_wakes() {
    a_paused_leader(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_paused_for_three_leases_hands_out_nothing_old_with_the_quorum_fence() {
    a_paused_leader(&["--fence", "quorum"]).await;
}

/// The leader still reaches its clients, but no other node. Its clients must not get old numbers.
async fn a_leader_cut_off(fence: FenceKind) {
    let cluster = Cluster::start(3, |config| {
        hurried(config);
        config.fence = fence;
    })
    .await;
    for round in 0..3 {
        let leader = cluster.leader().await;
        let other = other_than(leader);
        let mut near = cluster.client(leader);
        near.next(round).await.unwrap();
        near = near.patient(Duration::from_millis(300));
        cluster.cut_off(leader);
        cluster.leader_seen_by(other, |new| new != leader).await;
        let mut newer = cluster.client(other).next_at_last(round).await;
        for attempt in 0..6 {
            let asked = match attempt % 2 {
                0 => near.next(round).await,
                _ => near.next_by_stream(round).await,
            };
            match asked {
                Ok(number) => assert!(number > newer, "{number} after {newer}"),
                Err(status) => {
                    let is_unavailable = status.code() == tonic::Code::Unavailable;
                    assert!(is_unavailable || is_late(&status), "{status:?}");
                }
            }
            newer = cluster.client(other).next(round).await.unwrap();
        }
        cluster.mend();
        let number = cluster.client(leader).next_at_last(round).await;
        assert!(number > newer, "{number} after {newer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_cut_off_from_its_peers_but_not_from_its_clients_hands_out_nothing_old() {
    a_leader_cut_off(FenceKind::Lease).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_cut_off_hands_out_nothing_old_with_the_quorum_fence() {
    a_leader_cut_off(FenceKind::Quorum).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_holds_under_load_while_leaders_are_cut_off_one_after_the_other() {
    let cluster = Cluster::start(3, hurried).await;
    let load = Load::start(&cluster.addresses(), 12, 3);
    for _ in 0..4 {
        load.answers(200).await;
        let leader = cluster.leader().await;
        cluster.cut_off(leader);
        cluster.leader_seen_by(other_than(leader), |new| new != leader).await;
        load.answers(200).await;
        cluster.mend();
    }
    let history = load.finish().await;
    history.assert_strictly_increasing();
}

#[tokio::test(flavor = "multi_thread")]
async fn current_is_never_below_a_number_handed_out_before_nor_above_one_handed_out_later() {
    let cluster = Cluster::start(3, |_| {}).await;
    let key = id(9);
    let mut anyone = cluster.client(1);
    assert_eq!(anyone.current("book", key.clone()).await.unwrap(), None);
    let mut last = 0;
    for round in 0..3 {
        for id in 1..=3 {
            let number = cluster.client(id).next(9).await.unwrap();
            assert!(number > last);
            last = number;
            for reader in 1..=3 {
                let seen = cluster.client(reader).current("book", key.clone()).await.unwrap();
                assert_eq!(seen, Some(number), "round {round}: nothing was handed out since");
            }
        }
        // An unclean change: the ceiling is a fair answer, and nothing later lies below it.
        let leader = cluster.leader().await;
        cluster.cut_off(leader);
        let other = other_than(leader);
        cluster.leader_seen_by(other, |new| new != leader).await;
        let mut client: Client = cluster.client(other);
        client.next_at_last(u64::MAX).await;
        let seen = client.current("book", key.clone()).await.unwrap().unwrap();
        assert!(seen >= last, "{seen} is below {last}, which was handed out before");
        last = seen;
        cluster.mend();
    }
}

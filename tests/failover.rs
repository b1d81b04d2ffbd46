//! Numbers stay unique and in order through the death of nodes, and flow again.

use std::time::{Duration, Instant};

use crate::common::{HURRIED, eventually, history::Load, processes::Processes};

/// Prints the figure as well: `cargo test --test scenarios failover -- --nocapture`.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_flow_again_after_each_of_ten_kills_of_the_leader_and_none_repeats() {
    let mut cluster = Processes::start(3, &HURRIED).await;
    let load = Load::start(&cluster.addresses(), 16, 4);
    let mut kills = Vec::new();
    for _ in 0..10 {
        load.answers(200).await;
        let leader = cluster.leader().await;
        kills.push(Instant::now());
        cluster.kill(leader);
        load.answers(200).await;
        cluster.spawn(leader);
        cluster.client(leader).next_at_last(u64::MAX).await;
    }
    let history = load.finish().await;
    history.assert_strictly_increasing();
    let mut silences: Vec<Duration> = kills
        .iter()
        .zip(kills.iter().skip(1).map(Some).chain([None]))
        .map(|(kill, next)| history.longest_silence(*kill, next.copied()))
        .collect();
    silences.sort();
    println!(
        "kill -9 of the leader, {} calls answered: longest silences {silences:?}, median {:?}",
        history.ops.len(),
        silences[silences.len() / 2]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn after_all_nodes_were_killed_at_once_numbers_go_on_above_all_that_were_handed_out() {
    let mut cluster = Processes::start(3, &HURRIED).await;
    for _ in 0..2 {
        let load = Load::start(&cluster.addresses(), 16, 4);
        load.answers(500).await;
        for id in [1, 2, 3] {
            cluster.kill(id);
        }
        let history = load.finish().await;
        history.assert_strictly_increasing();
        for id in [1, 2, 3] {
            cluster.spawn(id);
        }
        for key in 0..4 {
            let number = cluster.client(1 + key % 3).next_at_last(key).await;
            assert!(number > history.highest(key), "key {key}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_majority_gone_callers_are_told_what_is_known_before_their_deadline() {
    // Not hurried: the one that is left must be the one that led.
    let mut cluster = Processes::start(3, &[]).await;
    let leader = cluster.leader().await;
    for id in [1, 2, 3] {
        if id != leader {
            cluster.kill(id);
        }
    }
    let mut client = cluster.client(leader).patient(Duration::from_secs(1));
    // Until its lease has run out, the leader still answers. On a busy machine the client may give up before it does.
    let error = eventually("what the leader knows", async || {
        let error = client.next(7).await.err()?;
        error.message().contains("hears from no majority").then_some(error)
    });
    let error = error.await;
    assert_eq!(error.code(), tonic::Code::Unavailable, "{error:?}");
    assert!(error.message().contains(&format!("node {leader}")), "{error:?}");
}

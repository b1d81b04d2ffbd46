//! A graceful handover leaves no gap.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use crate::common::{
    Client, PATIENCE,
    cluster::Cluster,
    eventually,
    history::{History, Load},
    in_time, other_than, others,
    processes::Processes,
    until,
};
use futures::FutureExt;
use ratchet::{node::Config, proto::v1::NextManyRequest};
use rustix::process::Signal;

/// The history of ten transfers under load, and when each began. `None` if a successor was too late, and another node was
/// elected: that skips numbers.
async fn ten_transfers_under_load() -> Option<(History, Vec<Instant>)> {
    let cluster = Processes::start(3, &[]).await;
    let load = Load::start(&cluster.addresses(), 16, 4);
    let mut silences = Vec::new();
    for _ in 0..10 {
        load.answers(300).await;
        let before = cluster.leader().await;
        let started = Instant::now();
        let to = other_than(before);
        let transferred = match cluster.client(1).transfer(to).await {
            Err(late) if late.code() == tonic::Code::Aborted => return None,
            transferred => transferred.unwrap(),
        };
        assert_eq!(transferred.leader, to);
        load.answers(300).await;
        silences.push(started);
    }
    Some((load.finish().await, silences))
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_under_load_leave_no_gap() {
    // On a slow machine a successor may be too late.
    let (history, silences) = eventually("ten transfers", ten_transfers_under_load).await;
    assert_eq!(history.failed, 0, "{:?}", history.failures);
    history.assert_strictly_increasing();
    for key in 0..4 {
        history.assert_without_gap(key, 1);
    }
    let mut silences: Vec<Duration> = silences
        .into_iter()
        .map(|from| history.longest_silence(from, Some(from + Duration::from_secs(1))))
        .collect();
    silences.sort();
    println!("transfer: longest silences {silences:?}, median {:?}", silences[5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_hands_over_and_leaves_no_gap() {
    assert_hands_over_without_a_gap(Signal::TERM).await;
}

/// A terminal that is closed, or a supervisor that reloads its processes, sends it.
#[tokio::test(flavor = "multi_thread")]
async fn sighup_hands_over_as_sigterm_does() {
    assert_hands_over_without_a_gap(Signal::HUP).await;
}

async fn assert_hands_over_without_a_gap(signal: Signal) {
    let mut cluster = Processes::start(3, &[]).await;
    let leader = cluster.leader().await;
    let others = others(leader);
    let addresses: Vec<_> = others.iter().map(|id| cluster.places[id].listen).collect();
    let load = Load::start(&addresses, 16, 4);
    load.answers(500).await;
    let started = Instant::now();
    let status = cluster.stop_by(signal, leader).await;
    assert!(status.success(), "{status}");
    load.answers(500).await;
    let history = load.finish().await;
    assert_eq!(history.failed, 0, "{:?}", history.failures);
    history.assert_strictly_increasing();
    for key in 0..4 {
        history.assert_without_gap(key, 1);
    }
    println!("{signal:?}: longest silence {:?}", history.longest_silence(started, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_alone_that_is_stopped_and_started_goes_on_with_the_next_number() {
    let mut cluster = Processes::start(1, &[]).await;
    let mut client = cluster.client(1);
    assert_eq!(client.next(7).await.unwrap(), 1);
    assert_eq!(client.next(7).await.unwrap(), 2);
    assert!(cluster.terminate(1).await.success());
    cluster.spawn(1);
    assert_eq!(cluster.client(1).next_at_last(7).await, 3);
}

/// A cluster, its leader, and another node that this one has not heard lately.
async fn with_a_silent_node(change: impl Fn(&mut Config)) -> (Cluster, u64, u64) {
    let cluster = Cluster::start(3, change).await;
    let leader = cluster.leader().await;
    let silent = other_than(leader);
    cluster.cut_off(silent);
    let shared = cluster.nodes[&leader].context();
    let term = shared.group.leadership().borrow().term;
    until("the node is no successor", || shared.group.successor(term, Some(silent)).is_err()).await;
    (cluster, leader, silent)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_waits_for_a_node_that_was_not_heard_lately() {
    // The leader waits for up to five election timeouts.
    const PATIENT_FOR: Duration = Duration::from_secs(5 * 12);
    let slow = |config: &mut Config| {
        (config.election_timeout_ms, config.lease_ms) =
            (PATIENT_FOR.as_millis() as u64 / 5, 10_000);
    };
    let (cluster, leader, silent) = with_a_silent_node(slow).await;
    let shared = cluster.nodes[&leader].context();
    let mut transfer = pin!(
        shared
            .services
            .of_group
            .handovers()
            .hand_over(Some(silent), tokio::time::Instant::now() + PATIENCE)
    );
    assert!((&mut transfer).now_or_never().is_none(), "it waits");
    cluster.mend();
    let mended = Instant::now();
    let now = transfer.await.expect("handed over");
    // It would wait so long if nothing told it that the node was heard.
    assert!(mended.elapsed() < PATIENT_FOR / 2, "{:?}", mended.elapsed());
    assert_eq!(now.leader.map(|(id, _)| id), Some(silent));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_waits_while_the_term_is_lost_says_so() {
    let (cluster, leader, silent) = with_a_silent_node(|_| {}).await;
    let shared = cluster.nodes[&leader].context();
    let own = shared.group.leadership().borrow().own.clone();
    let mut transfer = pin!(
        shared
            .services
            .of_group
            .handovers()
            .hand_over(Some(silent), tokio::time::Instant::now() + PATIENCE)
    );
    assert!((&mut transfer).now_or_never().is_none(), "it waits");
    own.expect("it leads").void();
    let refused = transfer.await.expect_err("nobody took over");
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_to_a_node_that_does_not_answer_is_refused_and_changes_nothing() {
    let (cluster, leader, lame) = with_a_silent_node(|_| {}).await;
    let mut client = cluster.client(leader);
    let term = client.status().await.unwrap().term;
    let refused = client.transfer(lame).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains(&format!("node {lame}")), "{refused:?}");
    client.next(7).await.unwrap();
    assert_eq!(client.status().await.unwrap().term, term);
}

/// The number of keys. There are so many that trimming their ceilings takes several log entries.
const KEYS: u64 = 30_000;

/// A handover of many keys may take long on a busy machine, and must not be cut short.
fn in_its_own_time(config: &mut Config) {
    config.shutdown_timeout_ms = 60_000;
}

/// Takes a number of each key, and fails unless it is `expected`.
async fn expect_of_all(client: &mut Client, expected: u64) {
    let request = NextManyRequest {
        namespace: "book".into(),
        ids: (1..=KEYS).collect(),
        ..NextManyRequest::default()
    };
    let answers = client.sequencer.next_many(tokio_stream::once(request));
    let mut answers = answers.await.expect("a stream").into_inner();
    let answer = answers.message().await.expect("no error");
    let answer = answer.expect("an answer");
    assert_eq!(answer.failure, None);
    let odd: Vec<_> = (1..=KEYS).zip(&answer.firsts).filter(|(_, n)| **n != expected).collect();
    assert!(odd.is_empty(), "{} keys have a gap, as {:?}", odd.len(), odd[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_handovers_asked_for_at_once_become_one_and_leave_no_gap() {
    let cluster = Cluster::start(3, in_its_own_time).await;
    let leader = cluster.leader().await;
    let to = other_than(leader);
    let mut client = cluster.client(leader);
    expect_of_all(&mut client, 1).await;
    // As an operator does, and a node that is stopped meanwhile.
    let shared = cluster.nodes[&leader].context();
    let deadline = tokio::time::Instant::now() + 2 * PATIENCE;
    let (transferred, stopped) = tokio::join!(
        shared.services.of_group.handovers().hand_over(Some(to), deadline),
        shared.services.of_group.handovers().hand_over_to_anyone(deadline)
    );
    let leader = transferred.expect("a transfer").leader;
    assert_eq!(leader.map(|(id, _)| id), Some(to));
    stopped.expect("the same handover");
    expect_of_all(&mut cluster.client(to), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handover_whose_caller_hangs_up_goes_on_and_leaves_no_gap() {
    let cluster = Cluster::start(3, in_its_own_time).await;
    let leader = cluster.leader().await;
    let to = other_than(leader);
    let mut client = cluster.client(leader);
    expect_of_all(&mut client, 1).await;
    let shared = cluster.nodes[&leader].context().clone();
    let before = shared.group.leadership().borrow().term;
    {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let asking =
            std::pin::pin!(shared.services.of_group.handovers().hand_over(Some(to), deadline));
        assert!(futures::poll!(asking).is_pending(), "under way");
    }
    let mut leadership = shared.group.leadership();
    let over = leadership.wait_for(|now| now.term > before && now.leader.is_some());
    let now = in_time("the handover", over).await;
    assert_eq!(now.unwrap().leader.map(|(id, _)| id), Some(to));
    expect_of_all(&mut cluster.client(to), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_is_handed_to_the_voter_that_fits_and_serves_on_if_none_does() {
    let cluster = Cluster::start(3, |_| {}).await;
    for _ in 0..2 {
        let leader = cluster.leader().await;
        cluster.client(leader).next_at_last(7).await;
        let context = cluster.nodes[&leader].context();
        let handovers = context.services.of_group.handovers();
        let term = context.group.term();
        let deadline = || tokio::time::Instant::now() + PATIENCE;
        let none = handovers.hand_over_to_one_that(term, |_| false, deadline()).await;
        let none = none.expect_err("nobody fits");
        assert_eq!(none.code(), tonic::Code::FailedPrecondition, "{none}");
        assert_eq!(context.group.term(), term);
        cluster.client(leader).next(7).await.expect("the term serves on");

        let wanted = other_than(leader);
        until("it was heard", || context.group.successor(term, Some(wanted)).is_ok()).await;
        let handed = handovers.hand_over_to_one_that(term, |id| id == wanted, deadline()).await;
        let now = handed.expect("handed over");
        assert_eq!(now.leader.map(|(id, _)| id), Some(wanted));
    }
}

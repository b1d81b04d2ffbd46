//! The lines in the log of a node about slow calls: they say where the time went, and name no key.

use std::{fs, time::Duration};

use serde_json::Value;

use crate::common::{eventually, other_than, others, processes::Processes};

/// No other figure in a log looks so.
const KEYS_FROM: u64 = 918_273_645_546_000_000;

const PARTS: [&str; 7] =
    ["queue_ms", "leader_ms", "forward_ms", "read_ms", "bump_ms", "write_ms", "fence_ms"];

/// The lines of a node about slow calls for numbers.
fn lines(cluster: &Processes, node: u64) -> Vec<Value> {
    let log = fs::read_to_string(cluster.log(node)).expect("a log");
    let lines = log.lines().filter_map(|line| serde_json::from_str(line).ok());
    let fields = lines.map(|line: Value| line["fields"].clone());
    let is_slow = |fields: &Value| fields["message"] == "slow call";
    fields.filter(|fields| is_slow(fields) && fields["namespace"] == "book").collect()
}

fn ms(line: &Value, field: &str) -> u64 {
    line[field].as_u64().unwrap_or_else(|| panic!("{field} of {line}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_call_is_told_with_where_its_time_went_by_each_node_that_had_it_and_without_its_key()
{
    let flags = ["--log-format", "json", "--slow-call-ms", "1"];
    let mut cluster = Processes::start(3, &flags).await;
    let leader = cluster.leader().await;
    let follower = other_than(leader);
    let mut client = cluster.client(follower);
    let mut key = KEYS_FROM;
    // A disk may be so fast that no part of a call takes a millisecond.
    let told = eventually("a call that is slow at both nodes", async || {
        // A new key needs a log entry.
        client.next(key).await.expect("a number");
        key += 1;
        let asked = lines(&cluster, follower).into_iter();
        let asked = asked.last().filter(|line| ms(line, "forward_ms") > 0);
        let led = lines(&cluster, leader).into_iter().rev().find(|line| {
            line["forwarded_here"] == true && ms(line, "bump_ms") + ms(line, "write_ms") > 0
        });
        asked.zip(led)
    })
    .await;
    assert_eq!((&told.0["forwarded_here"], &told.0["node"]), (&false.into(), &follower.into()));
    assert_eq!(told.1["node"], leader);
    for line in [&told.0, &told.1] {
        assert_eq!(line["method"], "ratchet.v1.Sequencer/Next");
        assert_eq!((&line["keys"], &line["outcome"]), (&1.into(), &"ok".into()));
        let _told = ms(line, "left_out");
    }
    // Nobody leads now: the call waits until somebody does.
    cluster.kill(leader);
    client.next_at_last(key).await;
    let found = eventually("a call that waited for a leader", async || {
        let all = others(leader).into_iter().flat_map(|node| lines(&cluster, node));
        all.filter(|line| ms(line, "leader_ms") > 0).max_by_key(|line| ms(line, "took_ms"))
    })
    .await;
    let parts: u64 = PARTS.iter().map(|part| ms(&found, part)).sum();
    let took = ms(&found, "took_ms");
    assert!(took / 2 <= parts && parts <= took, "{found}");
    for node in 1..=3 {
        assert_eq!(cluster.said(node, &KEYS_FROM.to_string()[..12]), 0, "node {node} tells a key");
    }
}

/// For how long the followers stand still after each call that begins meanwhile. That it waits cannot be awaited.
const STILL: Duration = Duration::from_millis(50);

/// Has calls for two keys wait at the leader: the one begins after the other, and the followers stand still meanwhile.
async fn wait_for_followers(cluster: &Processes, leader: u64, keys: [u64; 2]) {
    for follower in others(leader) {
        cluster.pause(follower);
    }
    let mut calls = Vec::new();
    for key in keys {
        let mut client = cluster.client(leader);
        calls.push(tokio::spawn(async move { client.next(key).await }));
        tokio::time::sleep(STILL).await;
    }
    for follower in others(leader) {
        cluster.resume(follower);
    }
    for call in calls {
        call.await.expect("no panic").expect("a number");
    }
}

fn flags(fence: &str) -> [&str; 6] {
    ["--log-format", "json", "--slow-call-ms", "1", "--fence", fence]
}

/// Whether a line is about a call that mostly waited for `part`, and not at all for the `others`.
fn is_mostly(line: &Value, part: &str, others: &[&str]) -> bool {
    let waited = ms(line, part);
    let is_most = waited >= STILL.as_millis() as u64 / 2 && 2 * waited >= ms(line, "took_ms");
    is_most && others.iter().all(|other| ms(line, other) == 0)
}

/// A line of the leader, with this fence, about a call that mostly waited for `part`. Each time two calls wait for these keys.
async fn waited_for(
    part: &str, others: &[&str], fence: &str, mut keys: impl FnMut() -> [u64; 2],
) -> Value {
    let cluster = Processes::start(3, &flags(fence)).await;
    cluster.client(cluster.leader().await).next(KEYS_FROM).await.expect("a number");
    eventually("a call that waited so", async || {
        // It may have changed.
        let leader = cluster.leader().await;
        wait_for_followers(&cluster, leader, keys()).await;
        lines(&cluster, leader).into_iter().find(|line| is_mostly(line, part, others))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_key_waits_for_its_turn_behind_a_log_entry_is_told_so() {
    let mut last = KEYS_FROM;
    let new_keys = || {
        last += 2;
        [last - 1, last]
    };
    waited_for("queue_ms", &["fence_ms"], "lease", new_keys).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_a_majority_to_have_its_log_entry_is_told_so() {
    let mut last = KEYS_FROM;
    let new_keys = || {
        last += 2;
        [last - 1, last]
    };
    waited_for("bump_ms", &["fence_ms", "forward_ms", "leader_ms"], "lease", new_keys).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_the_quorum_fence_is_told_so() {
    // Its key has numbers.
    waited_for("fence_ms", &["bump_ms", "write_ms"], "quorum", || [KEYS_FROM; 2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_call_that_waits_for_the_leaders_answer_is_told_so() {
    let cluster = Processes::start(3, &flags("lease")).await;
    cluster.client(cluster.leader().await).next(KEYS_FROM).await.expect("a number");
    eventually("a call that waited so", async || {
        // It may have changed.
        let leader = cluster.leader().await;
        let follower = other_than(leader);
        // The leader stands still, and too briefly for another one to be elected.
        cluster.pause(leader);
        let mut client = cluster.client(follower);
        let calling = tokio::spawn(async move { client.next(KEYS_FROM).await });
        tokio::time::sleep(STILL).await;
        cluster.resume(leader);
        calling.await.expect("no panic").expect("a number");
        // The waits of the leader are in its own line.
        let there = ["read_ms", "bump_ms", "write_ms", "fence_ms"];
        lines(&cluster, follower).into_iter().find(|line| is_mostly(line, "forward_ms", &there))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_0_no_call_is_slow() {
    let cluster = Processes::start(1, &["--log-format", "json", "--slow-call-ms", "0"]).await;
    let mut client = cluster.client(1);
    for key in KEYS_FROM..KEYS_FROM + 20 {
        client.next(key).await.expect("a number");
    }
    assert_eq!(lines(&cluster, 1), [Value::Null; 0]);
}

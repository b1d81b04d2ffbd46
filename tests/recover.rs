//! `ratchet recover` makes a cluster of the one node that survived.

use std::{collections::BTreeMap, fs, time::Duration};

use crate::common::{
    PATIENCE,
    closed::{asking, create, grant, next},
    cluster::Cluster,
    eventually, hurried, id,
    links::{as_peer, listening_at},
    name, processes,
};
use ratchet::{
    consensus::{RaftRpc, Transport},
    node::hash_of,
    proto::{
        peer::RaftMessage,
        v1::{CreateNamespaceRequest, KeyKind, RevokeTokenRequest, access_client::AccessClient},
    },
    storage::Margin,
};
use serde_json::Value;

/// More steps than the twenty that node 3 does not hear of.
const STEPS: u64 = 25;

fn margin(steps: u64) -> Margin {
    Margin { default_steps: steps, steps_by_namespace: BTreeMap::new() }
}

/// Node 3 does not hear of the last numbers, nor of some sections. Then the other nodes are lost.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_recovery_every_number_is_greater_than_every_number_seen() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    if cluster.leader().await == 3 {
        cluster.client(3).transfer(1).await.unwrap();
    }
    let mut client = cluster.client(1);
    let room = CreateNamespaceRequest {
        name: "room".into(),
        key_kind: KeyKind::Name.into(),
        start: Some(100),
        increment: Some(100),
        ..CreateNamespaceRequest::default()
    };
    client.admin.create_namespace(room).await.unwrap();
    let keys = |from: u64, to: u64| {
        (from..to).flat_map(|key| {
            let letters = name(format!("room {key}").as_bytes());
            [("book", id(key)), ("uid", id(key * 1_000_000)), ("room", letters)]
        })
    };
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for (namespace, key) in keys(0, 20) {
        let answer = client.try_next(namespace, key.clone(), 1_000_000).await.unwrap();
        seen.insert(format!("{namespace} {key:?}"), answer.last);
    }
    cluster.caught_up(cluster.leader().await, 3).await;
    cluster.cut_off(3);
    for (namespace, key) in keys(0, 40) {
        // Some twenty steps that node 3 never hears of.
        let answer = client.try_next(namespace, key.clone(), 200_000).await.unwrap();
        seen.insert(format!("{namespace} {key:?}"), answer.last);
    }
    let term = client.status().await.unwrap().term;
    for id in [1, 2, 3] {
        cluster.crash(id).await;
    }
    cluster.mend();
    for id in [1, 2] {
        fs::remove_dir_all(cluster.data_dir(id)).unwrap();
    }
    let would = cluster.recover(3, &margin(STEPS), true).await;
    let done = cluster.recover(3, &margin(STEPS), false).await;
    assert_eq!(would, done);
    assert_eq!((done.node, done.left_behind.as_slice()), (3, [1, 2].as_slice()));
    assert_eq!(done.namespaces.len(), 3);
    cluster.start_node(3).await;
    cluster.client(3).next_at_last(u64::MAX).await;
    let mut client = cluster.client(3);
    for (namespace, key) in keys(0, 60) {
        let answer = client.try_next(namespace, key.clone(), 1).await.unwrap();
        let before = seen.get(&format!("{namespace} {key:?}")).copied();
        assert!(Some(answer.first) > before, "{namespace} {key:?}: {answer:?} after {before:?}");
        if namespace == "room" {
            assert_eq!(answer.first % 100, 0, "its remainder stays");
        }
    }
    let status = client.status().await.unwrap();
    assert_eq!(status.nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [3]);
    assert!(status.term > term);
    // It is a cluster like any other: it stops, starts, and grows.
    cluster.crash(3).await;
    cluster.start_node(3).await;
    let first = cluster.client(3).next_at_last(7).await;
    cluster.add_voter(3, 4).await;
    cluster.client(3).transfer(4).await.unwrap();
    assert!(cluster.client(4).next_at_last(7).await > first);
}

/// A node that was believed lost comes back. It must not take part.
#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_left_behind_cannot_speak_to_the_recovered_one() {
    let mut cluster = Cluster::start(3, hurried).await;
    for id in [1, 2, 3] {
        cluster.crash(id).await;
    }
    cluster.recover(3, &margin(STEPS), false).await;
    cluster.start_node(3).await;
    let first = cluster.client(3).next_at_last(7).await;
    assert!(first > STEPS * 10_000);
    // Alone it has no majority; with the recovered node it would have one.
    cluster.start_node(1).await;
    let group = cluster.nodes[&1].context().group.clone();
    let (term_before, mut leadership) = (group.term(), group.leadership());
    // After a restart a node takes its last leader for one that leads, until there is another term.
    let elected = leadership.wait_for(|now| now.term > term_before && now.leader.is_some());
    let several_elections = Duration::from_secs(2);
    let elected = tokio::time::timeout(several_elections, elected).await;
    assert!(elected.is_err(), "node 1 found a leader");
    // Its messages are for the recovered node's old directory.
    let member = group.membership.members()[&3].0.clone();
    let message =
        RaftMessage { header: Some(group.sender().header(3, &member)), ..RaftMessage::default() };
    let transport = as_peer();
    let sent = transport.raft(listening_at(&member.peer_address), RaftRpc::Vote, message, PATIENCE);
    let refused = sent.await.unwrap_err();
    assert!(refused.message().contains("another data directory"), "{refused:?}");
    assert!(cluster.client(3).next_at_last(7).await > first);
}

/// Node 3 does not hear that a token is revoked. Then the other nodes are lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_whose_revocation_is_lost_is_good_again_and_the_recovery_names_it() {
    const TOKEN: &str = "a-token-that-is-revoked";
    let mut cluster = Cluster::start(3, |_| {}).await;
    cluster.lead(1).await;
    let mut access = AccessClient::new(asking(cluster.address(1), None));
    create(&mut access, TOKEN, "ci", vec![grant("next:book")]).await.expect("a token");
    cluster.caught_up(cluster.leader().await, 3).await;
    cluster.cut_off(3);
    let revoke = RevokeTokenRequest { name: "ci".to_owned(), id: None };
    access.revoke_token(revoke).await.expect("it is worth nothing");
    for id in [1, 2, 3] {
        cluster.crash(id).await;
    }
    cluster.mend();
    let dir = cluster.data_dir(3).to_str().expect("a path").to_owned();
    let recover = |flags: &[&str]| {
        let output = processes::run(&[&["recover", "--data-dir", &dir], flags].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let in_json: Value = serde_json::from_str(&recover(&["--dry-run", "--json"])).expect("JSON");
    let names = ["anonymous", "ci"];
    for (place, name) in names.iter().enumerate() {
        assert_eq!(in_json["principals"][place]["name"], *name, "{in_json}");
    }
    let id = hash_of(TOKEN.as_bytes()).id();
    for flags in [&["--dry-run"][..], &[]] {
        let told = recover(flags);
        for part in ["anonymous", "ci ", &id, "next:book", "ratchet token revoke"] {
            assert!(told.contains(part), "{part:?} is not in {told}");
        }
    }
    cluster.start_node(3).await;
    let revoked = asking(cluster.address(3), Some(TOKEN));
    eventually("it is good again", async || next(&revoked, "book").await.ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_cannot_be_recovered_is_refused_with_the_reason_and_left_unchanged() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    let mut client = cluster.client(1);
    client.next(7).await.unwrap();
    let dir = cluster.data_dir(1).to_str().unwrap().to_owned();
    let recover = |args: &[&str]| {
        let args = [&["recover", "--data-dir"], args].concat();
        let output = processes::run(&args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text)
    };
    let (code, text) = recover(&[&dir]);
    assert_eq!(code, Some(74));
    assert!(text.contains("in use by another process"), "{text}");
    let small = CreateNamespaceRequest {
        name: "small".into(),
        max: Some(1_000_000),
        ..CreateNamespaceRequest::default()
    };
    client.admin.create_namespace(small).await.unwrap();
    let first = client.try_next("small", id(1), 1).await.unwrap().first;
    cluster.crash(1).await;
    let (code, text) = recover(&[&dir, "--dry-run"]);
    assert_eq!(code, Some(74));
    assert!(text.contains("\"small\"") && text.contains("--margin small="), "{text}");
    let (code, text) = recover(&[&dir, "--margin", "smal=3"]);
    assert_eq!(code, Some(74));
    assert!(text.contains("no namespace \"smal\""), "{text}");
    assert_eq!(recover(&[&dir, "--margin", "small"]).0, Some(2));
    let nowhere = cluster.data_dir(1).with_extension("no");
    let (code, text) = recover(&[nowhere.to_str().unwrap()]);
    assert_eq!(code, Some(74));
    assert!(text.contains("does not exist") && !nowhere.exists(), "{text}");
    // None of it changed anything.
    let (code, _) = recover(&[&dir, "--margin", "small=20", "--dry-run"]);
    assert_eq!(code, Some(0));
    cluster.start_node(1).await;
    let mut client = cluster.client(1);
    client.next_at_last(7).await;
    let next = client.try_next("small", id(1), 1).await.unwrap().first;
    assert!(next > first && next <= 20_002, "{next}");
}

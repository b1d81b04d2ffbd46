//! A node that lacks entries that were purged from the log catches up by a snapshot, through crashes and faults.

use std::sync::Arc;

use crate::common::{
    cluster::Cluster,
    disk::Disk,
    eventually, http_get, id, in_time,
    openmetrics::{parse, value},
    other_than, others,
    power::Names,
    until, with_metrics,
};
use ratchet::{
    consensus::Group,
    node::Config,
    proto::v1::{CreateNamespaceRequest, KeyKind, NextManyRequest},
    storage::{StoreOptions, UnsyncedWrites},
};
use tokio_util::task::AbortOnDropHandle;

/// A log so short that it is purged within these tests.
fn short_log(config: &mut Config) {
    config.log_keep_bytes = 1_000;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_takes_longer_than_the_log_is_held_is_counted_and_a_faster_one_arrives() {
    // A megabyte a second, and all but nothing is held meanwhile.
    let slow = |config: &mut Config| {
        short_log(config);
        with_metrics(config);
        (config.snapshot_mb_per_second, config.log_hold_times) = (1, 1);
    };
    let mut cluster = Cluster::start(1, slow).await;
    let mut client = cluster.client(1);
    // These keys take some two megabytes.
    for first in (0..60_000).step_by(10_000) {
        client.next_of_each((first..first + 10_000).collect()).await.unwrap();
    }
    // So many entries that the log does not hold all of them.
    for key in 80_000..80_200 {
        client.next(key).await.unwrap();
    }
    purged(&cluster.nodes[&1].context().group).await;
    let metrics = cluster.nodes[&1].addresses().metrics.expect("a metrics port");
    let in_vain = async || {
        let page = http_get(metrics, "/metrics").await;
        value(&parse(&page.body), "ratchet_snapshots_in_vain_total{set=\"1\"}")
    };
    assert_eq!(in_vain().await, 0.0);
    let peer_address = cluster.start_joining(2, slow).await;
    let asking: Vec<_> = (1..=4u64).map(|part| (part * 1_000_000, cluster.client(1))).collect();
    let logging = asking.into_iter().map(|(first, mut client)| {
        AbortOnDropHandle::new(tokio::spawn(async move {
            for key in first.. {
                client.next(key).await.expect("a number");
            }
        }))
    });
    let logging: Vec<_> = logging.collect();
    cluster.client(1).add_node_at_last(2, peer_address).await;
    let group = cluster.nodes[&1].context().group.clone();
    let of_set = cluster.nodes[&1].context().metrics.of_set(1);
    let sent = &of_set.snapshot_bytes;
    let sent_in_vain = async {
        loop {
            let seen = eventually("a snapshot is sent, in vain or not", async || {
                let is_in_vain = in_vain().await > 0.0;
                (is_in_vain || sent.get() > 0).then_some(is_in_vain)
            });
            if seen.await {
                break;
            }
            // On a slow machine too little is logged before the snapshot arrives: then the node is made to need another one.
            cluster.crash(2).await;
            let last = cluster.acknowledged(1, 1);
            until("the log is purged further", || group.purged_index() > last).await;
            sent.set(0);
            cluster.start_node(2).await;
        }
    };
    in_time("a snapshot is sent in vain", sent_in_vain).await;
    drop(logging);
    // Once nothing is logged, the next one suffices.
    applied_all(&cluster, 2, 1).await;
}

/// Waits until the log is purged by more than 100 entries; answers up to where.
async fn purged(group: &Group) -> u64 {
    let index = async || group.purged_index().filter(|index| *index > 100);
    eventually("the log is purged", index).await
}

/// Waits until `id` has applied all entries that `leader` has.
async fn applied_all(cluster: &Cluster, id: u64, leader: u64) {
    let applied = |of: u64| {
        let status = cluster.nodes[&of].context().services.status.now();
        let node = status.nodes.into_iter().find(|node| node.id == of);
        node.and_then(|node| node.applied_index)
    };
    let goal = applied(leader);
    until("the node has applied all", || applied(id) >= goal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_while_the_log_was_purged_catches_up_by_snapshot() {
    let mut cluster = Cluster::start(3, short_log).await;
    let peer_address = cluster.start_joining(4, short_log).await;
    cluster.client(1).add_node_at_last(4, peer_address).await;
    let leader = cluster.leader().await;
    let term = cluster.nodes[&leader].context().group.term();
    // Before it has anything of the log, a crash would make it another node.
    cluster.caught_up(leader, 4).await;
    cluster.crash(4).await;
    let mut client = cluster.client(leader);
    for key in 0..200 {
        client.try_next("book", id(key), 1).await.unwrap();
    }
    let group = cluster.nodes[&leader].context().group.clone();
    let purged = purged(&group).await;
    cluster.start_node(4).await;
    applied_all(&cluster, 4, leader).await;
    let learner = cluster.nodes[&4].context().group.clone();
    // Raft shows it a moment later.
    let by_snapshot = || learner.purged_index() >= Some(purged);
    until("node 4 has caught up by snapshot", by_snapshot).await;
    let in_memory = || learner.view.recent_records().len() >= 200;
    until("what came with the snapshot is in memory", in_memory).await;
    // It holds the same table as the others: as a leader it hands out the next numbers.
    cluster.client(1).promote_node(4).await.unwrap();
    cluster.lead(4).await;
    for key in 0..200 {
        let number = cluster.client(4).next_at_last(key).await;
        // An election, which a slow machine may bring as well, skips numbers.
        match learner.term() == term + 1 {
            true => assert_eq!(number, 2, "key {key}"),
            false => assert!(number >= 2, "key {key}: {number}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_arrives_damaged_is_refused_and_another_one_is_installed() {
    let mut cluster = Cluster::start(3, short_log).await;
    let leader = cluster.leader().await;
    let mut client = cluster.client(leader);
    for key in 0..200 {
        client.try_next("book", id(key), 1).await.unwrap();
    }
    purged(&cluster.nodes[&leader].context().group).await;
    cluster.links.damage_snapshots(2);
    let peer_address = cluster.start_joining(4, short_log).await;
    cluster.client(leader).add_node_at_last(4, peer_address).await;
    applied_all(&cluster, 4, leader).await;
    let failures = |id: u64| cluster.nodes[&id].context().metrics.of_set(1).snapshot_failures.get();
    assert_eq!((failures(leader), failures(4)), (2, 2));
    let metrics = &cluster.nodes[&leader].context().metrics;
    let told = || metrics.of_set(1).snapshot_bytes.get() > 0;
    until("the leader hears that the snapshot is installed", told).await;
    let table = cluster.nodes[&4].context().group.view.clone();
    assert!(table.namespaces().by_name("book").is_some());
    client.next_at_last(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_loses_power_right_after_it_installed_a_snapshot_comes_back() {
    let mut cluster = Cluster::start(3, short_log).await;
    let leader = cluster.leader().await;
    let victim = other_than(leader);
    cluster.crash(victim).await;
    // There are so many entries that the log is purged beyond the victim's last entry.
    for key in 100..160 {
        cluster.client(leader).next_at_last(key).await;
    }

    let holds = cluster.acknowledged(leader, victim);
    let group = cluster.nodes[&leader].context().group.clone();
    let is_purged = || group.purged_index() > holds;
    until("the log is purged", is_purged).await;

    let dir = cluster.data_dir(victim).to_owned();
    let names = Arc::new(Names::new(dir.with_file_name("kept")));
    names.synced(dir.parent().expect("a parent"));
    names.synced(&dir);
    let disk = Disk::default();
    let mut seams = cluster.seams(victim);
    seams.storage = StoreOptions {
        unsynced: UnsyncedWrites::InProcess,
        directory_synced: {
            let names = names.clone();
            Arc::new(move |dir| names.synced(dir))
        },
        ..disk.under(&seams.storage)
    };
    // Nothing reaches the disk, except the bytes that the installation itself brings there.
    let hanging = disk.hang_then_fail();
    let node = cluster.try_start(victim, seams).await.unwrap();
    let has_snapshot = || cluster.acknowledged(leader, victim) > holds;
    until("the follower gets a snapshot", has_snapshot).await;
    let left = dir.with_file_name("left");
    names.cut_power(&dir, &left);
    drop(hanging);
    node.halt().await;

    cluster.configs.get_mut(&victim).expect("it").data_dir = left;
    cluster.start_node(victim).await;
    cluster.client(victim).next_at_last(200).await;
    cluster.caught_up(leader, victim).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_logs_nothing_without_a_node_sends_it_the_snapshot_as_fast_as_it_can() {
    const MESSAGES: usize = 24;
    const KEYS: usize = 3_000;
    // At a megabyte a second, which is for a leader that hands out numbers meanwhile.
    let slow = |config: &mut Config| {
        short_log(config);
        config.snapshot_mb_per_second = 1;
    };
    let mut cluster = Cluster::start(3, slow).await;
    let leader = cluster.leader().await;
    let [next, away] = others(leader);
    cluster.crash(away).await;
    let mut client = cluster.client(leader);
    let rooms = CreateNamespaceRequest {
        name: "room".into(),
        key_kind: KeyKind::Name.into(),
        ..CreateNamespaceRequest::default()
    };
    client.admin.create_namespace(rooms).await.expect("created");
    // These keys take some twenty megabytes.
    for first in (0..MESSAGES * KEYS).step_by(KEYS) {
        let names = (first..first + KEYS).map(|key| format!("{key:0256}").into());
        let message = NextManyRequest {
            namespace: "room".into(),
            names: names.collect(),
            ..NextManyRequest::default()
        };
        let answers = client.sequencer.next_many(tokio_stream::once(message)).await;
        let answer = answers.expect("a stream").into_inner().message().await;
        assert_eq!(answer.expect("no error").expect("an answer").failure, None);
    }
    // There are so many entries that the log is purged beyond the last entry of the node that is away.
    for key in 0..60 {
        client.next(key).await.expect("a number");
    }
    let holds = cluster.acknowledged(leader, away);
    let group = cluster.nodes[&next].context().group.clone();
    until("the log is purged", || group.purged_index() > holds).await;

    cluster.crash(leader).await;
    cluster.start_node(away).await;
    assert!(cluster.client(next).next_at_last(7).await > 1);
    let metrics = cluster.nodes[&next].context().metrics.clone();
    let told = || metrics.of_set(1).snapshot_seconds.get() > 0.0;
    until("the leader hears that the snapshot is installed", told).await;
    let bytes = metrics.of_set(1).snapshot_bytes.get() as f64;
    let (took, paced) = (metrics.of_set(1).snapshot_seconds.get(), bytes / f64::from(1_u32 << 20));
    println!("{bytes} bytes in {took} s; at the pace that is set it would be {paced} s");
    assert!(paced > 15.0, "{bytes} bytes are too few to tell");
    assert!(took < 0.9 * paced, "{took} s for {bytes} bytes");
}

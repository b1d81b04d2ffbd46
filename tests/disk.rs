//! A node whose disk fails or hangs does no harm, and says so.

mod common;

use std::{
    future::ready,
    sync::{Arc, Condvar, Mutex, mpsc},
    time::Duration,
};

use common::{Client, PATIENCE, history::Load, id, links::Cluster, power::Names};
use ratchet::{
    allocator::{FenceKind, NextError, Term},
    clock::BootClock,
    metrics::Metrics,
    sequence::Key,
    storage::{StoreOptions, UnsyncedWrites},
};
use tonic::Code;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    Hanging,
    Failing,
}

/// The disk of one node.
#[derive(Clone)]
struct Disk(Arc<(Mutex<Mood>, Condvar)>);

impl Disk {
    fn new() -> Self {
        Disk(Arc::new((Mutex::new(Mood::Well), Condvar::new())))
    }

    fn set(&self, mood: Mood) {
        *self.0.0.lock().unwrap() = mood;
        self.0.1.notify_all();
    }

    /// Hangs until what this returns is dropped; fails from then on.
    fn hang(&self) -> Hanging {
        self.set(Mood::Hanging);
        Hanging(self.clone())
    }

    fn options(&self, options: &StoreOptions) -> StoreOptions {
        let Disk(disk) = self.clone();
        StoreOptions {
            before_sync: Arc::new(move || {
                let (mood, changed) = &*disk;
                let mut mood = mood.lock().unwrap();
                while *mood == Mood::Hanging {
                    mood = changed.wait(mood).unwrap();
                }
                Box::pin(ready(match *mood {
                    Mood::Failing => {
                        Err("IO error: While fdatasync: 000009.log: Input/output error".into())
                    }
                    _ => Ok(()),
                }))
            }),
            ..options.clone()
        }
    }
}

/// A disk that hangs.
struct Hanging(Disk);

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.set(Mood::Failing);
    }
}

/// Three nodes, each with a disk of its own.
async fn cluster() -> (Cluster, Vec<Disk>) {
    let mut cluster = Cluster::configured(3, |_| {});
    let disks: Vec<Disk> = (0..3).map(|_| Disk::new()).collect();
    for id in 1..=3 {
        let mut seams = cluster.seams(id);
        seams.storage = disks[id as usize - 1].options(&seams.storage);
        let config = cluster.configs[&id].clone();
        let node = ratchet::server::start(config, seams).await.unwrap();
        cluster.nodes.insert(id, node);
    }
    for id in 1..=3 {
        cluster.client(id).next_at_last(u64::MAX).await;
    }
    (cluster, disks)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_fsync_fails_stops_and_the_others_go_on() {
    let (cluster, disks) = cluster().await;
    let leader = cluster.leader().await;
    let other = leader % 3 + 1;
    let load = Load::start(&[cluster.address(other)], 4, 2, Duration::from_secs(5));
    load.answers(50).await;
    disks[leader as usize - 1].set(Mood::Failing);
    // A key that nobody has asked for needs a bump, and so the disk.
    let mut client = cluster.client(other);
    let asking = tokio::spawn(async move { client.next_at_last(4_711).await });
    let reason = tokio::time::timeout(PATIENCE, cluster.nodes[&leader].failed())
        .await
        .unwrap()
        .to_string();
    for part in [
        "000009.log",
        cluster.data_dir(leader).to_str().unwrap(),
        "must stop",
    ] {
        assert!(reason.contains(part), "{part:?} is not in {reason}");
    }
    assert_ne!(
        cluster.leader_seen_by(other, |new| new != leader).await,
        leader
    );
    asking.await.unwrap();
    load.answers(50).await;
    load.finish().await.assert_strictly_increasing();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_disk_hangs_gives_up_although_its_heartbeats_go_on() {
    let (cluster, disks) = cluster().await;
    let leader = cluster.leader().await;
    let other = leader % 3 + 1;
    let load = Load::start(&[cluster.address(other)], 4, 2, Duration::from_secs(10));
    load.answers(50).await;
    disks[leader as usize - 1].set(Mood::Hanging);
    let mut client = cluster.client(other);
    let asking = tokio::spawn(async move { client.next_at_last(4_711).await });
    assert_ne!(
        cluster.leader_seen_by(other, |new| new != leader).await,
        leader
    );
    asking.await.unwrap();
    load.answers(50).await;
    disks[leader as usize - 1].set(Mood::Well);
    load.finish().await.assert_strictly_increasing();
    cluster.client(leader).next_at_last(4_711).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_in_a_term_is_told_when_it_is_given_up_although_its_bump_hangs() {
    let (cluster, disks) = cluster().await;
    let leader = cluster.leader().await;
    let shared = cluster.nodes[&leader].context();
    let lease = shared.group.leadership().borrow().own.clone();
    let lease = lease.expect("it leads");
    let term = Term::open(
        shared.group.clone(),
        lease.clone(),
        FenceKind::Lease,
        Arc::new(BootClock),
        Metrics::new(),
    );
    let namespace = shared.group.view().namespaces().by_name("book").cloned();
    let namespace = namespace.expect("a fresh cluster has books");
    disks.iter().for_each(|disk| disk.set(Mood::Hanging));
    let deadline = tokio::time::Instant::now() + 4 * PATIENCE;
    let mut waiting = std::pin::pin!(term.next(&namespace, Key::Id(4_711), 1, deadline));
    assert!(futures::poll!(&mut waiting).is_pending());
    lease.void();
    let told = tokio::time::timeout(PATIENCE, waiting).await;
    let told = told.expect("long before the deadline");
    assert!(matches!(told, Err(NextError::NotLeading)), "{told:?}");
    disks.iter().for_each(|disk| disk.set(Mood::Well));
}

fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_an_older_copy_of_its_directory_is_refused_and_harms_nobody() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let victim = cluster.configs.keys().copied().find(|id| *id != leader);
    let victim = victim.expect("a follower");
    let dir = cluster.data_dir(victim).to_owned();
    let older = dir.with_file_name("older");

    cluster.crash(victim).await;
    copy_dir(&dir, &older);
    cluster.start_node(victim).await;
    // First touches: each is in the log, and on the victim's disk before its answer is counted.
    for key in 100..120 {
        cluster.client(victim).next_at_last(key).await;
    }
    cluster.caught_up(leader, victim).await;

    cluster.crash(victim).await;
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::rename(&older, &dir).unwrap();
    let config = cluster.configs[&victim].clone();
    let refused = ratchet::server::start(config, cluster.seams(victim)).await;
    let error = refused
        .err()
        .expect("an older copy must not vote")
        .to_string();
    for named in [
        "older copy",
        "ratchet node remove",
        &format!("node {victim}"),
    ] {
        assert!(error.contains(named), "{error}");
    }
    assert_eq!(cluster.leader().await, leader, "it led on");
    cluster.client(leader).next_at_last(100).await;
}

#[test]
fn current_waits_for_a_disk_that_hangs_without_holding_up_those_who_need_none() {
    const DISK_THREADS: usize = 2;
    let nodes = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(DISK_THREADS)
        .enable_all()
        .build()
        .unwrap();
    let cluster = nodes.block_on(Cluster::start(1, |_| {}));
    let callers = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let patient = callers.block_on(async { Client::new(cluster.address(1)) });
    let hurried = patient.clone().patient(Duration::from_millis(200));
    let first = callers.block_on(patient.clone().next(1)).unwrap();

    // Every thread that may wait for the disk does.
    let (is_there, there) = mpsc::channel();
    let waiting: Vec<mpsc::Sender<()>> = (0..DISK_THREADS)
        .map(|_| {
            let (let_go, wait) = mpsc::channel();
            let is_there = is_there.clone();
            nodes.spawn_blocking(move || {
                is_there.send(()).unwrap();
                // Ends with the sender.
                let _ = wait.recv();
            });
            let_go
        })
        .collect();
    for _ in 0..DISK_THREADS {
        there.recv_timeout(PATIENCE).unwrap();
    }
    let cold = callers.block_on(hurried.clone().current("book", id(2)));
    assert_eq!(cold.unwrap_err().code(), Code::DeadlineExceeded);
    let warm = callers.block_on(patient.clone().current("book", id(1)));
    assert_eq!(warm.unwrap(), Some(first));
    let next = callers.block_on(patient.clone().next(1));
    assert_eq!(next.unwrap(), first + 1);

    drop(waiting);
    let cold = callers.block_on(patient.clone().current("book", id(2)));
    assert_eq!(cold.unwrap(), None);
    nodes.block_on(async move { drop(cluster) });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_loses_power_right_after_it_installed_a_snapshot_comes_back() {
    let mut cluster = Cluster::start(3, |config| config.log_keep_bytes = 1_000).await;
    let leader = cluster.leader().await;
    let victim = leader % 3 + 1;
    cluster.crash(victim).await;
    // More than its followers can catch up with out of the log.
    for key in 100..160 {
        cluster.client(leader).next_at_last(key).await;
    }

    let holds = cluster.acknowledged(leader, victim);
    let group = cluster.nodes[&leader].context().group.clone();
    let purged = async {
        while group.purged_index() <= holds {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, purged)
        .await
        .expect("the log is purged");

    let dir = cluster.data_dir(victim).to_owned();
    let names = Arc::new(Names::new(dir.with_file_name("kept")));
    names.synced(dir.parent().expect("a parent"));
    names.synced(&dir);
    let disk = Disk::new();
    let mut seams = cluster.seams(victim);
    seams.storage = StoreOptions {
        unsynced: UnsyncedWrites::InProcess,
        directory_synced: {
            let names = names.clone();
            Arc::new(move |dir| names.synced(dir))
        },
        ..disk.options(&seams.storage)
    };
    // Nothing reaches the disk but what an install brings there itself.
    let hanging = disk.hang();
    let config = cluster.configs[&victim].clone();
    let node = ratchet::server::start(config, seams).await.unwrap();
    let installed = async {
        while cluster.acknowledged(leader, victim) <= holds {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, installed)
        .await
        .expect("it gets a snapshot");
    let left = dir.with_file_name("left");
    names.cut_power(&dir, &left);
    drop(hanging);
    node.halt().await;

    cluster.configs.get_mut(&victim).expect("it").data_dir = left;
    cluster.start_node(victim).await;
    cluster.client(victim).next_at_last(200).await;
    cluster.caught_up(leader, victim).await;
}

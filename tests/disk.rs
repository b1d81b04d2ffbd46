//! A node whose disk fails or hangs does no harm, and says so.

mod common;

use std::{
    future::ready,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use common::{PATIENCE, history::Load, links::Cluster};
use ratchet::storage::StoreOptions;

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
        .unwrap();
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

//! A disk that fills up stops nobody: below the reserve new keys and namespaces are refused, and keys in use go on.

use crate::common::{
    Client,
    cluster::Cluster,
    disk::Disk,
    eventually, http_get, id, in_time,
    openmetrics::{parse, value},
    other_than, others, until, with_metrics,
};
use ratchet::{
    node::Config,
    proto::{
        Refusal, reason_of, retry_after_ms,
        v1::{
            CreateNamespaceRequest, NextManyRequest, NextManyResponse, RaiseManyRequest,
            RaiseRequest, Reason,
        },
    },
};
use tonic::{Code, Status};

/// The reserve of all nodes here, in megabytes.
const RESERVE_MB: u64 = 1_000;

/// `n` nodes, each with a disk of its own.
async fn cluster(n: u64) -> (Cluster, Vec<Disk>) {
    cluster_with(n, |_| {}).await
}

/// As [`cluster`], where followers keep out of elections as `times` says.
async fn cluster_with(n: u64, times: impl Fn(&mut Config)) -> (Cluster, Vec<Disk>) {
    let mut cluster = Cluster::configured(n, |config| {
        with_metrics(config);
        times(config);
        config.disk_reserve_mb = RESERVE_MB;
    });
    let disks: Vec<Disk> = (0..n).map(|_| Disk::default()).collect();
    for (id, disk) in (1..).zip(&disks) {
        let mut seams = cluster.seams(id);
        seams.storage = disk.under(&seams.storage);
        cluster.start_node_with(id, seams).await;
    }
    cluster.all_answer().await;
    (cluster, disks)
}

/// Waits until the node says that it is ready, and says that its disk is low, or nothing of it; returns its text.
async fn until_low(cluster: &Cluster, node: u64, low: bool) -> String {
    let metrics = cluster.nodes[&node].addresses().metrics.expect("a metrics port");
    eventually("what the node says of its disk", async || {
        let page = http_get(metrics, "/readyz").await;
        // On a slow machine it may look for a leader for a moment, and is not ready meanwhile.
        let is_ready = page.status == 200;
        (is_ready && page.body.contains("nearly full") == low).then_some(page.body)
    })
    .await
}

async fn gauge(cluster: &Cluster, node: u64, name: &str) -> f64 {
    let metrics = cluster.nodes[&node].addresses().metrics.expect("a metrics port");
    let page = http_get(metrics, "/metrics").await;
    value(&parse(&page.body), name)
}

async fn create(client: &mut Client, namespace: CreateNamespaceRequest) -> Result<(), Status> {
    client.admin.create_namespace(namespace).await.map(drop)
}

async fn raise(client: &mut Client, key: u64, at_least: u64) -> Result<(), Status> {
    let request = RaiseRequest {
        namespace: "book".into(),
        key: id(key),
        at_least,
        ..RaiseRequest::default()
    };
    client.sequencer.raise(request).await.map(drop)
}

/// The answer to one message for the next number of each of these keys.
async fn next_many(client: &mut Client, namespace: &str, ids: &[u64]) -> NextManyResponse {
    let request = NextManyRequest {
        namespace: namespace.to_owned(),
        ids: ids.to_vec(),
        ..NextManyRequest::default()
    };
    let answers = client.sequencer.next_many(tokio_stream::once(request)).await.unwrap();
    let mut answers = answers.into_inner();
    let answer = in_time("an answer", answers.message()).await;
    answer.unwrap().expect("one")
}

fn assert_refused<T: std::fmt::Debug>(refused: Result<T, Status>) {
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(retry_after_ms(&refused).is_some(), "{refused:?}");
    for part in ["nearly full", "999 MB are free", "the reserve is 1000 MB", "disk_reserve_mb"] {
        assert!(refused.message().contains(part), "{part:?} is not in {refused}");
    }
}

/// Fails unless a message for two keys was refused for the second key alone, which is new.
fn assert_second_refused(answer: &NextManyResponse) {
    assert!(answer.firsts[0] > 0, "{answer:?}");
    let refused = answer.refused.first().expect("some keys are refused");
    assert_eq!(refused.places, [1], "{answer:?}");
    let why = refused.failure.clone().expect("a reason");
    assert_refused(Err::<(), _>(Refusal::from(*why).into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn below_the_reserve_new_keys_and_namespaces_are_refused_and_keys_in_use_go_on_and_above_it_all_goes_on()
 {
    let (cluster, disks) = cluster(1).await;
    let mut client = cluster.client(1);
    let bills = CreateNamespaceRequest {
        name: "bills".into(),
        gapless: true,
        request_id_optional: true,
        ..CreateNamespaceRequest::default()
    };
    create(&mut client, bills).await.unwrap();
    client.next(1).await.unwrap();
    client.try_next("uid", id(1), 1).await.unwrap();
    client.try_next("bills", id(1), 1).await.unwrap();

    disks[0].set_free_mb(RESERVE_MB - 1);
    let said = until_low(&cluster, 1, true).await;
    assert!(said.contains("999 MB are free"), "{said}");
    assert_eq!(gauge(&cluster, 1, "ratchet_disk_low").await, 1.0);
    assert_eq!(gauge(&cluster, 1, "ratchet_disk_reserve_bytes").await, 1_000.0 * 1_048_576.0);
    let disk = client.status().await.unwrap().disk.expect("the leader's disk");
    assert_eq!((disk.low, disk.free_bytes), (true, Some(999 << 20)));

    assert_refused(client.next(2).await);
    assert_refused(client.try_next("uid", id(1_000_000), 1).await);
    assert_refused(client.try_next("bills", id(2), 1).await);
    assert_second_refused(&next_many(&mut client, "book", &[1, 3]).await);
    assert_second_refused(&next_many(&mut client, "bills", &[1, 3]).await);
    assert_refused(raise(&mut client, 4, 9).await);
    let many = RaiseManyRequest {
        namespace: "book".into(),
        ids: vec![1, 5],
        at_least: vec![9, 9],
        ..RaiseManyRequest::default()
    };
    assert_refused(client.sequencer.raise_many(many).await);
    let new = CreateNamespaceRequest { name: "new".into(), ..CreateNamespaceRequest::default() };
    assert_refused(create(&mut client, new.clone()).await);

    // These are ten steps, and as many bumps.
    for _ in 0..10 {
        client.try_next("book", id(1), 10_000).await.unwrap();
    }
    client.try_next("uid", id(2), 1).await.expect("a new key of a section that is there");
    client.try_next("bills", id(1), 1).await.unwrap();
    raise(&mut client, 1, 1_000_000).await.unwrap();

    // The free space is above the reserve, but not by enough.
    disks[0].set_free_mb(RESERVE_MB + 1);
    eventually("the next measurement", async || {
        let free = client.status().await.unwrap().disk?.free_bytes;
        (free == Some((RESERVE_MB + 1) << 20)).then_some(())
    })
    .await;
    assert_eq!(client.next(2).await.unwrap_err().code(), Code::ResourceExhausted);

    disks[0].set_free_mb(RESERVE_MB + RESERVE_MB / 4);
    until_low(&cluster, 1, false).await;
    assert_eq!(client.next(2).await.unwrap(), 1);
    client.try_next("uid", id(1_000_000), 1).await.unwrap();
    client.try_next("bills", id(2), 1).await.unwrap();
    raise(&mut client, 4, 9).await.unwrap();
    create(&mut client, new).await.unwrap();
    assert_eq!(gauge(&cluster, 1, "ratchet_disk_low").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_decides_by_its_own_disk_and_a_follower_whose_disk_is_low_says_so() {
    let (cluster, disks) = cluster(3).await;
    let leader = cluster.leader().await;
    let follower = other_than(leader);
    disks[follower as usize - 1].set_free_mb(1);
    until_low(&cluster, follower, true).await;
    assert_eq!(gauge(&cluster, follower, "ratchet_disk_low").await, 1.0);
    assert_eq!(gauge(&cluster, follower, "ratchet_new_keys_refused{set=\"1\"}").await, 0.0);
    let mut client = cluster.client(follower);
    client.next(1).await.unwrap();
    assert_eq!(gauge(&cluster, leader, "ratchet_disk_low").await, 0.0);
    assert_eq!(gauge(&cluster, leader, "ratchet_new_keys_refused{set=\"1\"}").await, 0.0);

    disks[leader as usize - 1].set_free_mb(RESERVE_MB - 1);
    until_low(&cluster, leader, true).await;
    assert_refused(client.next(2).await);
    client.next(1).await.expect("a key in use goes on");
}

/// Waits until the leader refuses new keys for the disk of `follower`, which has this much room.
async fn until_refused_for(cluster: &Cluster, leader: u64, follower: u64, free_mb: u64) {
    let mut client = cluster.client(leader);
    // One that is let in is new no more.
    let mut new = 1_000 * free_mb..;
    let refused = eventually("new keys are refused", async || {
        let key = new.next().expect("a key");
        client.next(key).await.err()
    });
    let refused = refused.await;
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert_eq!(reason_of(&refused).0, Reason::DiskReserve);
    let whose = format!("{free_mb} MB are free on the disk of node {follower}");
    for part in ["no majority", &whose] {
        assert!(refused.message().contains(part), "{part:?} is not in {refused}");
    }
    let page = eventually("the probe says so", async || {
        let metrics = cluster.nodes[&leader].addresses().metrics.expect("a metrics port");
        let page = http_get(metrics, "/readyz").await;
        page.body.contains(&whose).then_some(page)
    });
    assert_eq!(page.await.status, 200, "keys in use go on");
    assert_eq!(gauge(cluster, leader, "ratchet_new_keys_refused{set=\"1\"}").await, 1.0);
    assert_eq!(gauge(cluster, leader, "ratchet_disk_low").await, 0.0);
    let disk = client.status().await.unwrap().disk.expect("the leader's disk");
    assert!(disk.refuses_new_keys.contains(&whose) && !disk.low, "{disk:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_keys_are_refused_while_the_voters_whose_disks_have_room_are_no_majority() {
    let (mut cluster, disks) = cluster(3).await;
    let leader = cluster.leader().await;
    let [first, second] = others(leader);
    let mut client = cluster.client(leader);
    let invoices = CreateNamespaceRequest {
        name: "bills".into(),
        gapless: true,
        request_id_optional: true,
        ..CreateNamespaceRequest::default()
    };
    create(&mut client, invoices).await.unwrap();
    client.next(1).await.unwrap();
    client.try_next("bills", id(1), 1).await.unwrap();

    let set_free = |node: u64, free_mb| disks[node as usize - 1].set_free_mb(free_mb);
    set_free(first, 8);
    set_free(second, 7);
    until_refused_for(&cluster, leader, second, 7).await;
    client.next(1).await.expect("a key in use goes on");
    client.try_next("bills", id(1), 1).await.expect("a gapless key in use goes on");
    let new = CreateNamespaceRequest { name: "new".into(), ..CreateNamespaceRequest::default() };
    for refused in [
        client.try_next("bills", id(2), 1).await.map(drop),
        raise(&mut client, 4, 9).await,
        create(&mut client, new).await,
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(reason_of(&refused).0, Reason::DiskReserve, "{refused}");
        assert!(refused.message().contains("on the disk of node"), "{refused}");
    }

    set_free(second, 2 * RESERVE_MB);
    eventually("a majority has room", async || client.next(3).await.ok()).await;
    client.try_next("bills", id(2), 1).await.unwrap();
    assert_eq!(gauge(&cluster, leader, "ratchet_new_keys_refused{set=\"1\"}").await, 0.0);

    // The other follower is gone: without the one whose disk is low there is no majority.
    cluster.crash(second).await;
    until_refused_for(&cluster, leader, first, 8).await;
    client.next(1).await.expect("a key in use goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voter_that_answers_late_counts_for_a_while_as_one_whose_disk_has_room() {
    // The timeout is below the 1.5 s for which the voter counts at least.
    let times =
        |config: &mut Config| (config.election_timeout_ms, config.lease_ms) = (1_400, 1_300);
    let (cluster, disks) = cluster_with(3, times).await;
    let low = other_than(cluster.leader().await);
    disks[low as usize - 1].set_free_mb(8);
    until_low(&cluster, low, true).await;
    // On a slow machine the third one may be late by itself.
    let mut client = cluster.client(low);
    eventually("the other two are a majority", async || client.next(1).await.ok()).await;
    // On a slow machine another leader may be elected before the late one counts no more: then this begins again.
    let silent_ms = eventually("one leader for so long", async || {
        cluster.mend();
        let leader = cluster.leader().await;
        if leader == low {
            // Whether it could hand over, the next round sees.
            let _ = cluster.client(leader).transfer(other_than(low)).await;
            return None;
        }
        let late = 6 - leader - low;
        let node = cluster.nodes[&leader].context();
        let term = node.group.leadership().borrow().term;
        let still_leads = || {
            let now = node.group.leadership().borrow().clone();
            now.term == term && now.own.is_some()
        };
        until("the late one answers", || node.group.low_voter().is_none()).await;
        cluster.links.cut(leader, cluster.configs[&late].peer_listen.to_string());
        let counts =
            eventually("the late one counts no more", async || match node.group.low_voter() {
                Some(counts) => Some(Some(counts)),
                None => (!still_leads()).then_some(None),
            });
        let counts = counts.await?;
        let nodes = node.services.status.now().nodes;
        let late = nodes.iter().find(|one| one.id == late).expect("a member");
        // In a later term it has not answered yet, and does not count.
        if !still_leads() || late.unheard_in_term {
            return None;
        }
        assert_eq!(counts.follower, Some(low));
        late.silent_ms
    });
    let silent_ms = silent_ms.await;
    assert!(silent_ms >= 1_500, "it counted for {silent_ms} ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_keeps_to_its_part_of_the_reserve() {
    // A quarter of a megabyte of the log is kept, and not the 256 MB of the default.
    let cluster = Cluster::start(1, |config| config.disk_reserve_mb = 1).await;
    let mut client = cluster.client(1);
    let group = &cluster.nodes[&1].context().group;
    let mut first_half = None;
    for first in (0..60_000).step_by(10_000) {
        client.next_of_each((first..first + 10_000).collect()).await.unwrap();
        if first < 30_000 {
            first_half = group.membership.log_state().last;
        }
    }
    // Some entries always stay.
    for key in 80_000..80_100 {
        client.next(key).await.unwrap();
    }
    // The second half has a megabyte.
    assert!(first_half.is_some());
    until("the first half is purged", || group.purged_index() >= first_half).await;
}

//! A disk that fills up stops nobody: below the reserve new keys and namespaces are refused, and keys in use go on.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::common::{
    Client,
    cluster::Cluster,
    disk::Disk,
    eventually, free_ports, http_get, id, in_time,
    openmetrics::{parse, value},
    other_than, own_ip,
    processes::{Process, ratchet},
    until, with_metrics,
};
use ratchet::proto::{
    retry_after_ms,
    v1::{
        CreateNamespaceRequest, NextManyRequest, NextManyResponse, RaiseManyRequest, RaiseRequest,
    },
};
use tempfile::TempDir;
use tonic::{Code, Status};

/// The reserve of all nodes here, in megabytes.
const RESERVE_MB: u64 = 1_000;

/// `n` nodes, each with a disk of its own.
async fn cluster(n: u64) -> (Cluster, Vec<Disk>) {
    let mut cluster = Cluster::configured(n, |config| {
        with_metrics(config);
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

/// Waits until the node says that it is ready, and says that its disk is low, or nothing of it; answers what it says.
async fn until_low(cluster: &Cluster, node: u64, low: bool) -> String {
    let metrics = cluster.nodes[&node].addresses().metrics.expect("a metrics port");
    eventually("what the node says of its disk", async || {
        let page = http_get(metrics, "/readyz").await;
        assert_eq!(page.status, 200, "keys in use go on: {}", page.body);
        (page.body.contains("nearly full") == low).then_some(page.body)
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
        timeout_ms: 5_000,
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

/// Of a message for two keys, the second of which is new.
fn assert_second_refused(answer: &NextManyResponse) {
    assert!(answer.firsts[0] > 0, "{answer:?}");
    let refused = answer.refused.first().expect("some keys are refused");
    assert_eq!(refused.places, [1], "{answer:?}");
    let why = refused.failure.clone().expect("a reason");
    assert_refused(Err::<(), _>(Status::from(why)));
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

    // Ten steps: so many bumps.
    for _ in 0..10 {
        client.try_next("book", id(1), 10_000).await.unwrap();
    }
    client.try_next("uid", id(2), 1).await.expect("a new key of a section that is there");
    client.try_next("bills", id(1), 1).await.unwrap();
    raise(&mut client, 1, 1_000_000).await.unwrap();

    // More than the reserve, and not by enough.
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
    let mut client = cluster.client(follower);
    client.next(1).await.unwrap();
    assert_eq!(gauge(&cluster, leader, "ratchet_disk_low").await, 0.0);

    disks[leader as usize - 1].set_free_mb(RESERVE_MB - 1);
    until_low(&cluster, leader, true).await;
    assert_refused(client.next(2).await);
    client.next(1).await.expect("a key in use goes on");
}

/// A file system in memory, of so many megabytes. It is gone once this is dropped.
struct SmallDisk {
    /// The file system is mounted where this process, and what it starts, alone sees it.
    _holder: Process,
    root: PathBuf,
    _dir: TempDir,
}

impl SmallDisk {
    fn of_mb(megabytes: u64) -> SmallDisk {
        let dir = TempDir::new().unwrap();
        let at = dir.path().display();
        let mount =
            format!("mount -t tmpfs -o size={megabytes}m tmpfs {at} && echo mounted && exec cat");
        let mut holder = Command::new("unshare");
        holder.args(["--map-root-user", "--mount", "sh", "-c", &mount]);
        holder.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().expect("unshare, of util-linux");
        let mut told = BufReader::new(holder.stdout.take().expect("a pipe"));
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n", "a user may mount a file system in a name space of its own");
        let root = Path::new("/proc").join(holder.id().to_string()).join("root");
        let root = root.join(dir.path().strip_prefix("/").unwrap());
        SmallDisk { _holder: Process(holder), root, _dir: dir }
    }

    /// Fills it to the last byte.
    fn fill(&self) -> PathBuf {
        let path = self.root.join("filler");
        let mut file = File::create(&path).unwrap();
        for block in [1 << 20, 1 << 12] {
            let zeros = vec![0; block];
            while file.write(&zeros).is_ok_and(|written| written > 0) {}
        }
        path
    }
}

/// A node of a cluster of one on a small disk.
struct OnSmallDisk {
    listen: SocketAddr,
    command: Command,
}

impl OnSmallDisk {
    fn new(disk: &SmallDisk) -> OnSmallDisk {
        let [listen, peer_listen] = free_ports(own_ip());
        let mut command = ratchet();
        command.args(["start", "--dev", "--listen", &listen.to_string()]);
        command.args(["--peer-listen", &peer_listen.to_string(), "--metrics-listen", "off"]);
        command.args(["--http-listen", "off", "--resp-listen", "off", "--data-dir"]);
        command.arg(disk.root.join("data")).stderr(File::create(disk.root.join("log")).unwrap());
        OnSmallDisk { listen, command }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_on_a_disk_without_any_room_starts_again_and_keys_in_use_go_on() {
    let disk = SmallDisk::of_mb(200);
    let mut node = OnSmallDisk::new(&disk);
    let mut running = Process(node.command.spawn().unwrap());
    let mut client = Client::new(node.listen);
    client.next_at_last(1).await;
    let spare = disk.root.join("data/SPARE");
    until("the spare is there", || spare.exists()).await;
    let filler = disk.fill();
    drop(running);
    running = Process(node.command.spawn().unwrap());
    client.next_at_last(1).await;
    assert!(!spare.exists());
    assert_eq!(client.next(2).await.unwrap_err().code(), Code::ResourceExhausted);
    client.next(1).await.unwrap();

    std::fs::remove_file(filler).unwrap();
    client.next_at_last(2).await;
    until("the spare is there again", || spare.exists()).await;
    drop(running);
}

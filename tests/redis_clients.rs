//! Clients that people have for Redis, unmodified: redis-cli, redis-benchmark, redis-py and redis-rs. `cluster/test`
//! installs the first three.

use std::{
    net::SocketAddr,
    process::{Command, Stdio},
};

use crate::common::{cluster::Cluster, other_than, until, with_resp};
use ratchet::proto::v1::CreateNamespaceRequest;
use tokio::task::spawn_blocking;

/// A cluster of three, and the addresses of its leader and of a follower for Redis clients.
async fn start() -> (Cluster, SocketAddr, SocketAddr) {
    let cluster = Cluster::start(3, with_resp).await;
    let leader = cluster.leader().await;
    // The namespace of the keys that redis-benchmark makes up.
    let counter =
        CreateNamespaceRequest { name: "counter".to_owned(), ..CreateNamespaceRequest::default() };
    let mut client = cluster.client(leader);
    client.admin.create_namespace(counter).await.expect("created");
    let address = |id: u64| cluster.nodes[&id].addresses().resp.expect("a port");
    let (here, there) = (address(leader), address(other_than(leader)));
    (cluster, here, there)
}

/// Runs a program to its end. Returns its output.
async fn run(program: &'static str, args: Vec<String>) -> String {
    let ran = spawn_blocking(move || {
        let ran = Command::new(program).args(&args).stdin(Stdio::null()).output();
        ran.unwrap_or_else(|error| {
            panic!("{program}: {error}; cluster/prerequisites --tests installs it")
        })
    });
    let output = ran.await.expect("it ran");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{program}: {printed}{complained}");
    printed
}

/// Runs a script with Debian's Python: another one on the PATH does not see Debian's packages.
async fn python(script: &str, addresses: [SocketAddr; 2]) {
    let addresses = addresses.iter().map(ToString::to_string);
    let args = ["-c".to_owned(), script.to_owned()];
    run("/usr/bin/python3", args.into_iter().chain(addresses).collect()).await;
}

fn at(address: SocketAddr, more: &[&str]) -> Vec<String> {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let args = ["-h", &host, "-p", &port].into_iter().chain(more.iter().copied());
    args.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_cli_takes_numbers_and_reads_the_list_of_commands() {
    let (_cluster, here, there) = start().await;
    let cli =
        async |address, more: &[&str]| run("redis-cli", at(address, more)).await.trim().to_owned();
    let first: u64 = cli(here, &["INCR", "book:42"]).await.parse().expect("a number");
    let second: u64 = cli(there, &["INCR", "book:42"]).await.parse().expect("a number");
    assert!(second > first, "{second} after {first}");
    assert_eq!(cli(there, &["INCRBY", "book:42", "10"]).await, (second + 10).to_string());
    assert_eq!(cli(here, &["GET", "book:42"]).await, (second + 10).to_string());
    assert_eq!(cli(here, &["-3", "GET", "book:42"]).await, (second + 10).to_string());
    assert!(cli(here, &["SET", "book:42", "1"]).await.contains("numbers only grow"));
    assert_eq!(cli(here, &["COMMAND", "COUNT"]).await, "27");
    let docs = cli(here, &["COMMAND", "DOCS", "incr"]).await;
    assert!(docs.contains("Takes the next number of a key"), "{docs}");
    assert!(cli(there, &["INFO"]).await.contains("role:master"));
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_benchmark_gets_as_many_numbers_as_it_asks_for() {
    let (cluster, here, there) = start().await;
    let before = numbers(&cluster);
    let load = ["-t", "incr", "-r", "1000", "-n", "20000", "-q", "--csv"];
    for (address, depth) in [(here, "1"), (here, "100"), (there, "16")] {
        let more: Vec<&str> = load.into_iter().chain(["-P", depth, "-e"]).collect();
        let printed = run("redis-benchmark", at(address, &more)).await;
        assert!(printed.contains("\"INCR\""), "{printed}");
    }
    assert!(numbers(&cluster) - before >= 60_000);
}

/// How many numbers the nodes handed out.
fn numbers(cluster: &Cluster) -> u64 {
    let nodes = cluster.nodes.values();
    nodes.map(|node| node.context().metrics.numbers.get()).sum()
}

const PYTHON: &str = r#"
import sys, redis
here, there = (redis.Redis(host=host, port=int(port)) for host, port in (arg.split(":") for arg in sys.argv[1:]))
assert here.ping() and there.ping()
first = here.incr("book:7")
assert there.incr("book:7") > first
assert here.incrby("book:7", 5) == first + 6
assert int(there.get("book:7")) == first + 6
assert there.mget("book:7", "book:8") == [str(first + 6).encode(), None]
assert here.exists("book:7", "book:8") == 1
assert here.type("book:7") == b"string"
pipeline = here.pipeline(transaction=False)
for _ in range(1000):
    pipeline.incr("book:7")
assert pipeline.execute() == list(range(first + 7, first + 1007))
# A transaction, unless it is told otherwise.
transaction = there.pipeline()
transaction.incr("book:7").get("book:7").incr("book:7", 3)
assert transaction.execute() == [first + 1007, str(first + 1007).encode(), first + 1010]
transaction.incr("book:7").delete("book:7")
try:
    transaction.execute()
    raise AssertionError("it was carried out")
except redis.ResponseError as refused:
    assert "numbers only grow" in str(refused)
assert int(here.get("book:7")) == first + 1010
assert here.set("book:7", 5, nx=True) is None and here.setnx("book:9", 0) and not here.setnx("book:7", 5)
try:
    here.set("book:7", 1)
    raise AssertionError("it was set")
except redis.ResponseError as refused:
    assert "numbers only grow" in str(refused)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn redis_py_takes_numbers_in_pipelines_and_sees_errors() {
    let (_cluster, here, there) = start().await;
    python(PYTHON, [here, there]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_rs_takes_numbers_in_both_versions_of_the_protocol() {
    let (_cluster, here, there) = start().await;
    let asking = spawn_blocking(move || {
        let mut last = 0;
        for url in [format!("redis://{here}/"), format!("redis://{there}/?protocol=resp3")] {
            let client = redis::Client::open(url).expect("a client");
            let mut connection = client.get_connection().expect("a connection");
            let mut pipeline = redis::pipe();
            (0..100).for_each(|_| {
                pipeline.cmd("INCR").arg("book:9");
            });
            let numbers: Vec<u64> = pipeline.query(&mut connection).expect("numbers");
            assert!(
                numbers[0] > last && numbers.is_sorted_by(|one, next| one < next),
                "{numbers:?}"
            );
            last = numbers[99];
            let current: Option<u64> =
                redis::cmd("GET").arg("book:9").query(&mut connection).expect("it");
            assert_eq!(current, Some(last));
            let none: Option<u64> =
                redis::cmd("GET").arg("book:10").query(&mut connection).expect("none");
            assert_eq!(none, None);
        }
    });
    asking.await.expect("it ran");
}

const PYTHON_CLUSTER: &str = r#"
import sys, time
from redis.cluster import RedisCluster
host, port = sys.argv[1].split(":")
# On a slow machine a node may not be heard for a moment. It is left out then.
for _ in range(300):
    cluster = RedisCluster(host=host, port=int(port))
    nodes = cluster.get_nodes()
    if len(nodes) == 3:
        break
    time.sleep(.1)
assert len(nodes) == 3, nodes
primaries = [f"{node.host}:{node.port}" for node in cluster.get_primaries()]
assert primaries == [sys.argv[2]], primaries
first = cluster.incr("book:11")
assert cluster.incr("book:11") > first
assert int(cluster.get("book:11")) == first + 1
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_redis_clusters_finds_the_leader_from_any_node() {
    let (cluster, here, there) = start().await;
    let all_told = || {
        cluster.nodes.values().all(|node| node.context().services.members.resp_nodes().len() == 3)
    };
    until("all nodes know each other's ports", all_told).await;
    python(PYTHON_CLUSTER, [there, here]).await;
    let nodes = run("redis-cli", at(there, &["CLUSTER", "NODES"])).await;
    assert_eq!(nodes.matches("master").count(), 1, "{nodes}");
    assert_eq!(nodes.matches("slave").count(), 2, "{nodes}");
    let told = run("redis-cli", at(there, &["CLUSTER", "SHARDS"])).await;
    assert!(told.contains("replica") && told.contains(&here.port().to_string()), "{told}");
}

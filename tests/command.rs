//! The `ratchet` command, as a shell sees it: output, errors and exit codes.

use std::process::Output;

use crate::common::{
    eventually, free_ports, other_than, own_ip,
    processes::{Processes, ratchet, run},
};
use serde_json::Value;

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn failed(output: &Output, exit: i32, says: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{stderr}");
    for part in says {
        assert!(stderr.contains(part), "{part:?} is not in: {stderr}");
    }
}

/// Asks the leader. On a busy machine another node would be left before it has answered, and numbers be skipped.
async fn ask(cluster: &Processes, args: &[&str]) -> Output {
    let told = async || cluster.client(1).status().await.expect("a status").leader;
    let leader = eventually("a leader", told).await;
    let mut command = ratchet();
    command.args(args).env("RATCHET_SERVER", cluster.places[&leader].listen.to_string());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_namespaces_status_and_transfers_work_from_the_shell() {
    let cluster = Processes::start(3, &[]).await;
    let text = |output: Output| String::from_utf8(output.stdout).unwrap();
    assert_eq!(text(ask(&cluster, &["current", "book", "42"]).await), "none yet\n");
    assert_eq!(text(ask(&cluster, &["next", "book", "42"]).await), "1\n");
    let next = json(&ask(&cluster, &["next", "book", "42", "--count", "3", "--json"]).await);
    assert_eq!(
        (&next["first"], &next["last"], &next["increment"]),
        (&"2".into(), &"4".into(), &"1".into())
    );
    let current = json(&ask(&cluster, &["current", "book", "42", "--json"]).await);
    assert_eq!(current["last"], "4");
    let status = json(&ask(&cluster, &["status", "--json"]).await);
    let leader = status["leader"].as_str().and_then(|id| id.parse().ok()).expect("a node id");
    assert_eq!(status["nodes"].as_array().unwrap().len(), 3);
    let other = other_than(leader).to_string();
    let transfer = json(&ask(&cluster, &["transfer", &other, "--json"]).await);
    assert_eq!(transfer["leader"], *other);
    assert_eq!(text(ask(&cluster, &["next", "book", "42"]).await), "5\n");

    let id = status["cluster_id"].as_str().expect("an id");
    let meant = ask(&cluster, &["next", "book", "42", "--cluster-id", id]).await;
    assert_eq!(text(meant), "6\n");
    let other = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
    let meant = ask(&cluster, &["next", "book", "42", "--cluster-id", other, "--json"]).await;
    failed(&meant, 4, &["CLUSTER_MISMATCH", id, other]);

    let create = [
        "namespace",
        "create",
        "room",
        "--key-kind",
        "name",
        "--increment",
        "100",
        "--start",
        "100",
    ];
    assert!(ask(&cluster, &create).await.status.success());
    assert_eq!(text(ask(&cluster, &["next", "room", "lobby"]).await), "100\n");
    assert_eq!(text(ask(&cluster, &["next", "room", "lobby"]).await), "200\n");
    failed(&ask(&cluster, &create).await, 4, &["\"room\" exists"]);
    failed(&ask(&cluster, &["next", "film", "1"]).await, 3, &["ratchet namespace create film"]);
    failed(&ask(&cluster, &["next", "book", "1", "--count", "0"]).await, 4, &["count is 0"]);
    let gapless = ["namespace", "create", "invoice", "--gapless", "--json"];
    let created = json(&ask(&cluster, &gapless).await);
    let expected = serde_json::json!({
        "name": "invoice", "key_kind": "KEY_KIND_ID", "step": "10000", "step_min": "10000", "step_max": "10000",
        "increment": "1", "start": "1", "max": i64::MAX.to_string(), "section_size": "1", "gapless": true,
        "request_id_optional": false, "description": "", "redis_strings": false,
    });
    assert_eq!(created, expected, "as over HTTP");
    let list = json(&ask(&cluster, &["namespace", "list", "--json"]).await);
    assert_eq!(list["namespaces"][3], expected);
    let order = ["next", "invoice", "1", "--request-id", "order-7"];
    for _ in 0..2 {
        assert_eq!(text(ask(&cluster, &order).await), "1\n");
    }
    assert_eq!(text(ask(&cluster, &["next", "invoice", "1"]).await), "2\n");
    let reused = ["next", "invoice", "2", "--request-id", "order-7"];
    let used = "the request id was used for 1 numbers of key 1";
    failed(&ask(&cluster, &reused).await, 4, &[used]);
    failed(
        &ask(&cluster, &["next", "invoice", "1", "--request-id", ""]).await,
        4,
        &["the request id has 0 bytes; give 1 to 64"],
    );
    let delete = ["namespace", "delete", "invoice", "--confirm", "invoice", "--json"];
    assert_eq!(json(&ask(&cluster, &delete).await), serde_json::json!({"floor": "2"}));
    failed(&ask(&cluster, &["node", "remove", "9"]).await, 3, &["node 9", "1, 2, 3"]);
    let error = ask(&cluster, &["next", "film", "1", "--json"]).await;
    let error: Value = serde_json::from_slice(&error.stderr).unwrap();
    assert_eq!(error["error"]["code"], "NOT_FOUND");
}

#[test]
fn a_command_that_cannot_be_carried_out_fails_with_the_reason_and_an_exit_code() {
    failed(&run(&["next", "book"]), 2, &["<KEY>"]);
    failed(&run(&["next", "book", "1", "--count", "-1"]), 2, &["-1"]);
    let [nobody] = free_ports::<1>(own_ip()).map(|address| address.to_string());
    // On a busy machine its time may pass before the connection is refused: then it gets more.
    let mut tries = (0..10).map(|doublings| {
        let timeout_ms = (300_u64 << doublings).to_string();
        run(&["next", "book", "1", "--server", &nobody, "--timeout-ms", &timeout_ms])
    });
    let unreachable = tries.find(|ended| ended.status.code() != Some(6));
    failed(&unreachable.expect("a refusal"), 5, &[&nobody]);
    failed(&run(&["status", "--server", "not an address"]), 4, &["\"not an address\""]);
    assert!(run(&["completions", "bash"]).status.success());
}

#[test]
fn manual_pages_tell_of_each_command_and_its_variables() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    assert!(run(&["man", place]).status.success());
    let page = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(page("ratchet.1").contains("Exit codes"));
    assert!(page("ratchet-start.1").contains("RATCHET_NODE_ID"));
    assert!(page("ratchet-namespace-create.1").contains("gapless"));
    failed(&run(&["man", "/nowhere"]), 1, &["/nowhere", "manual pages"]);
}

#[test]
fn certificates_are_made_in_a_shell() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    let cert = |args: &[&str]| run(&[&["cert"], args, &["--dir", place, "--json"]].concat());
    json(&cert(&["ca"]));
    failed(&cert(&["ca"]), 4, &["INVALID_ARGUMENT", "ca.crt exists already"]);
    let node = ["node", "--cluster", "orders", "--node-id", "7", "--host", "localhost,127.0.0.1"];
    let made = json(&cert(&node));
    assert_eq!((&made["uri"], &made["node_id"]), (&"ratchet://orders/7".into(), &"7".into()));
    let short = ["client", "--cluster", "orders", "--name", "billing", "--days", "36500"];
    let short = cert(&short);
    assert_eq!(json(&short)["valid_until"].as_str().map(str::len), Some(24));
    assert!(
        String::from_utf8_lossy(&short.stderr)
            .contains("warning: the certificate ends with its CA")
    );
}

#[test]
fn a_configuration_that_cannot_work_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    // All settings have their defaults.
    let start = |more: &[&str]| {
        let mut command = ratchet();
        command.env_clear().args(["start", "--data-dir", data]).args(more);
        command.output().expect("the command runs")
    };
    let says = ["lease_ms is 280", "(300)", "(50)"];
    failed(&start(&["--lease-ms", "280"]), 78, &says);
    failed(&start(&["--node-id", "0"]), 78, &["node_id is 0"]);
    failed(&start(&["--peers", "1=127.0.0.1:0"]), 78, &["127.0.0.1:0"]);
    failed(&start(&["--dev", "--peers", "1=127.0.0.1:5"]), 78, &["--dev", "ratchet found"]);
    failed(&start(&["--listen", "0.0.0.0:7600"]), 78, &["0.0.0.0:7600", "advertise"]);
    failed(&start(&["--log", "=,="]), 78, &["\"=,=\""]);
    let mut with_a_bug = ratchet();
    with_a_bug.args(["start", "--data-dir", data]).env("RATCHET_PLANTED_BUG", "no-fenc");
    let with_a_bug = with_a_bug.output().expect("the command runs");
    failed(&with_a_bug, 78, &["RATCHET_PLANTED_BUG is \"no-fenc\"", "no such bug"]);
    let file = dir.path().join("ratchet.toml");
    std::fs::write(&file, "lease = 5\n").unwrap();
    failed(&start(&["--config", file.to_str().unwrap()]), 78, &["ratchet.toml", "lease"]);
    std::fs::write(&file, "lease_ms = 290\n").unwrap();
    failed(&start(&["--config", file.to_str().unwrap()]), 78, &["lease_ms is 290"]);
    failed(&start(&["--config", "/nowhere.toml"]), 78, &["/nowhere.toml"]);
    // Everybody on the machine could read it.
    failed(&start(&["--tinyid-tokens", "a=token"]), 2, &["unexpected argument '--tinyid-tokens'"]);
    assert!(!std::path::Path::new(data).exists(), "no directory is created");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_or_a_directory_in_use_and_a_strange_directory_are_refused() {
    let mut cluster = Processes::start(1, &[]).await;
    let place = cluster.places[&1].clone();
    let root = cluster.dir.path().to_owned();
    let dir = |name: &str| root.join(name).to_str().unwrap().to_owned();
    let free = free_ports::<3>(own_ip()).map(|address| address.to_string());
    let start = |data: &str, listen: &str, more: &[&str]| {
        let args = ["start", "--data-dir", data, "--listen", listen, "--peer-listen", &free[1]];
        let off = ["--metrics-listen=off", "--http-listen=off", "--resp-listen=off"];
        run(&[&args[..], &off, more].concat())
    };
    failed(
        &start(&dir("1"), &free[0], &["--cluster", "test"]),
        74,
        &[&dir("1"), "in use by another"],
    );
    let taken = place.listen.to_string();
    failed(&start(&dir("fresh"), &taken, &[]), 71, &[&taken, "listen"]);
    assert!(cluster.terminate(1).await.success());
    let other_node = ["--cluster", "test", "--node-id", "2"];
    failed(&start(&dir("1"), &free[0], &other_node), 78, &["node 1", "node 2", &dir("1")]);
    failed(&start(&dir("1"), &free[0], &["--cluster", "prod"]), 78, &["\"test\"", "\"prod\""]);
    std::fs::create_dir(dir("strange")).unwrap();
    std::fs::write(dir("strange") + "/thesis.txt", "mine").unwrap();
    failed(&start(&dir("strange"), &free[0], &[]), 78, &["thesis.txt"]);
    std::fs::remove_file(dir("1") + "/NODE").unwrap();
    failed(&start(&dir("1"), &free[0], &["--cluster", "test"]), 74, &["lost its files", "NODE"]);
}

/// A voter that forgot its votes could elect a second leader.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_directory_was_wiped_is_refused_and_says_what_to_do() {
    for wiped in [1, 2] {
        let mut cluster = Processes::start(3, &[]).await;
        cluster.kill(wiped);
        std::fs::remove_dir_all(cluster.dir.path().join(wiped.to_string())).unwrap();
        cluster.spawn(wiped);
        let refused = cluster.running.remove(&wiped).unwrap().ended().await;
        assert_eq!(refused.code(), Some(74));
        let log = std::fs::read_to_string(cluster.log(wiped)).unwrap();
        assert!(log.contains(&format!("ratchet node remove {wiped}")), "{log}");
        // The cluster goes on with two of three.
        cluster.client(3).next_at_last(1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_costs_its_share_of_the_time_and_another_is_asked() {
    let cluster = Processes::start(3, &[]).await;
    let leader = cluster.leader().await;
    let follower = other_than(leader);
    cluster.pause(follower);
    let servers =
        format!("{},{}", cluster.places[&follower].listen, cluster.places[&leader].listen);
    let asking = tokio::task::spawn_blocking(move || {
        run(&["next", "book", "42", "--server", &servers, "--timeout-ms", "60000"])
    });
    let output = asking.await.unwrap();
    cluster.resume(follower);
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_and_explained_in_a_shell() {
    let cluster = Processes::start(1, &[]).await;
    let text = |output: Output| String::from_utf8(output.stdout).unwrap();
    for id in ["7", "42"] {
        assert!(ask(&cluster, &["next", "book", id]).await.status.success());
    }
    let keys = text(ask(&cluster, &["keys", "book", "--limit", "1"]).await);
    assert_eq!(
        keys,
        "KEY  LAST  CEILING  EPOCH  STEP\n7    1     10000    1      10000\nmore keys follow: --page-token=CAc\n"
    );
    let next = json(&ask(&cluster, &["keys", "book", "--page-token=CAc", "--json"]).await);
    let keys = json(&ask(&cluster, &["keys", "book", "--after", "7", "--json"]).await);
    assert_eq!(next, keys);
    assert_eq!((&keys["keys"][0]["key"], &keys["next_page_token"]), (&"42".into(), &"".into()));
    let explained = text(ask(&cluster, &["explain", "book", "42"]).await);
    for part in [
        "book:42",
        "the key has a ceiling of its own",
        "10000: no greater number was handed out",
        "above 0 up to 10000",
        "9999 up to the ceiling",
    ] {
        assert!(explained.contains(part), "{part:?} is not in:\n{explained}");
    }
    let explained = json(&ask(&cluster, &["explain", "book", "42", "--json"]).await);
    assert_eq!(explained["held"]["last"], "1");
    let gaps = text(ask(&cluster, &["gaps", "book"]).await);
    // A number was handed out, of a chunk that no entry has told of yet.
    assert!(gaps.contains("nothing is accounted for, as of each key's last log entry"), "{gaps}");
    let gaps = json(&ask(&cluster, &["gaps", "book", "--json", "--days", "1"]).await);
    assert_eq!(gaps, serde_json::json!({"days": []}));
    failed(&ask(&cluster, &["gaps", "book", "--days", "32"]).await, 2, &["1..=31"]);
    failed(&ask(&cluster, &["keys", "nowhere"]).await, 3, &["\"nowhere\" does not exist"]);
    failed(&ask(&cluster, &["keys", "book", "--limit", "1001"]).await, 2, &["1..=1000"]);
    failed(&ask(&cluster, &["keys", "book", "--prefix", "4"]).await, 4, &["give after"]);
    failed(&ask(&cluster, &["explain", "book", "x"]).await, 4, &["kind name"]);
}

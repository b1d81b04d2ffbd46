//! `ratchet status` names the missing nodes, and since when each is missing.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Output, Stdio},
};

use crate::common::{
    cluster::Cluster,
    eventually, other_than, others,
    processes::{Process, Processes, ratchet},
};
use ratchet::proto::v1::{NodeStatus, StatusResponse};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The status of node `id`, once it `fits`.
async fn status_at_last(
    cluster: &Processes, id: u64, args: &[&str], fits: impl Fn(&Output) -> bool,
) -> Output {
    let server = cluster.places[&id].listen.to_string();
    eventually("a status that fits", async || {
        let mut command = ratchet();
        command.arg("status").args(args).env("RATCHET_SERVER", &server);
        let asked = tokio::task::spawn_blocking(move || command.output());
        let output = asked.await.unwrap().unwrap();
        fits(&output).then_some(output)
    })
    .await
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(bytes));
    })
}

fn node(status: &Value, id: u64) -> &Value {
    let id = id.to_string();
    let mut nodes = status["nodes"].as_array().unwrap().iter();
    nodes.find(|node| node["id"] == *id).expect("a member")
}

#[tokio::test(flavor = "multi_thread")]
async fn status_fails_with_an_exit_code_of_its_own_when_a_voter_is_missing_and_when_no_leader_is_left()
 {
    let mut cluster = Processes::start(3, &[]).await;
    let leader = cluster.leader().await;
    let others = others(leader);
    // The members greet each other within moments.
    let all_known = |output: &Output| {
        let nodes = json(&output.stdout)["nodes"].clone();
        let mut nodes = nodes.as_array().unwrap().iter();
        output.status.success()
            && nodes.all(|node| node["build"]["commit"] == ratchet::version::COMMIT)
    };
    let output = status_at_last(&cluster, others[0], &["--json"], all_known).await;
    let status = json(&output.stdout);
    assert_eq!(status["serving"], true);
    assert_eq!(status["leader"], leader.to_string());
    assert_eq!(status["memory"]["bytes_max"], (2_048u64 << 20).to_string());
    assert_eq!(status["clock"]["makes_ids"], true);
    assert_eq!(node(&status, leader)["role"], "ROLE_LEADER");
    assert_eq!(node(&status, leader)["build"]["version"], ratchet::version::VERSION);
    assert_eq!(node(&status, leader).get("silent_ms"), None);
    assert!(node(&status, others[1])["lag"].is_string(), "{status}");
    assert_eq!(node(&status, others[1])["missing"], false);

    cluster.kill(others[1]);
    let exit = |code| move |output: &Output| output.status.code() == Some(code);
    let output = status_at_last(&cluster, others[0], &["--json"], exit(7)).await;
    let status = json(&output.stdout);
    let killed = node(&status, others[1]);
    assert_eq!((&killed["missing"], &killed["role"]), (&true.into(), &"ROLE_FOLLOWER".into()));
    let silent_ms = killed["silent_ms"].as_str().and_then(|ms| ms.parse::<u64>().ok());
    assert!(silent_ms >= Some(300), "{killed}");
    assert_eq!(node(&status, others[0])["missing"], false);
    assert_eq!(json(&output.stderr)["error"]["code"], "VOTER_MISSING");
    let output = status_at_last(&cluster, others[0], &[], exit(7)).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("missing voter") && text.contains(" ago "), "{text}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(&format!("node {} was not heard for", others[1])), "{error}");

    cluster.kill(others[0]);
    let output = status_at_last(&cluster, leader, &["--json"], exit(5)).await;
    let status = json(&output.stdout);
    assert_eq!(status["serving"], false);
    assert_eq!(status["nodes"].as_array().unwrap().len(), 3, "in full");
    assert_eq!(json(&output.stderr)["error"]["code"], "UNAVAILABLE");
}

/// The leader's entry about a node, once it `fits`.
async fn seen(
    cluster: &Cluster, leader: u64, id: u64, fits: impl Fn(&NodeStatus) -> bool,
) -> NodeStatus {
    eventually("a node whose status fits", async || {
        let status: StatusResponse = cluster.nodes[&leader].context().services.status.now();
        let mut nodes = status.nodes.into_iter();
        nodes.find(|node| node.id == id && fits(node))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashed_learner_is_missing_also_for_a_new_leader_that_never_heard_it() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    cluster.add_learner(leader, 4).await;
    seen(&cluster, leader, 4, |node| node.silent_ms.is_some() && !node.unheard_in_term).await;
    cluster.crash(4).await;
    let learner = seen(&cluster, leader, 4, |node| node.missing).await;
    assert!(!learner.voter && !learner.unheard_in_term, "{learner:?}");

    let next = other_than(leader);
    cluster.lead(next).await;
    let learner = seen(&cluster, next, 4, |node| node.missing).await;
    assert!(learner.unheard_in_term, "{learner:?}");
    // The leader's own promise to itself needs no answer; the others answer.
    let own = seen(&cluster, next, next, |_| true).await;
    assert_eq!((own.silent_ms, own.missing), (None, false));
    seen(&cluster, next, leader, |node| !node.missing && !node.unheard_in_term).await;
    // A follower knows nothing of the others.
    let status = cluster.nodes[&leader].context().services.status.now();
    assert!(!status.serving && status.nodes.iter().all(|node| node.silent_ms.is_none()));
}

/// Starts `ratchet status --watch`. Returns the process and its output.
fn watch(cluster: &Processes, args: &[&str]) -> (Process, BufReader<ChildStdout>) {
    let mut child: Child = ratchet()
        .args(["status", "--watch", "1"])
        .args(args)
        .env("RATCHET_SERVER", cluster.places[&1].listen.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let reader = BufReader::new(child.stdout.take().unwrap());
    (Process(child), reader)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_until_it_is_interrupted_or_nobody_reads() {
    let mut cluster = Processes::start(1, &[]).await;
    let (watching, reader) = watch(&cluster, &["--json"]);
    let mut lines = reader.lines();
    let mut next = || json(lines.next().expect("a line").unwrap().as_bytes());
    let first = next();
    assert_eq!(first["serving"], true);
    // It goes on while the cluster is gone.
    cluster.kill(1);
    cluster.spawn(1);
    while next()["term"] == first["term"] {}
    kill_process(Pid::from_child(&watching.0), Signal::INT).unwrap();
    assert!(watching.ended().await.success());

    let (watching, mut reader) = watch(&cluster, &[]);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with("cluster test"), "no screen is cleared in a pipe: {line:?}");
    drop(reader);
    assert!(watching.ended().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn status_of_several_servers_is_that_of_one_on_the_majoritys_side_of_a_partition() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    cluster.cut_off(leader);
    let other = other_than(leader);
    cluster.leader_seen_by(other, |now| now != leader).await;
    cluster.client(other).next_at_last(1).await;
    let ask = async |servers: Vec<u64>| -> Output {
        let servers = servers.iter().map(|id| cluster.address(*id).to_string());
        let servers = servers.collect::<Vec<_>>().join(",");
        let asked = tokio::task::spawn_blocking(move || {
            let mut command = ratchet();
            command.args(["status", "--json", "--server", &servers]);
            command.output().unwrap()
        });
        asked.await.unwrap()
    };
    let alone = ask(vec![leader]).await;
    assert_eq!(alone.status.code(), Some(5), "{alone:?}");
    assert_eq!(json(&alone.stdout)["serving"], false);
    let both = ask(vec![leader, other]).await;
    assert_eq!(json(&both.stdout)["serving"], true, "{both:?}");
    assert_ne!(json(&both.stdout)["leader"], leader.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn status_of_a_cluster_is_never_that_of_another_one() {
    let (cluster, foreign) = (Cluster::start(3, |_| {}).await, Cluster::start(1, |_| {}).await);
    let leader = cluster.leader().await;
    let id = cluster.nodes[&leader].context().services.status.now().cluster_id;
    cluster.cut_off(leader);
    cluster.leader_seen_by(other_than(leader), |now| now != leader).await;
    let servers = format!("{},{}", cluster.address(leader), foreign.address(1));
    let mut command = ratchet();
    command.args(["status", "--json", "--server", &servers, "--cluster-id", &id]);
    let asked = tokio::task::spawn_blocking(move || command.output().unwrap());
    let status = asked.await.unwrap();
    assert_eq!(status.status.code(), Some(5), "{status:?}");
    assert_eq!(json(&status.stdout)["cluster_id"], *id, "{status:?}");
}

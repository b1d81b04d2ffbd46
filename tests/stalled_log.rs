//! A log that nobody reads holds up nobody.

use std::{
    fs,
    net::SocketAddr,
    process::{Command, Stdio},
};

use crate::common::{
    Client, eventually, free_ports, http_get,
    openmetrics::{parse, value},
    own_ip,
    processes::{Process, ratchet},
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The command that starts a node of a cluster of one, where its clients reach it, and where its metrics are.
fn start(mut command: Command, dir: &TempDir) -> (Command, SocketAddr, SocketAddr) {
    let [listen, peer_listen, metrics] = free_ports(own_ip());
    command.args(["start", "--dev", "--http-listen", "off", "--resp-listen", "off"]);
    command.args(["--listen", &listen.to_string(), "--peer-listen", &peer_listen.to_string()]);
    command.args(["--metrics-listen", &metrics.to_string(), "--data-dir"]);
    command.arg(dir.path().join("data"));
    (command, listen, metrics)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_log_nobody_reads_serves_counts_the_lines_and_stops() {
    let dir = TempDir::new().unwrap();
    let (mut command, listen, metrics) = start(ratchet(), &dir);
    // A pipe holds 64 KiB.
    command.args(["--log", "trace"]).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut node = Process(command.spawn().unwrap());
    let unread = node.0.stderr.take().expect("a pipe");
    let mut client = Client::new(listen);
    client.next_at_last(1).await;
    eventually("lines are dropped", async || {
        for _ in 0..100 {
            client.next(1).await.expect("a number");
        }
        let page = http_get(metrics, "/metrics").await;
        (value(&parse(&page.body), "process_log_lines_dropped_total") > 0.0).then_some(())
    })
    .await;
    kill_process(Pid::from_child(&node.0), Signal::TERM).unwrap();
    let status = node.ended().await;
    assert!(status.success(), "{status}");
    drop(unread);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_must_stop_ends_although_nobody_reads_why() {
    let dir = TempDir::new().unwrap();
    let (mut command, listen, _) = start(ratchet(), &dir);
    fs::create_dir(dir.path().join("data")).unwrap();
    fs::write(dir.path().join("data/stranger"), "").unwrap();
    // The pipe is full before the node writes a word.
    let (reader, writer) = std::io::pipe().unwrap();
    fill(&writer);
    command.stderr(writer).stdout(Stdio::null());
    let node = Process(command.spawn().unwrap());
    let status = node.ended().await;
    assert_eq!(status.code(), Some(78), "{listen}");
    drop(reader);
}

/// Fills a pipe.
fn fill(pipe: &std::io::PipeWriter) {
    let flags = rustix::fs::fcntl_getfl(pipe).unwrap();
    rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while rustix::io::write(pipe, &[b'.'; 4_096]).is_ok() {}
    rustix::fs::fcntl_setfl(pipe, flags).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_started_to_ignore_sighup_goes_on_ignoring_it() {
    let dir = TempDir::new().unwrap();
    let mut nohup = Command::new("sh");
    nohup.env_clear().stdin(Stdio::null());
    nohup.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ratchet")]);
    let (mut command, listen, _) = start(nohup, &dir);
    let node = Process(command.stderr(Stdio::null()).spawn().unwrap());
    let mut client = Client::new(listen);
    client.next_at_last(1).await;
    let status = fs::read_to_string(format!("/proc/{}/status", node.0.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
    assert_eq!(caught & 1, 0, "SIGHUP is caught: {status}");
    kill_process(Pid::from_child(&node.0), Signal::HUP).unwrap();
    client.next(1).await.expect("it goes on");
}

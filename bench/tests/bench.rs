//! `ratchet-bench run` measures, compares, and leaves nothing behind.

mod common;

use std::{
    collections::BTreeSet,
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use common::{bench, command, node, processes_of, report};
use ratchet_client::Client;
use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(300);

/// A process that dies with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_comparison_with_the_echo_is_reported_in_json_and_leaves_nothing_behind() {
    let dir = TempDir::new().unwrap();
    let plot = dir.path().join("latency.svg");
    let args = ["--against", "echo", "--seconds", "2", "--json", "--plot"];
    let output = bench(dir.path(), "run", &[&args[..], &[plot.to_str().unwrap()]].concat());
    let report = report(&output);
    for field in ["ratio_throughput", "ratio_p50", "ratio_p99", "ratio_p999"] {
        let ratio = report[field].as_f64().expect(field);
        assert!(ratio > 0.0 && ratio.is_finite(), "{field}: {ratio}");
    }
    for side in ["ratchet", "against"] {
        let side = &report[side];
        assert!(side["numbers_per_second"].as_f64().unwrap() > 0.0);
        assert!(side["p50_ns"].as_f64() <= side["p999_ns"].as_f64());
        assert!(side["server_cpu_ns_per_number"].as_f64().unwrap() > 0.0);
        assert_eq!(side["errors"], 0);
        assert_eq!(side["rounds"].as_array().unwrap().len(), 5);
    }
    let svg = std::fs::read_to_string(&plot).expect("a plot");
    assert!(svg.starts_with("<svg") && svg.contains("p99.9"), "{svg:.100}");
    std::fs::remove_file(&plot).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_eq!(processes_of(dir.path()), BTreeSet::new());
}

#[test]
fn every_interface_is_measured_in_a_closed_and_in_an_open_loop() {
    let dir = TempDir::new().unwrap();
    let few = ["--nodes", "1", "--seconds", "0.5", "--keys", "50", "--json"];
    for interface in ["unary", "stream", "client", "http", "redis"] {
        for rate in [&[][..], &["--rate", "500"]] {
            let args = [&few[..], &["--interface", interface, "--tasks", "8"], rate].concat();
            let report = report(&bench(dir.path(), "run", &args));
            assert_eq!(report["interface"], interface);
            assert_eq!(report["ratchet"]["errors"], 0, "{report}");
            assert_eq!(report["against"], Value::Null);
        }
    }
    let batch = ["--interface", "stream", "--batch", "100"];
    let report = report(&bench(dir.path(), "run", &[&few[..], &batch].concat()));
    let of = |field| report["ratchet"][field].as_f64().unwrap();
    let each = of("numbers_per_second") / of("requests_per_second");
    assert!((99.0..=101.0).contains(&each), "{each} numbers in each message");
}

#[test]
fn http_is_compared_with_a_server_whose_handler_is_empty() {
    let dir = TempDir::new().unwrap();
    let few = ["--nodes", "1", "--seconds", "2", "--rounds", "2", "--json"];
    let http = ["--interface", "http", "--against", "echo"];
    let report = report(&bench(dir.path(), "run", &[&few[..], &http].concat()));
    for (side, name) in [("ratchet", "ratchet"), ("against", "echo")] {
        let side = &report[side];
        assert_eq!(side["name"], name);
        assert_eq!(side["errors"], 0, "{report}");
        assert_eq!(side["rounds"].as_array().unwrap().len(), 2);
        assert!(side["server_cpu_ns_per_number"].as_f64().unwrap() > 0.0);
    }
    assert!(report["ratio_throughput"].as_f64().unwrap() > 0.0);
    assert!(report["ratio_p99"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_secure_run_measures_each_interface_beside_an_echo_that_is_as_secure_and_says_so() {
    let dir = TempDir::new().unwrap();
    let few = ["--secure", "--nodes", "1", "--seconds", "1", "--rounds", "1", "--keys", "50"];
    let echo = &["--against", "echo"][..];
    let batch = &["--against", "echo", "--batch", "1000"][..];
    for (interface, more) in
        [("unary", echo), ("stream", batch), ("http", echo), ("client", &[]), ("redis", &[])]
    {
        let args = [&few[..], &["--json", "--interface", interface], more].concat();
        let report = report(&bench(dir.path(), "run", &args));
        assert_eq!(report["secure"], true);
        for side in ["ratchet", "against"].iter().take(1 + usize::from(!more.is_empty())) {
            let side = &report[side];
            assert_eq!(side["errors"], 0, "{interface}: {side}");
            assert_eq!(side["secure"], true, "{interface}: {side}");
        }
    }
    let text = bench(dir.path(), "run", &[&few[..], echo].concat());
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("\nratchet, secure  ") && text.contains("\necho, secure  "), "{text}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no key is left behind");
    let plain = report(&bench(dir.path(), "run", &["--nodes", "1", "--seconds", "1", "--json"]));
    assert_eq!(plain["secure"], false);
    assert_eq!(plain["ratchet"]["secure"], Value::Null);
}

#[test]
fn handshakes_are_measured_full_and_resumed_with_and_without_certificates_of_clients() {
    let dir = TempDir::new().unwrap();
    for more in [&[][..], &["--client-certificates"]] {
        let few = ["--seconds", "2", "--rounds", "2", "--tasks", "2", "--json"];
        let report = report(&bench(dir.path(), "handshakes", &[&few[..], more].concat()));
        assert_eq!(report["client_certificates"], !more.is_empty());
        for kind in ["full", "resumed"] {
            for (side, name) in [("ratchet", "ratchet"), ("against", "echo")] {
                let side = &report[kind][side];
                assert_eq!(side["name"], name);
                assert_eq!(side["errors"], 0, "{side}");
                assert!(side["handshakes_per_second"].as_f64().unwrap() > 0.0, "{side}");
                assert!(side["server_cpu_ns_per_handshake"].as_f64().unwrap() > 0.0, "{side}");
                assert_eq!(side["rounds"].as_array().unwrap().len(), 2);
            }
            assert!(report[kind]["ratio_throughput"].as_f64().unwrap() > 0.0);
        }
    }
}

#[test]
fn the_leader_is_compared_with_a_follower_and_with_another_fence() {
    let dir = TempDir::new().unwrap();
    for against in ["follower", "quorum"] {
        let few = ["--seconds", "1", "--rounds", "1", "--keys", "50", "--json"];
        let args = [&few[..], &["--interface", "client", "--against", against]].concat();
        let report = report(&bench(dir.path(), "run", &args));
        assert_eq!(report["against"]["name"], against);
        assert_eq!(report["against"]["errors"], 0, "{report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_cluster_is_measured_and_still_runs_afterwards() {
    let dir = TempDir::new().unwrap();
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [listen, peer_listen] = ports.map(|port| port.local_addr().unwrap().to_string());
    let started = Command::new(node())
        .args(["start", "--dev", "--metrics-listen=off", "--http-listen=off", "--resp-listen=off"])
        .args(["--listen", &listen])
        .args(["--peer-listen", &peer_listen, "--data-dir"])
        .arg(dir.path().join("data"))
        .stderr(Stdio::null())
        .spawn();
    let _node = Process(started.unwrap());
    let args = ["--seconds", "0.5", "--keys", "10", "--json", "--server"];
    let report = report(&bench(dir.path(), "run", &[&args[..], &[&listen]].concat()));
    assert_eq!(report["ratchet"]["errors"], 0);
    assert_eq!(report["ratchet"]["server_cpu_ns_per_number"], Value::Null);
    let client = Client::builder().servers([listen]).timeout(PATIENCE).build().unwrap();
    client.next("book", 1).await.expect("it goes on");
}

#[test]
fn when_the_benchmark_is_killed_every_process_that_it_started_ends() {
    let dir = TempDir::new().unwrap();
    let mut command = command(dir.path(), "run");
    command.args(["--against", "echo", "--seconds", "600"]);
    let bench = Process(command.stdout(Stdio::null()).spawn().unwrap());
    let until = |enough: &dyn Fn(usize) -> bool| {
        let started = Instant::now();
        while !enough(processes_of(dir.path()).len()) {
            assert!(started.elapsed() < PATIENCE, "{:?}", processes_of(dir.path()));
            // Starting and ending processes cause no event, so look again and again.
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    // The processes are the bench, three nodes and the echo.
    until(&|count| count == 5);
    drop(bench);
    until(&|count| count == 0);
}

#[test]
fn options_that_cannot_be_carried_out_are_refused_with_the_reason() {
    let dir = TempDir::new().unwrap();
    let refused = |args: &[&str], says: &str| {
        let output = bench(dir.path(), "run", args);
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(says), "{text}");
    };
    refused(&["--against", "nothing"], "nothing");
    refused(&["--seconds", "0"], "0.5");
    refused(&["--batch", "10"], "--interface stream");
    refused(&["--server", "a:1", "--fence", "quorum"], "--fence");
    refused(&["--server", "a:1", "--against", "quorum"], "--server");
    refused(&["--server", "a:1", "--secure"], "--secure");
    let echo = ["--interface", "client", "--against", "echo", "--against-interface", "client"];
    refused(&echo, "--against-interface unary");
    let redis = ["--nodes", "1", "--interface", "redis", "--against", "echo"];
    refused(&redis, "interface redis of echo is not known");
    refused(&["--binary", "/no/such/program"], "/no/such/program");
    let missing = {
        let mut command = command(dir.path(), "run");
        command.env("PATH", "/nowhere");
        let args = ["--nodes", "1", "--seconds", "1", "--against", "redis"];
        command.args(args).output().unwrap()
    };
    let text = String::from_utf8_lossy(&missing.stderr);
    assert!(text.contains("setpriv") || text.contains("redis-server"), "{text}");
}

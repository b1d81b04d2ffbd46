//! `ratchet-bench idle` measures the cost of idle connections, and leaves nothing behind.

mod common;

use std::collections::BTreeSet;

use common::{bench, node, processes_of, report};
use serde_json::Value;
use tempfile::TempDir;

/// Few nodes, and halves of half a second.
const FEW: [&str; 6] = ["--nodes", "1", "--seconds", "0.5", "--rounds", "2"];

#[test]
fn idle_connections_at_every_interface_are_reported_in_json_and_leave_nothing_behind() {
    let _ = node();
    let dir = TempDir::new().unwrap();
    let args = [&FEW[..], &["--connections", "600", "--json"]].concat();
    let report = report(&bench(dir.path(), "idle", &args));
    assert_eq!(report["connections"], 600);
    for (interface, connections) in [("grpc", 200), ("http", 200), ("redis", 200)] {
        let interface = &report["interfaces"][interface];
        assert_eq!(interface["connections"], connections);
        assert!(interface["memory_bytes_per_connection"].is_u64());
    }
    let of = |side: &str, field: &str| report[side][field].as_f64().expect(field);
    for side in ["with", "without"] {
        assert!(of(side, "numbers_per_second") > 0.0);
        assert!(of(side, "p50_ns") <= of(side, "p99_ns"));
        assert_eq!(of(side, "errors"), 0.0);
        assert!(of(side, "leader_quiet_cpu_ns_per_second") > 0.0);
        for rounds in ["rounds", "leader_memory_bytes_of_rounds"] {
            assert_eq!(report[side][rounds].as_array().unwrap().len(), 2);
        }
    }
    let memory = |side| of(side, "leader_memory_bytes");
    // HTTP/2 alone takes kilobytes for each connection.
    assert!(memory("with") > memory("without"), "{report}");
    let more = report["memory_more_bytes"].as_f64().unwrap();
    assert_eq!(more, memory("with") - memory("without"));
    for field in ["ratio_throughput", "ratio_p50", "ratio_p99"] {
        assert!(report[field].as_f64().unwrap() > 0.0, "{field}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_eq!(processes_of(dir.path()), BTreeSet::new());
}

#[test]
fn the_other_callers_may_call_in_an_open_loop() {
    let _ = node();
    let dir = TempDir::new().unwrap();
    let args = ["--connections", "3", "--rate", "300", "--json"];
    let report = report(&bench(dir.path(), "idle", &[&FEW[..], &args].concat()));
    assert_eq!(report["rate"], 300);
    let rate = report["with"]["numbers_per_second"].as_f64().unwrap();
    // After a moment in which the machine was busy, the missed requests are made up for.
    assert!(0.0 < rate && rate < 900.0, "{rate}");
}

#[test]
fn idle_connections_that_are_not_possible_are_refused_with_the_reason() {
    let dir = TempDir::new().unwrap();
    let refused = |args: &[&str], says: &str| {
        let output = bench(dir.path(), "idle", args);
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(says), "{text}");
    };
    refused(&["--connections", "2"], "--connections");
    refused(&["--seconds", "0"], "0.5");
    // The shell lets the benchmark open few files.
    let bench = env!("CARGO_BIN_EXE_ratchet-bench");
    let limited = format!("ulimit -n 500 && {bench} idle --connections 1000 --json");
    let output = std::process::Command::new("sh")
        .args(["-c", &limited])
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    let error: Value = serde_json::from_slice(&output.stderr).expect("JSON");
    let text = error["error"]["message"].as_str().unwrap();
    assert!(text.contains("may open 500 files") && text.contains("ulimit"), "{text}");
}

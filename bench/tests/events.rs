//! `ratchet-bench failover` and `ratchet-bench handover`: the leader changes while callers go on, and the report has
//! the effects on them.

mod common;

use std::collections::BTreeSet;

use common::{bench, command, node, processes_of, report};
use serde_json::Value;
use tempfile::TempDir;

/// A short load with few keys.
const SHORT: [&str; 9] =
    ["--keys", "50", "--tasks", "8", "--at", "2", "--seconds", "4.5", "--json"];
const CLIENT: [&str; 2] = ["--interface", "client"];

fn number(value: &Value, field: &str) -> f64 {
    let number = value[field].as_f64();
    number.unwrap_or_else(|| panic!("{field} is no number in {value:.300}"))
}

/// The nodes that led, in their order.
fn leaders(event: &Value) -> Vec<u64> {
    let leaders = event["leaders"].as_array().expect("leaders");
    let id = |leader: &Value| leader["leader"].as_u64().expect("an id");
    leaders.iter().map(id).collect()
}

/// Checks that numbers flowed before and after an event, and that another node leads.
fn check_event(event: &Value) {
    assert!(number(event, "before_numbers_per_second") > 0.0);
    assert!(number(event, "silence_ms") > 0.0);
    assert!(number(event, "longest_call_ms") > 0.0);
    assert!(number(event, "p99_before_ms") > 0.0);
    let from = number(event, "slices_from_ms");
    let numbers = event["slices_numbers"].as_array().expect("slices");
    let after = numbers.len() as f64 * number(event, "slice_ms") + from;
    assert!(after > 2_000.0, "the load went on: {after} ms");
    let last = &numbers[numbers.len() - 25..];
    let last: u64 = last.iter().filter_map(Value::as_u64).sum();
    assert!(last > 0, "numbers flow at the end of the load");
    let leaders = leaders(event);
    assert_eq!(number(event, "leader_changes") as usize, leaders.len() - 1, "{leaders:?}");
    assert!(leaders.len() > 1, "{leaders:?}");
    assert_ne!(leaders[0], leaders[1]);
}

#[test]
fn a_failover_is_reported_with_its_silence_and_its_skips_and_leaves_nothing_behind() {
    let dir = TempDir::new().unwrap();
    let plot = dir.path().join("throughput.svg");
    let more = ["--repeat", "2", "--plot", plot.to_str().unwrap()];
    let args = [&SHORT[..], &CLIENT, &more].concat();
    let report = report(&bench(dir.path(), "failover", &args));
    assert_eq!(report["event"], "kill");
    assert_eq!(report["against"], Value::Null);
    let side = &report["ratchet"];
    assert_eq!(side["errors_of_all_events"], 0, "{}", side["events"][0]);
    let events = side["events"].as_array().expect("events");
    assert_eq!(events.len(), 2);
    for event in events {
        check_event(event);
        assert!(number(&event["skipped_by_cause"], "leader_change") > 0.0);
    }
    let [first, second] = [&events[0], &events[1]].map(|event| number(event, "silence_ms"));
    assert_eq!(number(side, "silence_ms"), (first + second) / 2.0);
    let svg = std::fs::read_to_string(&plot).expect("a plot");
    assert!(svg.contains("the event begins"), "{svg:.100}");
    std::fs::remove_file(&plot).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_eq!(processes_of(dir.path()), BTreeSet::new());
}

#[test]
fn the_callers_of_every_interface_go_on_after_the_leader_was_killed() {
    let dir = TempDir::new().unwrap();
    for interface in ["unary", "stream"] {
        for via in ["leader", "follower"] {
            let more = ["--interface", interface, "--via", via, "--in-flight", "4"];
            let args = [&SHORT[..], &more].concat();
            let report = report(&bench(dir.path(), "failover", &args));
            assert_eq!(report["interface"], interface);
            check_event(&report["ratchet"]["events"][0]);
        }
    }
}

#[test]
fn an_open_loop_waits_out_a_failover() {
    let dir = TempDir::new().unwrap();
    for interface in ["stream", "client"] {
        let args = [&SHORT[..], &["--interface", interface, "--rate", "2000"]].concat();
        let report = report(&bench(dir.path(), "failover", &args));
        check_event(&report["ratchet"]["events"][0]);
    }
}

#[test]
fn a_handover_skips_nothing_and_fails_no_call_of_the_client() {
    let dir = TempDir::new().unwrap();
    for by in ["transfer", "sigterm", "rolling"] {
        let args = [&SHORT[..], &CLIENT, &["--by", by]].concat();
        let report = report(&bench(dir.path(), "handover", &args));
        assert_eq!(report["event"], by);
        let event = &report["ratchet"]["events"][0];
        check_event(event);
        assert_eq!(event["refused"], Value::Null);
        assert_eq!(event["errors"], 0, "{}", event["first_error"]);
        assert_eq!(event["skipped_by_cause"]["leader_change"], 0, "{by}");
        if by == "rolling" {
            assert!(leaders(event).len() > 2, "a leader is restarted twice");
        }
    }
}

#[test]
fn another_build_is_measured_beside_with_records_of_an_earlier_term_and_shared_sections() {
    let dir = TempDir::new().unwrap();
    let node = node();
    let more = [
        ["--against-binary", node.to_str().unwrap()],
        ["--warm-records", "100"],
        ["--section-size", "1000"],
        ["--key-stride", "500"],
    ];
    let args = [&SHORT[..], &CLIENT, more.as_flattened()].concat();
    let report = report(&bench(dir.path(), "failover", &args));
    for side in ["ratchet", "against"] {
        let side = &report[side];
        assert_eq!(side["events"].as_array().unwrap().len(), 1);
        let event = &side["events"][0];
        check_event(event);
        // There are 50 keys, two in each section.
        let skipped = number(&event["skipped_by_cause"], "leader_change");
        assert!(skipped <= 25.0 * 10_000.0, "{skipped}");
        let term = event["leaders"][0]["term"].as_u64().expect("a term");
        assert!(term > 1, "the records are of an earlier term");
    }
    assert_eq!(report["section_size"], 1_000);
}

#[test]
fn options_of_events_that_cannot_be_carried_out_are_refused_with_the_reason() {
    let dir = TempDir::new().unwrap();
    let refused = |subcommand: &str, args: &[&str], says: &str| {
        let output = command(dir.path(), subcommand).args(args).output().unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(says), "{text}");
    };
    refused("failover", &["--at", "1"], "at least 2 seconds");
    refused("handover", &["--at", "5", "--seconds", "6"], "at least 2");
    refused("handover", &["--by", "prayer"], "prayer");
    refused("failover", &["--batch", "10"], "--interface stream");
    refused("failover", &["--interface", "http"], "unary, stream or client");
    let missing = ["--against-binary", "/no/such/program"];
    refused("failover", &missing, "/no/such/program");
}

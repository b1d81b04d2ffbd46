//! Tests of the table and of the verdict.

use ratchet_client::api as v1;

use super::{span, to_text, verdict};

fn node(id: u64, role: v1::Role) -> v1::NodeStatus {
    v1::NodeStatus {
        id,
        role: role.into(),
        voter: role != v1::Role::Learner,
        address: format!("10.0.0.{id}:7600"),
        log_index: Some(7),
        ..v1::NodeStatus::default()
    }
}

fn status(nodes: Vec<v1::NodeStatus>) -> v1::StatusResponse {
    v1::StatusResponse {
        waits: false,
        cluster: "c".into(),
        cluster_id: "f47ac10b-58cc-4372-a567-0e02b2c3d479".into(),
        set: 1,
        node: 1,
        leader: Some(1),
        term: 3,
        serving: true,
        memory: Some(v1::LeaderMemory { keys: 1_234, bytes: 3 << 20, bytes_max: 2_048 << 20 }),
        disk: None,
        clock: None,
        nodes,
    }
}

fn silent(mut node: v1::NodeStatus, ms: u64) -> v1::NodeStatus {
    (node.silent_ms, node.missing) = (Some(ms), ms > 300);
    node
}

#[test]
fn a_known_value_is_shown_in_the_table_and_an_unknown_one_is_a_dash() {
    let mut leader = node(1, v1::Role::Leader);
    (leader.applied_index, leader.lag) = (Some(7), Some(0));
    leader.build = Some(v1::Build { version: "0.1.0".into(), commit: "c0ffee".into() });
    let mut never = silent(node(4, v1::Role::Learner), 7_300_000);
    never.unheard_in_term = true;
    let status = status(vec![
        leader,
        silent(node(2, v1::Role::Follower), 30),
        silent(node(3, v1::Role::Follower), 61_000),
        never,
    ]);
    let text = to_text(&status);
    let lines: Vec<&str> = text.lines().collect();
    let id = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
    assert_eq!(lines[0], format!("cluster c ({id}), as node 1 sees it"));
    let columns = |line: &str| -> Vec<String> {
        let cells = line.split("  ").map(str::trim);
        cells.filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let shown = |line: usize| columns(lines[line]).join("|");
    assert_eq!(shown(1), "NODE|ROLE|TERM|LOG|APPLIED|LAG|HEARD|VERSION|ADDRESS");
    assert_eq!(shown(2), "1|leader|3|7|7|0|-|0.1.0 c0ffee|10.0.0.1:7600");
    assert_eq!(shown(3), "2|follower|3|7|-|-|now|-|10.0.0.2:7600");
    assert_eq!(shown(4), "3|missing voter|3|7|-|-|1m1s ago|-|10.0.0.3:7600");
    let learner = "4|missing learner|3|7|-|-|not for 2h1m or longer|-|10.0.0.4:7600";
    assert_eq!(shown(5), learner);
}

#[test]
fn the_verdict_names_the_missing_voters_or_the_missing_leader() {
    let follower = |id| node(id, v1::Role::Follower);
    let says = |status: &v1::StatusResponse| format!("{:?}", verdict(status));
    let healthy = status(vec![node(1, v1::Role::Leader), silent(follower(2), 10)]);
    assert!(verdict(&healthy).is_ok());
    let learner = silent(node(3, v1::Role::Learner), 10_000);
    assert!(verdict(&status(vec![learner])).is_ok(), "nobody waits for a learner");
    let mut unheard = silent(follower(3), 5_000);
    unheard.unheard_in_term = true;
    let missing = status(vec![silent(follower(2), 61_000), unheard]);
    let text = says(&missing);
    assert!(text.contains("exit: 7"), "{text}");
    assert!(
        text.contains("node 2 was not heard for 1m1s, node 3 was not heard for 5s or longer"),
        "{text}"
    );
    let alone = v1::StatusResponse { serving: false, ..missing };
    let text = says(&alone);
    assert!(text.contains("exit: 5") && text.contains("no majority"), "{text}");
    let elsewhere = v1::StatusResponse { node: 2, ..alone };
    assert!(says(&elsewhere).contains("node 1, the last known leader"));
    let nobody = v1::StatusResponse { leader: None, ..elsewhere };
    let text = says(&nobody);
    assert!(text.contains("exit: 5") && text.contains("node 2 knows no leader"), "{text}");
    let fresh = v1::StatusResponse { waits: true, nodes: vec![], ..nobody };
    let text = says(&fresh);
    assert!(text.contains("exit: 5") && text.contains("with ratchet found"), "{text}");
    assert!(to_text(&fresh).contains("node 2 sees it: it holds no data"), "{}", to_text(&fresh));
}

#[test]
fn the_leaders_memory_is_shown_with_its_bound() {
    let mut one = status(vec![node(1, v1::Role::Leader)]);
    let line = "\n1234 keys in the leader's memory: 3 MB of 2048 MB";
    assert!(to_text(&one).ends_with(line), "{}", to_text(&one));
    (one.memory, one.cluster_id) = (None, String::new());
    assert!(!to_text(&one).contains("memory"));
    assert!(to_text(&one).starts_with("cluster c, as node 1"), "an id that is not known");
}

#[test]
fn what_is_open_is_shown_of_each_node_in_a_line_of_its_own() {
    let mut nodes =
        [v1::Role::Leader, v1::Role::Follower, v1::Role::Learner].map(|role| node(1, role));
    for (node, open) in nodes.iter_mut().zip(["", "node 2 is open", "node 3 is open"]) {
        node.open = open.to_owned();
    }
    let mut some = status(nodes.to_vec());
    some.memory = None;
    assert!(to_text(&some).ends_with("\nnode 2 is open\nnode 3 is open"), "{}", to_text(&some));
}

#[test]
fn a_wall_clock_is_shown_if_nobody_else_could_say_what_time_it_is_or_a_majority_does_not_agree() {
    let mut one = status(vec![node(1, v1::Role::Leader)]);
    one.memory = None;
    let shown = |one: &v1::StatusResponse| to_text(one).lines().skip(3).collect::<String>();
    let agreed = v1::ClockStatus {
        wall_ms: 4_000_000_000_000,
        believed: true,
        makes_ids: true,
        ahead_ms: None,
        apart_max_ms: 60_000,
        alone: false,
    };
    one.clock = Some(agreed);
    assert_eq!(shown(&one), "");
    one.clock = Some(v1::ClockStatus { alone: true, ..agreed });
    let alone = "node 1 is the only voter: ids of a time go by its wall clock, which shows 2096-10-02 07:06:40 UTC";
    assert_eq!(shown(&one), alone);
    let doubted = v1::ClockStatus { believed: false, ahead_ms: Some(-90_061_000), ..agreed };
    one.clock = Some(doubted);
    let begins = "the wall clock of node 1 shows 2096-10-02 07:06:40 UTC, ";
    let runs_on = "1d1h behind those of a majority: the time of ids goes on without it";
    assert_eq!(shown(&one), format!("{begins}{runs_on}"));
    one.clock = Some(v1::ClockStatus { makes_ids: false, ahead_ms: None, ..doubted });
    let unknown = "and those of a majority are not known: no ids of a time are made";
    assert_eq!(shown(&one), format!("{begins}{unknown}"));
}

#[test]
fn a_span_is_shown_in_its_two_largest_units() {
    let spans = [0, 999, 1_000, 59_999, 60_000, 3_599_000, 3_600_000, 90_000_000];
    let told = ["0ms", "999ms", "1s", "59s", "1m0s", "59m59s", "1h0m", "1d1h"];
    assert_eq!(spans.map(span), told);
}

//! A real Prometheus scrapes real clusters. Each query of the dashboards in observe/ has a value, and each alert fires while
//! its condition holds, and is quiet after that. `cluster/test` installs Prometheus.

mod broken;
mod server;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::{Command, Stdio},
};

use crate::common::{eventually, http, id, other_than, processes::Processes};
use ratchet::proto::v1::CreateNamespaceRequest;
use serde_json::Value;
use server::{JOB, Prometheus, observe, program};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The queries of a dashboard, by the titles of their panels.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().expect("panels");
    let inside = panels.iter().flat_map(|panel| panel["panels"].as_array().into_iter().flatten());
    let mut found = Vec::new();
    for panel in panels.iter().chain(inside) {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            found.push((text(&panel["title"]), text(&target["expr"])));
        }
    }
    found
}

/// All dashboards.
fn dashboards() -> BTreeMap<String, Value> {
    let files = fs::read_dir(observe("dashboards")).expect("dashboards");
    let read = files.map(|file| {
        let file = file.expect("a file");
        let text = fs::read_to_string(file.path()).expect("text");
        let dashboard = serde_json::from_str(&text).expect("JSON");
        (file.file_name().to_string_lossy().into_owned(), dashboard)
    });
    read.collect()
}

/// The names of all rules.
fn rules() -> BTreeSet<String> {
    let text = fs::read_to_string(observe("alerts.yml")).expect("the rules");
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("- "));
    let named = lines.filter_map(|line| line.split_once(": "));
    let rules = named.filter(|(kind, _)| ["alert", "record"].contains(kind));
    let names: BTreeSet<String> = rules.map(|(_, name)| name.to_owned()).collect();
    assert!(names.len() > 20, "{names:?}");
    names
}

/// Asks for everything that a cluster does, over all interfaces, at its leader and at a follower.
async fn ask_for_everything(cluster: &Processes, leader: u64, round: u64) {
    let follower = other_than(leader);
    let (mut here, mut there) = (cluster.client(leader), cluster.client(follower));
    // A new key needs a log entry, and so do many numbers of one.
    here.next(1_000 + round).await.expect("a number");
    here.try_next("book", id(3), 10_000).await.expect("numbers");
    here.try_next("none", id(1), 1).await.expect_err("there is no such namespace");
    there.next(1).await.expect("a number");
    there.next_of_each(vec![1, 2]).await.expect("numbers");
    there.try_next("bills", id(1), 1).await.expect("a gapless number");
    let place = &cluster.places[&follower];
    let next = "POST /v1/namespaces/book/keys/1:next";
    assert_eq!(http(place.http_listen, next, "", "").await.status, 200);
    let mut redis = TcpStream::connect(place.resp_listen).await.expect("a connection");
    redis.write_all(b"INCR book:1\r\n").await.expect("sent");
    assert_eq!(redis.read_u8().await.expect("an answer"), b':');
}

#[tokio::test(flavor = "multi_thread")]
async fn each_query_of_each_panel_has_a_value_and_each_rule_is_evaluated() {
    let cluster = Processes::start(3, &[]).await;
    let leader = cluster.leader().await;
    let bills = CreateNamespaceRequest {
        name: "bills".into(),
        gapless: true,
        request_id_optional: true,
        ..CreateNamespaceRequest::default()
    };
    cluster.client(leader).admin.create_namespace(bills).await.expect("created");
    let nodes: Vec<_> = cluster.places.values().map(|place| place.metrics_listen).collect();
    let prometheus = Prometheus::start(nodes).await;

    let asking = async {
        for round in 0.. {
            ask_for_everything(&cluster, leader, round).await;
        }
    };
    let looking = async {
        for (file, dashboard) in dashboards() {
            let queries = queries(&dashboard);
            assert!(queries.len() > 3, "{file} has {} queries", queries.len());
            for (panel, query) in queries {
                let query = query.replace("$job", JOB).replace("$__rate_interval", "10s");
                // Not the 0 that stands where nothing is. (That of the alerts, `broken` asks for.)
                let query = query.strip_suffix(" or vector(0)").unwrap_or(&query);
                let what = format!("a value of {panel:?} in {file}: {query}");
                let values = eventually(&what, async || {
                    let values = prometheus.query(query).await.unwrap_or_else(|error| {
                        panic!("{file}, {panel:?}: {query}: {error}");
                    });
                    let all_are_numbers = values.values().all(|value| !value.is_nan());
                    (all_are_numbers && !values.is_empty()).then_some(values)
                })
                .await;
                let (series, value) = values.first_key_value().expect("a value");
                println!("{file}: {panel}: {query}: {} series, {series} {value}", values.len());
            }
        }
        let written = rules();
        let rules = eventually("all rules are evaluated", async || {
            let evaluated = prometheus.rules().await;
            evaluated.keys().eq(&written).then_some(evaluated)
        })
        .await;
        for (rule, error) in rules {
            assert_eq!(error, "", "{rule}");
        }
        // The values that the variable of the dashboards offers.
        let chosen = [("match[]", "ratchet_build_info")];
        let jobs = prometheus.ask("label/job/values", &chosen).await.expect("jobs");
        assert_eq!(jobs, serde_json::json!([JOB]));
    };
    tokio::select! {
        () = looking => {}
        () = asking => unreachable!("it goes on"),
    }
}

/// Runs promtool, and returns its output. Fails if promtool does.
fn promtool(args: &[&str]) -> String {
    let mut command = Command::new(program("promtool"));
    let ran = command.args(args).current_dir(observe("")).stdin(Stdio::null()).output();
    let ran = ran.unwrap_or_else(|error| {
        panic!("promtool: {error}; cluster/prerequisites --tests installs it")
    });
    let text = [ran.stdout, ran.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(ran.status.success(), "promtool {args:?}: {text}");
    text
}

#[test]
fn promtool_finds_no_fault_in_the_rules_and_they_fire_when_their_tests_want_it() {
    let checked = promtool(&["check", "rules", "alerts.yml"]);
    assert!(checked.contains("rules found"), "{checked}");
    let tested = promtool(&["test", "rules", "alerts_test.yml"]);
    assert!(tested.contains("SUCCESS"), "{tested}");
}

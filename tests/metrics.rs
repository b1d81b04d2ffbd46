//! The content of `/metrics`: its format and its names by the rules of Prometheus, its agreement with docs/metrics.md, and
//! the values that change with an event.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};

use crate::common::{
    Client,
    cluster::Cluster,
    eventually, http_get, id, in_time,
    openmetrics::{Family, parse, value},
    other_than, with_metrics,
};
use ratchet::{
    node::Config,
    proto::v1::{CreateNamespaceRequest, DeleteNamespaceRequest, NextManyRequest, RaiseRequest},
};
use tonic::Code;

async fn metrics(cluster: &Cluster, id: u64) -> BTreeMap<String, Family> {
    let address = cluster.nodes[&id].addresses().metrics.expect("a port");
    let page = http_get(address, "/metrics").await;
    assert_eq!(page.status, 200, "{}", page.head);
    let kind = "application/openmetrics-text; version=1.0.0";
    assert!(page.head.contains(kind), "{}", page.head);
    parse(&page.body)
}

/// The sample of a metric without further labels that is a Raft group's.
fn in_set(metric: &str) -> String {
    format!("{metric}{{set=\"1\"}}")
}

/// Waits until the metrics of a node fit.
async fn until_metrics(
    cluster: &Cluster, node: u64, fit: impl Fn(&BTreeMap<String, Family>) -> bool,
) {
    eventually("metrics that fit", async || fit(&metrics(cluster, node).await).then_some(())).await;
}

/// The metrics of a leader, once each of them shows something.
async fn with_all_samples(cluster: &Cluster) -> BTreeMap<String, Family> {
    let leader = cluster.leader().await;
    let mut client = cluster.client(leader);
    // The ceiling rises more than once, so that a rate is known; and a call is refused.
    for _ in 0..3 {
        client.try_next("book", id(1), 9_000).await.unwrap();
    }
    let refused = client.try_next("none", id(1), 1).await;
    assert_eq!(refused.unwrap_err().code(), Code::NotFound);
    until_metrics(cluster, leader, |now| !now["ratchet_namespace_days_left"].samples.is_empty())
        .await;
    metrics(cluster, leader).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_named_as_prometheus_wants_it() {
    let cluster = Cluster::start(3, with_metrics).await;
    let metrics = with_all_samples(&cluster).await;
    assert!(metrics.len() > 30, "{}", metrics.len());
    for (name, family) in &metrics {
        let letters = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        assert!(letters && !name.contains("__") && !name.ends_with('_'), "{name}");
        assert!(name.starts_with("ratchet_") || name.starts_with("process_"), "{name}");
        let words: Vec<&str> = name.split('_').collect();
        for reserved in ["total", "count", "sum", "bucket", "info"] {
            assert_ne!(words.last(), Some(&reserved), "{name}: the format's own ending");
        }
        for unit in [
            "ms",
            "millis",
            "milliseconds",
            "us",
            "micros",
            "microseconds",
            "nanos",
            "nanoseconds",
            "minutes",
            "hours",
            "second",
            "byte",
            "kb",
            "kib",
            "mb",
            "mib",
            "kilobytes",
            "megabytes",
            "percent",
        ] {
            assert!(!words.contains(&unit), "{name}: {unit} is no base unit");
        }
        // A unit is a suffix, and told.
        for unit in ["seconds", "bytes"] {
            let told = family.unit.as_deref() == Some(unit);
            assert_eq!(words.contains(&unit), told, "{name}");
            assert_eq!(words.last() == Some(&unit), told, "{name}");
        }
        if family.kind == "histogram" {
            check_histogram(name, family);
            assert_eq!(family.unit.as_deref(), Some("seconds"), "{name}");
        }
        let help = &family.help;
        let sentence = help.starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit());
        let ends = help.ends_with('.') && !help.ends_with("..");
        assert!(sentence && ends && !help.contains("  "), "{name}: {help:?}");
        assert!(!family.samples.is_empty(), "{name} has no sample");
    }
}

/// Checks the histogram of each value of its label, or the only one.
fn check_histogram(name: &str, family: &Family) {
    let mut histograms: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (sample, count) in &family.samples {
        let Some((_, labels)) = sample.split_once("_bucket{") else {
            continue;
        };
        let labels = labels.trim_end_matches('}').split(',');
        let (bound, others): (Vec<_>, Vec<_>) = labels.partition(|label| label.starts_with("le="));
        let bound = bound[0].trim_start_matches("le=").trim_matches('"');
        let others = others.join(",");
        let buckets = histograms.entry(others).or_default();
        buckets.push((bound.parse().expect("a bound"), *count));
    }
    assert!(!histograms.is_empty(), "{name} has no buckets");
    for (labels, mut buckets) in histograms {
        let labels = match labels.as_str() {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        let of = |sample: &str| family.samples[&format!("{name}{sample}{labels}")];
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.is_sorted_by_key(|(_, count)| *count), "{name}{labels} is not cumulative");
        let last = (f64::INFINITY, of("_count"));
        assert_eq!(buckets.last(), Some(&last), "{name}{labels}");
        assert!(of("_sum") >= 0.0);
    }
}

/// The rows of the tables in docs/metrics.md: name, kind, labels, help.
fn documented() -> BTreeMap<String, [String; 3]> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let page = std::fs::read_to_string(page).expect("docs/metrics.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let mut documented = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, help] = cells[..] else {
            panic!("{row}");
        };
        let rest = [kind, labels, help].map(|cell| cell.replace('`', ""));
        let twice = documented.insert(name.replace('`', ""), rest);
        assert!(twice.is_none(), "{name} is listed twice");
    }
    documented
}

#[tokio::test(flavor = "multi_thread")]
async fn docs_metrics_md_lists_what_there_is_and_nothing_else() {
    let cluster = Cluster::start(3, with_metrics).await;
    let metrics = with_all_samples(&cluster).await;
    let real = metrics.into_iter().map(|(name, family)| {
        // The name is written as in a query.
        let name = match family.kind.as_str() {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name,
        };
        let labels: BTreeSet<String> = (family.samples.keys())
            .filter_map(|sample| sample.split_once('{'))
            .flat_map(|(_, labels)| labels.split("\","))
            .filter_map(|label| label.split_once('='))
            .map(|(label, _)| label.to_owned())
            .filter(|label| label != "le")
            .collect();
        let labels: Vec<String> = labels.into_iter().collect();
        (name, [family.kind, labels.join(", "), family.help])
    });
    let (real, documented): (BTreeMap<_, _>, _) = (real.collect(), documented());
    for (name, row) in &real {
        let [kind, labels, help] = row;
        let line = format!("| `{name}` | {kind} | {labels} | {help} |");
        assert_eq!(documented.get(name), Some(row), "docs/metrics.md lacks this row:\n{line}");
    }
    let gone: Vec<&String> = documented.keys().filter(|name| !real.contains_key(*name)).collect();
    assert!(gone.is_empty(), "docs/metrics.md lists what is not there: {gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_counted_by_code_where_the_caller_asked() {
    let cluster = Cluster::start(3, with_metrics).await;
    let leader = cluster.leader().await;
    let follower = other_than(leader);
    let mut client = cluster.client(follower);
    let full = CreateNamespaceRequest {
        name: "full".into(),
        max: Some(3),
        ..CreateNamespaceRequest::default()
    };
    client.admin.create_namespace(full.clone()).await.unwrap();
    let before = metrics(&cluster, follower).await;
    let at_leader = metrics(&cluster, leader).await;

    let code = |status: tonic::Status| status.code();
    assert_eq!(client.try_next("none", id(1), 1).await.map_err(code), Err(Code::NotFound));
    assert_eq!(client.try_next("book", None, 1).await.map_err(code), Err(Code::InvalidArgument));
    let again = client.admin.create_namespace(full).await;
    assert_eq!(again.map(drop).map_err(code), Err(Code::AlreadyExists));
    let message = |namespace: &str, ids: &[u64]| NextManyRequest {
        namespace: namespace.to_owned(),
        ids: ids.to_vec(),
        counts: vec![2; ids.len()],
        ..NextManyRequest::default()
    };
    // Of key 1 there are two numbers, and then one; and a message fails as a whole.
    let messages = [message("full", &[1]), message("full", &[1, 2]), message("none", &[1])];
    let requests = tokio_stream::iter(messages);
    let mut answers = client.sequencer.next_many(requests).await.unwrap().into_inner();
    while answers.message().await.unwrap().is_some() {}

    let after = metrics(&cluster, follower).await;
    let grown = |code: &str| {
        let sample = format!("ratchet_errors_total{{interface=\"grpc\",code=\"{code}\"}}");
        value(&after, &sample) - value(&before, &sample)
    };
    assert_eq!(grown("INVALID_ARGUMENT"), 1.0);
    assert_eq!(grown("ALREADY_EXISTS"), 1.0);
    assert_eq!(grown("NOT_FOUND"), 2.0, "a call, and a message of a stream");
    assert_eq!(grown("OUT_OF_RANGE"), 1.0, "a key of a message");
    assert_eq!(grown("UNAVAILABLE"), 0.0);
    assert_eq!(grown("OK"), 0.0);
    let errors = |metrics: &BTreeMap<String, Family>| metrics["ratchet_errors"].samples.clone();
    assert_eq!(errors(&at_leader), errors(&metrics(&cluster, leader).await), "nobody asked there");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_the_disk_and_the_memory_are_measured() {
    let cluster = Cluster::start(3, with_metrics).await;
    let leader = cluster.leader().await;
    let mut client = cluster.client(leader);
    let before = metrics(&cluster, leader).await;
    for key in 0..100 {
        client.next(key).await.unwrap();
    }
    // An entry may be under way at any moment.
    let after = eventually("all of the log is applied", async || {
        let after = metrics(&cluster, leader).await;
        let index = |of: &str| value(&after, &in_set(&format!("ratchet_{of}_index")));
        let is_still = index("log") == index("committed") && index("log") == index("applied");
        is_still.then_some(after)
    })
    .await;
    let of = |sample: &str| value(&after, sample);
    let grown = |sample: &str| of(sample) - value(&before, sample);
    assert_eq!(grown(&in_set("ratchet_memory_keys")), 100.0);
    assert_eq!(grown(&in_set("ratchet_memory_sections")), 100.0);
    assert!(
        of(&in_set("ratchet_memory_bytes")) > 100.0 * 64.0,
        "{}",
        of(&in_set("ratchet_memory_bytes"))
    );
    assert!(grown(&in_set("ratchet_log_index")) > 0.0);
    assert!(grown("ratchet_fsync_seconds_count") > 0.0);
    assert!(grown("ratchet_fsync_seconds_sum") > 0.0);
    assert!(of("ratchet_log_bytes") > 0.0 && of("ratchet_table_bytes") > 0.0);
    let (free, size) = (of("ratchet_disk_free_bytes"), of("ratchet_disk_size_bytes"));
    assert!(0.0 < free && free < size, "{free} of {size}");
    assert_eq!(of(&in_set("ratchet_leads")) + of(&in_set("ratchet_has_leader")), 2.0);
    assert!(of(&in_set("ratchet_leader_changes_total")) >= 1.0);
    assert!(of("process_open_fds") > 10.0 && of("process_resident_memory_bytes") > 1e6);
    let (version, commit) = (ratchet::version::VERSION, ratchet::version::COMMIT);
    let build = format!("ratchet_build_info{{version=\"{version}\",commit=\"{commit}\"}}");
    assert_eq!(of(&build), 1.0);

    // Memory is the leader's alone, and goes with its term.
    let next = other_than(leader);
    client.transfer(next).await.unwrap();
    until_metrics(&cluster, leader, |now| {
        value(now, &in_set("ratchet_memory_keys")) == 0.0
            && now["ratchet_peer_lag_entries"].samples.is_empty()
            && value(now, &in_set("ratchet_leader_changes_total"))
                > of(&in_set("ratchet_leader_changes_total"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_leaders_death_the_next_one_shows_how_long_each_phase_of_the_change_took() {
    let mut cluster = Cluster::start(3, with_metrics).await;
    let leader = cluster.leader().await;
    let killed = Instant::now();
    cluster.crash(leader).await;
    cluster.client(other_than(leader)).next_at_last(1).await;
    let silence = killed.elapsed().as_secs_f64();
    let next = cluster.leader().await;
    cluster.client(next).next_at_last(1).await;
    let now = metrics(&cluster, next).await;
    let phase = |name: &str| {
        let sample = format!("ratchet_leader_change_seconds{{phase=\"{name}\",set=\"1\"}}");
        value(&now, &sample)
    };
    let promise = cluster.configs[&next].election_timeout_ms as f64 / 1_000.0;
    assert_eq!(phase("promise"), promise);
    for name in ["turn", "election", "entry", "opening", "answer"] {
        assert!(phase(name) > 0.0, "{name}");
    }
    let phases = ["promise", "turn", "election", "entry", "opening", "answer"];
    let sum: f64 = phases.into_iter().map(phase).sum();
    // The leader was heard up to a heartbeat, and a delay of a busy machine, before it died.
    assert!(sum < silence + promise, "{sum} of {silence} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_is_away_lags_and_is_silent_and_a_leader_that_is_cut_off_fails_proposals() {
    let cluster = Cluster::start(3, with_metrics).await;
    let leader = cluster.leader().await;
    let away = other_than(leader);
    let mut client = cluster.client(leader);
    cluster.cut_off(away);
    for key in 0..10 {
        client.next(key).await.unwrap();
    }
    let of = |name: &str, peer: u64| format!("ratchet_peer_{name}{{peer=\"{peer}\",set=\"1\"}}");
    until_metrics(&cluster, leader, |now| {
        value(now, &of("lag_entries", away)) >= 5.0 && value(now, &of("silent_seconds", away)) > 0.3
    })
    .await;
    let now = metrics(&cluster, leader).await;
    let mine = of("lag_entries", leader);
    assert!(!now["ratchet_peer_lag_entries"].samples.contains_key(&mine), "of the others alone");
    cluster.mend();
    until_metrics(&cluster, leader, |now| {
        value(now, &of("lag_entries", away)) == 0.0 && value(now, &of("silent_seconds", away)) < 0.3
    })
    .await;

    // An entry that a leader proposes while it is alone is lost with its term. (It can lose that before it proposes
    // anything: then once more.)
    let failing = async {
        for cold in 1_000_000.. {
            let leader = cluster.leader().await;
            cluster.cut_off(leader);
            let mut client = cluster.client(leader).patient(Duration::from_millis(500));
            assert!(client.next(cold).await.is_err());
            let other = other_than(leader);
            cluster.leader_seen_by(other, |now| now != leader).await;
            cluster.mend();
            cluster.client(leader).next_at_last(1).await;
            let failed = metrics(&cluster, leader).await;
            if value(&failed, &in_set("ratchet_proposals_failed_total")) > 0.0 {
                return;
            }
        }
    };
    in_time("a proposal that fails", failing).await;
}

/// No samples.
const NONE: [(String, f64); 0] = [];

/// The samples of a metric with a label for the namespace: the other label's value, if it has one, and the value. Only those
/// above 0.
fn of_namespace(
    metrics: &BTreeMap<String, Family>, metric: &str, namespace: &str,
) -> Vec<(String, f64)> {
    let samples = &metrics[&format!("ratchet_namespace_{metric}")].samples;
    let label = format!("namespace=\"{namespace}\"");
    let of_it = samples.iter().filter(|(sample, value)| sample.contains(&label) && **value > 0.0);
    let other = |sample: &str| {
        let labels = sample.split_once('{').map_or("", |(_, labels)| labels.trim_end_matches('}'));
        let other = labels.split(',').find(|one| !one.starts_with("namespace="));
        other.map_or_else(String::new, |label| label.replace('"', ""))
    };
    of_it.map(|(sample, value)| (other(sample), *value)).collect()
}

async fn create(client: &mut Client, name: &str, max: Option<u64>) {
    let namespace =
        CreateNamespaceRequest { name: name.into(), max, ..CreateNamespaceRequest::default() };
    client.admin.create_namespace(namespace).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_calls_refusals_and_skipped_numbers_are_counted_for_each_namespace() {
    let cluster = Cluster::start(3, with_metrics).await;
    let leader = cluster.leader().await;
    let follower = other_than(leader);
    let mut client = cluster.client(follower);
    create(&mut client, "many", None).await;
    create(&mut client, "few", Some(3)).await;
    let asked = &cluster.nodes[&follower].context().group.view;
    in_time("the namespaces", asked.until_namespaces(|known| known.by_name("few").is_some())).await;
    let before = metrics(&cluster, follower).await;
    let one = |n: f64| vec![(String::new(), n)];

    client.try_next("many", id(1), 5).await.unwrap();
    client.try_next("few", id(1), 2).await.unwrap();
    // One key of a message gets numbers, and the other has one left.
    let message = NextManyRequest {
        namespace: "few".into(),
        ids: vec![1, 2],
        counts: vec![2, 2],
        ..NextManyRequest::default()
    };
    let messages = tokio_stream::iter([message]);
    let mut answers = client.sequencer.next_many(messages).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_some());
    client.try_next("few", id(2), 9).await.unwrap_err();
    client.try_next("none", id(1), 1).await.unwrap_err();
    let raise = RaiseRequest {
        namespace: "many".into(),
        key: id(1),
        at_least: 45,
        ..RaiseRequest::default()
    };
    client.sequencer.raise(raise).await.unwrap();

    let (asked, led) = (metrics(&cluster, follower).await, metrics(&cluster, leader).await);
    assert_eq!(of_namespace(&led, "numbers", "many"), one(5.0));
    assert_eq!(of_namespace(&led, "numbers", "few"), one(4.0));
    assert_eq!(of_namespace(&led, "skipped_numbers", "many"), [("cause=floor".into(), 40.0)]);
    assert_eq!(of_namespace(&led, "skipped_numbers", "few"), NONE);
    for metric in ["calls", "refusals"] {
        for namespace in ["many", "few"] {
            assert_eq!(of_namespace(&led, metric, namespace), NONE, "nobody asked there");
        }
    }
    assert_eq!(of_namespace(&asked, "calls", "many"), one(2.0));
    assert_eq!(of_namespace(&asked, "calls", "few"), one(3.0));
    let exhausted = "reason=NUMBERS_EXHAUSTED".to_owned();
    assert_eq!(of_namespace(&asked, "refusals", "few"), [(exhausted, 2.0)], "a key, and a call");
    assert_eq!(of_namespace(&asked, "refusals", "many"), NONE);
    assert_eq!(of_namespace(&asked, "numbers", "many"), NONE, "the leader handed them out");
    // The node may have been asked for a namespace that it did not know yet.
    let others = |metrics: &BTreeMap<String, Family>, metric: &str, label: &str| {
        let found = of_namespace(metrics, metric, "(other)").into_iter();
        found.filter(|(other, _)| other == label).map(|(_, value)| value).sum::<f64>()
    };
    for (metric, label) in [("calls", ""), ("refusals", "reason=NAMESPACE_NOT_FOUND")] {
        let grown = others(&asked, metric, label) - others(&before, metric, label);
        assert_eq!(grown, 1.0, "{metric} of a namespace that does not exist");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_has_metrics_of_as_many_namespaces_as_it_may_and_a_deleted_one_leaves_its_place() {
    // One of them is the namespace whose numbers are taken once the node has started.
    let few = |config: &mut Config| {
        with_metrics(config);
        config.metrics_namespaces_max = 3;
    };
    let cluster = Cluster::start(1, few).await;
    let mut client = cluster.client(1);
    for namespace in ["a", "b", "c"] {
        create(&mut client, namespace, None).await;
        client.try_next(namespace, id(1), 2).await.unwrap();
    }
    let numbers_of = |metrics: &BTreeMap<String, Family>, namespace: &str| {
        let counted = of_namespace(metrics, "numbers", namespace);
        counted.iter().map(|(_, numbers)| *numbers).sum::<f64>()
    };
    let shown = |metrics: &BTreeMap<String, Family>| {
        ["a", "b", "c", "(other)"].map(|namespace| numbers_of(metrics, namespace))
    };
    assert_eq!(shown(&metrics(&cluster, 1).await), [2.0, 2.0, 0.0, 2.0]);
    let delete = DeleteNamespaceRequest {
        namespace: "a".into(),
        confirm: "a".into(),
        ..DeleteNamespaceRequest::default()
    };
    client.admin.delete_namespace(delete).await.unwrap();
    // The one that was deleted keeps its counters until its place is needed.
    assert_eq!(shown(&metrics(&cluster, 1).await), [2.0, 2.0, 0.0, 2.0]);
    client.try_next("c", id(1), 3).await.unwrap();
    let after = metrics(&cluster, 1).await;
    assert_eq!(shown(&after), [0.0, 2.0, 3.0, 2.0]);
    let series: BTreeSet<&str> = (after["ratchet_namespace_numbers"].samples.keys())
        .filter_map(|sample| sample.split('"').nth(1))
        .collect();
    assert_eq!(series, BTreeSet::from(["(other)", "b", "book", "c"]));
    let deleted = 2.0;
    let all: f64 = series.iter().map(|namespace| numbers_of(&after, namespace)).sum();
    assert_eq!(value(&after, "ratchet_numbers_total"), all + deleted);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_node_tells_for_how_long_the_numbers_of_a_namespace_last() {
    let cluster = Cluster::start(3, with_metrics).await;
    let leader = cluster.leader().await;
    let mut client = cluster.client(leader);
    create(&mut client, "small", Some(1_000_000)).await;
    create(&mut client, "unused", Some(1_000_000)).await;
    for _ in 0..3 {
        for namespace in ["small", "book"] {
            client.try_next(namespace, id(1), 9_000).await.unwrap();
        }
    }
    client.try_next("unused", id(1), 1).await.unwrap();
    // Not one more is left.
    create(&mut client, "full", Some(100)).await;
    client.try_next("full", id(1), 100).await.unwrap();
    client.try_next("full", id(1), 1).await.unwrap_err();
    let sample = |namespace: &str, limit: &str| {
        format!("ratchet_namespace_days_left{{namespace=\"{namespace}\",limit=\"{limit}\"}}")
    };
    for node in 1..=3 {
        let known = [
            ("small", "max"),
            ("full", "max"),
            ("book", "max"),
            ("book", "2^53"),
            ("book", "2^31"),
        ];
        let known: BTreeSet<String> = known.map(|(of, limit)| sample(of, limit)).into();
        until_metrics(&cluster, node, |now| {
            let shown = &now["ratchet_namespace_days_left"].samples;
            known.iter().all(|sample| shown.contains_key(sample))
        })
        .await;
        let now = metrics(&cluster, node).await;
        let days = |namespace, limit| value(&now, &sample(namespace, limit));
        // At ten thousand numbers a minute, or more, the numbers last far less than a year.
        let small = days("small", "max");
        assert!(0.0 < small && small < 365.0, "{small}");
        let [signed, javascript, max] = ["2^31", "2^53", "max"].map(|limit| days("book", limit));
        assert!(signed < javascript && javascript < max, "{signed} {javascript} {max}");
        assert_eq!(days("full", "max"), 0.0);
        // No rate is known of the namespace that was hardly used, and a number above a max is no limit.
        let shown: BTreeSet<String> =
            now["ratchet_namespace_days_left"].samples.keys().cloned().collect();
        assert_eq!(shown, known);
    }
}

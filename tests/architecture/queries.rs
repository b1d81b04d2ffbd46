//! Queries to Prometheus, as text, and the list of metrics that they may name: the tables of docs/metrics.md.

use std::{collections::BTreeSet, fs};

use crate::files::root;

/// A row of the list.
#[derive(Debug, Clone)]
pub struct Metric {
    /// The heading above its table.
    pub section: String,
    /// The name as a query writes it; for a histogram without `_bucket`.
    pub name: String,
    pub kind: String,
    pub labels: Vec<String>,
    pub help: String,
}

/// The rows of all tables of metrics in docs/metrics.md.
pub fn listed() -> Vec<Metric> {
    let page = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let metrics = rows(&page);
    assert!(metrics.len() > 60, "only {} metrics were found", metrics.len());
    metrics
}

fn rows(page: &str) -> Vec<Metric> {
    let mut section = "";
    let mut metrics = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        }
        if !line.starts_with("| `") {
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, help] = cells[..] else {
            panic!("{line}");
        };
        let labels = labels.split(',').map(str::trim).filter(|label| !label.is_empty());
        metrics.push(Metric {
            section: section.to_owned(),
            name: name.replace('`', ""),
            kind: kind.to_owned(),
            labels: labels.map(str::to_owned).collect(),
            help: help.to_owned(),
        });
    }
    metrics
}

/// The parts of a query: names and keywords, and the signs between them. Text in quotes is one part.
fn parts(query: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut parts = Vec::new();
    let mut rest = query;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            first if is_name(first) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
            first => first.len_utf8(),
        };
        let (part, after) = rest.split_at(end);
        parts.push(part);
        rest = after;
    }
    parts
}

/// Whether a node tells the metric of this name.
fn is_ours(name: &str) -> bool {
    name.starts_with("ratchet_") || name.starts_with("process_")
}

/// The metrics of nodes that a query names, as it names them.
pub fn names(query: &str) -> BTreeSet<String> {
    parts(query).into_iter().filter(|part| is_ours(part)).map(str::to_owned).collect()
}

/// The query about one cluster alone, that of the dashboard's variable `job`.
pub fn of_cluster(query: &str) -> String {
    let mut of_cluster = String::new();
    let mut after_metric = false;
    for part in parts(query) {
        if after_metric {
            of_cluster += if part == "{" { "{job=\"$job\", " } else { "{job=\"$job\"}" };
        }
        if !(after_metric && part == "{") {
            of_cluster += part;
        }
        after_metric = is_ours(part) || ["up", "ALERTS"].contains(&part);
    }
    if after_metric {
        of_cluster += "{job=\"$job\"}";
    }
    of_cluster
}

/// The metric of the list that a query means by `name`: a histogram's samples have longer names.
pub fn meant<'m>(name: &str, metrics: &'m [Metric]) -> Option<&'m Metric> {
    let is_meant = |metric: &&Metric| match metric.kind.as_str() {
        "histogram" => ["_bucket", "_count", "_sum"]
            .iter()
            .any(|end| name.strip_suffix(end) == Some(&metric.name)),
        _ => metric.name == name,
    };
    metrics.iter().find(is_meant)
}

/// The metrics that some text names and that are not in the list.
pub fn unlisted(what: &str, text: &str, metrics: &[Metric]) -> Vec<String> {
    let names = names(text).into_iter().filter(|name| meant(name, metrics).is_none());
    names.map(|name| format!("{what} names {name}, which docs/metrics.md does not list")).collect()
}

#[test]
fn a_query_is_about_the_cluster_of_the_dashboard() {
    for (query, expected) in [
        ("ratchet_leads", "ratchet_leads{job=\"$job\"}"),
        ("sum(rate(up[5m]))", "sum(rate(up{job=\"$job\"}[5m]))"),
        (
            "sum by (up_to) (ratchet_a{code=~\"up|ratchet_b\"}) / ALERTS",
            "sum by (up_to) (ratchet_a{job=\"$job\", code=~\"up|ratchet_b\"}) / ALERTS{job=\"$job\"}",
        ),
    ] {
        assert_eq!(of_cluster(query), expected);
    }
}

#[test]
fn a_metric_that_is_not_listed_is_found_and_a_histograms_samples_are_its_own() {
    let page = "## One\n| `ratchet_a_total` | counter | b, c | Help. |\n| `ratchet_b_seconds` | histogram | | Help. |\n";
    let metrics = rows(page);
    assert_eq!(metrics[0].labels, ["b", "c"]);
    assert_eq!(metrics[1].section, "One");
    let query = "ratchet_a_total + ratchet_b_seconds_bucket{x=\"ratchet_d\"} + ratchet_b_seconds + ratchet_c";
    let wrong = ["ratchet_b_seconds", "ratchet_c"];
    let wrong = wrong.map(|name| format!("q names {name}, which docs/metrics.md does not list"));
    assert_eq!(unlisted("q", query, &metrics), wrong);
}

//! The alerts in observe/alerts.yml: each has a runbook, which begins with the effects on callers, a row in the table of
//! alerts, a test in promtool's series, and a test that breaks a cluster. They name metrics that there are.

use std::fs;

use crate::{
    files::{assert_none, root},
    queries::{listed, unlisted},
};

/// Where the runbooks are read.
const RUNBOOKS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/runbooks.md#");

/// An alert, as the rules have it.
#[derive(Debug, Default, PartialEq)]
struct Alert {
    name: String,
    /// How long the condition lasts before the alert fires.
    lasts: Option<String>,
    severity: String,
    summary: String,
    runbook: String,
}

/// The alerts of a file of rules.
fn alerts(rules: &str) -> Vec<Alert> {
    let mut alerts: Vec<Alert> = Vec::new();
    for line in rules.lines() {
        let line = line.trim();
        let Some((field, value)) = line.trim_start_matches("- ").split_once(": ") else {
            continue;
        };
        if field == "alert" {
            alerts.push(Alert { name: value.to_owned(), ..Alert::default() });
        }
        let Some(alert) = alerts.last_mut() else {
            continue;
        };
        match field {
            "for" => alert.lasts = Some(value.to_owned()),
            "severity" => value.clone_into(&mut alert.severity),
            "summary" => value.clone_into(&mut alert.summary),
            "runbook_url" => value.clone_into(&mut alert.runbook),
            _ => {}
        }
    }
    alerts
}

/// The section of a page under a heading, up to the next heading.
fn section<'p>(page: &'p str, heading: &str) -> Option<&'p str> {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n\n"))?;
    Some(rest.split("\n## ").next().unwrap_or(rest))
}

/// Whether the table of when alerts fired has one, with a cause or several.
fn has_fired(runbooks: &str, name: &str) -> bool {
    let table = section(runbooks, "When they fired").unwrap_or_default();
    table.lines().any(|line| line.starts_with(&format!("| {name} | ")))
}

/// The parts that an alert lacks.
fn lacks(alert: &Alert, runbooks: &str, promtool: &str, broken: &str) -> Vec<String> {
    let Alert { name, lasts, severity, summary, runbook } = alert;
    let mut lacks = Vec::new();
    let mut needs = |is_there: bool, what: &str| {
        if !is_there {
            lacks.push(format!("{name} {what}"));
        }
    };
    needs(
        ["critical", "warning"].contains(&severity.as_str()),
        "is neither critical nor a warning",
    );
    needs(summary.contains("$labels.job"), "has no summary that says which cluster it is about");
    let place = format!("{RUNBOOKS}{}", name.to_lowercase());
    needs(*runbook == place, &format!("should have the runbook {place}"));
    let begins = section(runbooks, name).is_some_and(|section| section.starts_with("Callers "));
    needs(begins, "has no section in docs/runbooks.md that begins with what callers see");
    let lasts = lasts.as_deref().unwrap_or("at once");
    let row = format!("| [{name}](#{}) | {severity} | {lasts} |", name.to_lowercase());
    needs(runbooks.contains(&row), &format!("has no row in docs/runbooks.md: {row}"));
    needs(has_fired(runbooks, name), "has no row below \"When they fired\" in docs/runbooks.md");
    needs(promtool.contains(&format!("alertname: {name}\n")), "is not in observe/alerts_test.yml");
    needs(broken.contains(&format!("\"{name}\"")), "fires in no test of `prometheus`");
    lacks
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn each_alert_has_a_runbook_and_tests() {
    let alerts = alerts(&read("observe/alerts.yml"));
    assert!(alerts.len() > 15, "only {} alerts were found", alerts.len());
    let paths = ["docs/runbooks.md", "observe/alerts_test.yml", "tests/prometheus/broken.rs"];
    let [runbooks, promtool, broken] = paths.map(read);
    let lacking: Vec<String> =
        alerts.iter().flat_map(|alert| lacks(alert, &runbooks, &promtool, &broken)).collect();
    assert_none("alerts", &lacking);
    let headings = runbooks.lines().filter_map(|line| line.strip_prefix("## Ratchet"));
    assert_eq!(headings.count(), alerts.len(), "runbooks of alerts that are gone");
}

#[test]
fn alerts_are_about_metrics_that_there_are() {
    let rules = read("observe/alerts.yml");
    assert_none("rules", &unlisted("observe/alerts.yml", &rules, &listed()));
}

#[test]
fn what_an_alert_lacks_is_found() {
    let rules = "
      - alert: RatchetA
        expr: up == 0
        for: 5m
        labels:
          severity: warning
        annotations:
          summary: \"{{ $labels.job }} is down.\"
          runbook_url: https://github.com/ratchet-rs/ratchet/blob/main/docs/runbooks.md#ratcheta
      - alert: RatchetB
        expr: up == 0
";
    let page = "| [RatchetA](#ratcheta) | warning | 5m | It is down. |\n\n## RatchetA\n\nCallers see nothing.\n\n\
        ## When they fired\n\n| alert | cause |\n| --- | --- |\n| RatchetA | a node is killed |\n";
    let [whole, bare] = &alerts(rules)[..] else {
        panic!("two alerts");
    };
    assert_eq!(whole.lasts.as_deref(), Some("5m"));
    let tested = "alertname: RatchetA\n";
    assert_eq!(lacks(whole, page, tested, "fires(\"RatchetA\")"), Vec::<String>::new());
    let without = page.replace("Callers see", "It is");
    assert_eq!(lacks(whole, &without, tested, "\"RatchetA\"").len(), 1);
    assert_eq!(lacks(whole, page, tested, "RatchetA").len(), 1);
    assert_eq!(lacks(bare, page, tested, "\"RatchetA\"").len(), 8, "it has nothing");
    let unfired = page.replace("| RatchetA | a node is killed |\n", "");
    assert_eq!(lacks(whole, &unfired, tested, "\"RatchetA\"").len(), 1);
    let twice = format!("{page}| RatchetA | a node is stopped |\n");
    assert_eq!(lacks(whole, &twice, tested, "\"RatchetA\""), Vec::<String>::new());
}

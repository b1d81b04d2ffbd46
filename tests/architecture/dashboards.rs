//! The dashboards in observe/dashboards show each metric that a node has, and no other. They are made here, of the list of
//! metrics and of observe/dashboards.toml: `UPDATE_EXPECT=1 cargo test --test architecture dashboards` makes them anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, slice,
};

use expect_test::expect_file;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    files::{assert_none, files, root},
    queries::{Metric, listed, meant, names, of_cluster, unlisted},
};

/// The file of dashboards that somebody thought out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    dashboard: Vec<Dashboard>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dashboard {
    uid: String,
    title: String,
    /// It is made only if the list has this metric.
    needs: Option<String>,
    row: Vec<Row>,
    /// Its rows are closed at first. Grafana asks nothing for them then.
    #[serde(default)]
    is_closed: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    title: String,
    panel: Vec<Panel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Panel {
    title: String,
    about: String,
    show: Show,
    width: u64,
    unit: Option<String>,
    words: Option<[String; 2]>,
    #[serde(default)]
    colors: Vec<Color>,
    queries: Vec<Query>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Show {
    Number,
    Lines,
    States,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Color {
    from: Option<f64>,
    color: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    expr: String,
    #[serde(default)]
    legend: String,
}

/// The dashboard of all metrics: a row for each table of the list, and a panel for each metric.
fn of_all(metrics: &[Metric]) -> Dashboard {
    let mut rows: Vec<Row> = Vec::new();
    for metric in metrics {
        if rows.last().is_none_or(|row| row.title != metric.section) {
            rows.push(Row { title: metric.section.clone(), panel: Vec::new() });
        }
        rows.last_mut().unwrap().panel.push(of_metric(metric));
    }
    Dashboard {
        uid: "ratchet-metrics".to_owned(),
        title: "Ratchet: all metrics".to_owned(),
        needs: None,
        row: rows,
        is_closed: true,
    }
}

/// The label that says of which Raft group a metric is. Panels add its values up, or name it.
const SET: &str = "set";

fn of_metric(metric: &Metric) -> Panel {
    let is_of_set = metric.labels.iter().any(|label| label == SET);
    let others: Vec<&str> =
        metric.labels.iter().map(String::as_str).filter(|label| *label != SET).collect();
    let (name, labels) = (&metric.name, others.join(", "));
    let each_label: Vec<String> = others.iter().map(|label| format!("{{{{{label}}}}}")).collect();
    let each_label = each_label.join(" ");
    let query = |expr: String, legend: String| Query { expr, legend: legend.trim().to_owned() };
    let queries = match metric.kind.as_str() {
        "counter" if labels.is_empty() && is_of_set => {
            let rate = format!("sum by (instance) (rate({name}[$__rate_interval]))");
            vec![query(rate, "{{instance}}".to_owned())]
        }
        "counter" if labels.is_empty() => {
            vec![query(format!("rate({name}[$__rate_interval])"), "{{instance}}".to_owned())]
        }
        "counter" => {
            vec![query(format!("sum by ({labels}) (rate({name}[$__rate_interval]))"), each_label)]
        }
        "histogram" => [("0.99", "99 %"), ("0.5", "50 %")]
            .map(|(share, percent)| {
                let by = others.iter().fold("le".to_owned(), |by, label| by + ", " + label);
                let rate = format!("sum by ({by}) (rate({name}_bucket[$__rate_interval]))");
                query(
                    format!("histogram_quantile({share}, {rate})"),
                    format!("{percent} {each_label}"),
                )
            })
            .into(),
        "info" => vec![query(format!("count by ({labels}) ({name})"), each_label)],
        // As a date it would be a number of ten digits.
        _ if name == "process_start_time_seconds" => {
            vec![query(format!("time() - {name}"), "{{instance}}".to_owned())]
        }
        "gauge" if is_of_set => {
            vec![query(name.clone(), format!("{{{{instance}}}} {each_label} (set {{{{set}}}})"))]
        }
        "gauge" => vec![query(name.clone(), format!("{{{{instance}}}} {each_label}"))],
        kind => panic!("{name} is of kind {kind:?}"),
    };
    let unit = match name.as_str() {
        name if name.ends_with("_seconds_total") => Some("percentunit"),
        name if name.ends_with("_total") => Some("cps"),
        name if name.ends_with("_seconds") => Some("s"),
        name if name.ends_with("_bytes") => Some("bytes"),
        _ => None,
    };
    Panel {
        title: name.clone(),
        about: metric.help.clone(),
        show: Show::Lines,
        width: 8,
        unit: unit.map(str::to_owned),
        words: None,
        colors: Vec::new(),
        queries,
    }
}

/// The source of data that the viewer has chosen.
fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

/// Where panels are put: from left to right, and in a new line where one has no room.
#[derive(Default)]
struct Place {
    x: u64,
    y: u64,
    height: u64,
}

impl Place {
    fn next(&mut self, width: u64, height: u64) -> Value {
        if self.x + width > 24 {
            self.end_line();
        }
        let place = json!({ "x": self.x, "y": self.y, "w": width, "h": height });
        self.x += width;
        self.height = self.height.max(height);
        place
    }

    fn end_line(&mut self) {
        self.y += self.height;
        (self.x, self.height) = (0, 0);
    }
}

impl Panel {
    fn json(&self, id: usize, place: &mut Place) -> Value {
        let height = if self.show == Show::Number { 5 } else { 8 };
        let targets = self.queries.iter().enumerate().map(|(at, query)| {
            json!({
                "datasource": source(),
                "editorMode": "code",
                "expr": of_cluster(&query.expr),
                "instant": self.show == Show::Number,
                "legendFormat": query.legend,
                "range": self.show != Show::Number,
                "refId": char::from(b'A' + at as u8).to_string(),
            })
        });
        let steps =
            self.colors.iter().map(|step| json!({ "color": step.color, "value": step.from }));
        let mut steps: Vec<Value> = steps.collect();
        if steps.is_empty() {
            steps.push(json!({ "color": "green", "value": null }));
        }
        let texts = self.words.iter().flatten().enumerate();
        let texts = texts.map(|(n, word)| (n.to_string(), json!({ "index": n, "text": word })));
        let texts: serde_json::Map<String, Value> = texts.collect();
        let mappings = match texts.is_empty() {
            true => json!([]),
            false => json!([{ "type": "value", "options": texts }]),
        };
        let legend = json!({ "calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": true });
        let tooltip = json!({ "mode": "multi", "sort": "desc" });
        let (kind, color, custom, options) = match self.show {
            Show::Number => (
                "stat",
                "thresholds",
                json!({}),
                json!({
                    "colorMode": "value",
                    "graphMode": "none",
                    "justifyMode": "auto",
                    "orientation": "auto",
                    "percentChangeColorMode": "standard",
                    "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
                    "showPercentChange": false,
                    "textMode": "auto",
                    "wideLayout": true,
                }),
            ),
            Show::Lines => (
                "timeseries",
                "palette-classic",
                json!({ "drawStyle": "line", "fillOpacity": 10, "lineWidth": 1, "showPoints": "auto" }),
                json!({ "legend": legend, "tooltip": tooltip }),
            ),
            Show::States => (
                "state-timeline",
                "thresholds",
                json!({ "fillOpacity": 70, "lineWidth": 0 }),
                json!({
                    "alignValue": "left",
                    "legend": legend,
                    "mergeValues": true,
                    "rowHeight": 0.9,
                    "showValue": "auto",
                    "tooltip": tooltip,
                }),
            ),
        };
        json!({
            "datasource": source(),
            "description": self.about,
            "fieldConfig": {
                "defaults": {
                    "color": { "mode": color },
                    "custom": custom,
                    "mappings": mappings,
                    "thresholds": { "mode": "absolute", "steps": steps },
                    "unit": self.unit.as_deref().unwrap_or("short"),
                },
                "overrides": [],
            },
            "gridPos": place.next(self.width, height),
            "id": id,
            "options": options,
            "targets": targets.collect::<Vec<_>>(),
            "title": self.title,
            "type": kind,
        })
    }
}

impl Dashboard {
    /// The dashboard as Grafana imports it.
    fn json(&self) -> Value {
        let mut panels = Vec::new();
        let mut place = Place::default();
        let mut ids = 1..;
        for row in &self.row {
            place.end_line();
            let id = ids.next().unwrap();
            let at = place.next(24, 1);
            let inside: Vec<Value> =
                row.panel.iter().map(|panel| panel.json(ids.next().unwrap(), &mut place)).collect();
            let (inside, beside) =
                if self.is_closed { (inside, Vec::new()) } else { (Vec::new(), inside) };
            panels.push(json!({
                "collapsed": self.is_closed,
                "gridPos": at,
                "id": id,
                "panels": inside,
                "title": row.title,
                "type": "row",
            }));
            panels.extend(beside);
        }
        let jobs = "label_values(ratchet_build_info, job)";
        json!({
            "annotations": { "list": [] },
            "editable": true,
            "fiscalYearStartMonth": 0,
            "graphTooltip": 1,
            "links": [{
                "asDropdown": false,
                "icon": "external link",
                "includeVars": true,
                "keepTime": true,
                "tags": ["ratchet"],
                "targetBlank": false,
                "title": "",
                "tooltip": "",
                "type": "dashboards",
                "url": "",
            }],
            "panels": panels,
            "refresh": "10s",
            "schemaVersion": 39,
            "tags": ["ratchet"],
            "templating": { "list": [
                {
                    "hide": 0,
                    "includeAll": false,
                    "label": "Prometheus",
                    "multi": false,
                    "name": "datasource",
                    "options": [],
                    "query": "prometheus",
                    "refresh": 1,
                    "regex": "",
                    "skipUrlSync": false,
                    "type": "datasource",
                },
                {
                    "datasource": source(),
                    "definition": jobs,
                    "hide": 0,
                    "includeAll": false,
                    "label": "Cluster",
                    "multi": false,
                    "name": "job",
                    "options": [],
                    "query": { "qryType": 1, "query": jobs, "refId": "PrometheusVariableQueryEditor-VariableQuery" },
                    "refresh": 2,
                    "regex": "",
                    "skipUrlSync": false,
                    "sort": 1,
                    "type": "query",
                },
            ] },
            "time": { "from": "now-1h", "to": "now" },
            "timepicker": {},
            "timezone": "browser",
            "title": self.title,
            "uid": self.uid,
            "version": 1,
            "weekStart": "",
        })
    }
}

/// All dashboards, by the names of their files.
fn made(metrics: &[Metric]) -> BTreeMap<String, Value> {
    let description = fs::read_to_string(root().join("observe/dashboards.toml")).unwrap();
    let described: Description = toml::from_str(&description).expect("observe/dashboards.toml");
    let has = |name: &String| metrics.iter().any(|metric| metric.name == *name);
    let described = described.dashboard.into_iter();
    let described = described.filter(|dashboard| dashboard.needs.as_ref().is_none_or(has));
    let dashboards = described.chain([of_all(metrics)]);
    dashboards.map(|dashboard| (format!("{}.json", dashboard.uid), dashboard.json())).collect()
}

#[test]
fn the_dashboards_are_those_that_the_list_of_metrics_and_their_description_make() {
    let made = made(&listed());
    for (name, dashboard) in &made {
        let mut text = serde_json::to_string_pretty(dashboard).unwrap();
        text.push('\n');
        expect_file![root().join("observe/dashboards").join(name)].assert_eq(&text);
    }
    let there: BTreeSet<String> =
        files("observe/dashboards", "json").into_iter().map(|file| file.path).collect();
    let expected = made.keys().map(|name| format!("observe/dashboards/{name}"));
    assert_eq!(there, expected.collect(), "files that nothing makes, or that are missing");
}

/// The queries of a dashboard.
fn queries(dashboard: &Value, found: &mut Vec<String>) {
    match dashboard {
        Value::Object(fields) => {
            if let Some(Value::String(query)) = fields.get("expr") {
                found.push(query.clone());
            }
            fields.values().for_each(|value| queries(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

/// The metrics that are on no panel, and the metrics on a panel that are not in the list.
fn missing_and_dead(dashboards: &[Value], metrics: &[Metric]) -> Vec<String> {
    let mut all = Vec::new();
    dashboards.iter().for_each(|dashboard| queries(dashboard, &mut all));
    let mut wrong: Vec<String> =
        all.iter().flat_map(|query| unlisted("a panel", query, metrics)).collect();
    let shown: BTreeSet<&str> = all
        .iter()
        .flat_map(|query| names(query))
        .filter_map(|name| meant(&name, metrics))
        .map(|metric| metric.name.as_str())
        .collect();
    let hidden = metrics.iter().filter(|metric| !shown.contains(metric.name.as_str()));
    wrong.extend(hidden.map(|metric| format!("{} is on no panel", metric.name)));
    wrong
}

#[test]
fn every_metric_is_on_a_panel_and_panels_show_no_other() {
    let dashboards: Vec<Value> = files("observe/dashboards", "json")
        .iter()
        .map(|file| serde_json::from_str(&file.text).expect(&file.path))
        .collect();
    assert_none("dashboards", &missing_and_dead(&dashboards, &listed()));
}

#[test]
fn a_metric_without_a_panel_and_a_panel_without_a_metric_are_found() {
    let metric = |name: &str, kind: &str| Metric {
        section: "One".to_owned(),
        name: name.to_owned(),
        kind: kind.to_owned(),
        labels: vec!["side".to_owned()],
        help: "Help.".to_owned(),
    };
    let metrics = [
        metric("ratchet_a_total", "counter"),
        metric("ratchet_b_seconds", "histogram"),
        metric("ratchet_c_info", "info"),
        metric("ratchet_d", "gauge"),
    ];
    let all = of_all(&metrics).json();
    assert_eq!(missing_and_dead(&[all], &metrics), Vec::<String>::new());
    let some = of_all(&metrics[1..]).json();
    let wrong = missing_and_dead(slice::from_ref(&some), &metrics);
    assert_eq!(wrong, ["ratchet_a_total is on no panel"]);
    let wrong = missing_and_dead(&[some], &metrics[2..]);
    let dead = "a panel names ratchet_b_seconds_bucket, which docs/metrics.md does not list";
    assert_eq!(wrong, [dead, dead], "both quantiles");
}

#[test]
fn panels_stand_side_by_side_and_below_one_another() {
    let mut place = Place::default();
    let places = [(12, 5), (12, 8), (8, 5)].map(|(width, height)| place.next(width, height));
    let at = places.map(|place| (place["x"].as_u64().unwrap(), place["y"].as_u64().unwrap()));
    assert_eq!(at, [(0, 0), (12, 0), (0, 8)]);
}

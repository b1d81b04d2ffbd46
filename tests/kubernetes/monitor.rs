//! The ServiceMonitor, by which the operator of Prometheus finds the nodes: as the component of an overlay, and in the chart.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::rendered::{Objects, chart, kustomized, kustomized_with, validated};

/// The fields of a ServiceMonitor that we use. Its kind is the operator's, so the validator does not know it: these fields
/// come from `ServiceMonitorSpec` in the operator's API, monitoring.coreos.com/v1.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    selector: Selector,
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Selector {
    match_labels: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Endpoint {
    port: String,
    honor_labels: bool,
    relabelings: Vec<Relabeling>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Relabeling {
    source_labels: Vec<String>,
    #[serde(default)]
    separator: String,
    target_label: String,
}

fn spec(objects: &Objects) -> Spec {
    let monitor = objects.one("ServiceMonitor", "ratchet");
    assert_eq!(monitor["apiVersion"], "monitoring.coreos.com/v1");
    serde_json::from_value(monitor["spec"].clone()).expect("fields of a ServiceMonitor")
}

/// Sees that a ServiceMonitor finds the nodes, each once, by one service of theirs.
fn assert_finds_the_nodes(objects: &Objects) {
    let spec = spec(objects);
    let services = objects.0.iter().filter(|object| object["kind"] == "Service");
    let found: Vec<_> = services
        .filter(|service| {
            let labels = &service["metadata"]["labels"];
            spec.selector.match_labels.iter().all(|(label, value)| labels[label] == value.as_str())
        })
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    // This service has an entry for each node. The other one has one address for all of them.
    assert_eq!(found[0]["spec"]["clusterIP"], "None");
    let ports = found[0]["spec"]["ports"].as_array().expect("ports");
    let [endpoint] = &spec.endpoints[..] else { panic!("{:?}", spec.endpoints) };
    assert!(ports.iter().any(|port| port["name"] == endpoint.port.as_str()), "{ports:?}");
    assert!(endpoint.honor_labels, "`namespace` of a metric is a namespace of numbers");
    // Without a separator of ours, names are joined by a semicolon.
    let made = endpoint.relabelings.iter().map(|one| {
        (one.target_label.as_str(), one.source_labels.join(","), one.separator.as_str())
    });
    let job = "__meta_kubernetes_namespace,__meta_kubernetes_service_name".to_owned();
    let instance = "__meta_kubernetes_pod_name".to_owned();
    assert_eq!(Vec::from_iter(made), [("job", job, "/"), ("instance", instance, "")]);
}

#[test]
fn an_overlay_with_the_component_is_valid_and_prometheus_finds_its_nodes() {
    for overlay in ["one", "three", "three-tls"] {
        let mut objects = kustomized_with(overlay, "service-monitor");
        assert_finds_the_nodes(&objects);
        objects.0.retain(|object| object["kind"] != "ServiceMonitor");
        // The component adds that, and nothing else.
        assert_eq!(objects.0, kustomized(overlay).0, "{overlay}");
        for version in ["1.28", "1.37"] {
            let (is_valid, printed) = validated(&objects, version);
            assert!(is_valid, "{overlay} for Kubernetes {version}: {printed}");
        }
    }
}

#[test]
fn the_charts_service_monitor_finds_its_nodes() {
    assert_finds_the_nodes(&chart("ratchet", &["insecure=true", "serviceMonitor.enabled=true"]));
}

#[test]
fn a_service_monitor_has_the_labels_by_which_an_operator_chooses() {
    let values = [
        "insecure=true",
        "serviceMonitor.enabled=true",
        "serviceMonitor.labels.release=prometheus",
    ];
    let made = chart("ratchet", &values);
    let labels = &made.one("ServiceMonitor", "ratchet")["metadata"]["labels"];
    assert_eq!(labels["release"], "prometheus");
    assert_eq!(labels["app.kubernetes.io/name"], "ratchet");
}

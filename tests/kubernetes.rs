//! The manifests for Kubernetes in dist/kubernetes and the chart in dist/helm, rendered by kustomize and helm themselves: the
//! rendered objects are valid and fit the node, the chart and the manifests say the same, nodes run with their settings, and
//! nothing founds a cluster by itself.

mod monitor;
mod page;
mod pods;
mod rendered;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use ratchet::node::{Config, Node};
use serde_json::{Value, json};

use rendered::{
    Objects, chart, chart_of_file, chart_refuses, file, kustomized, lint, upgraded_chart, validated,
};

/// Each overlay, and the values with which the chart makes the same.
const SAME: [(&str, &[&str]); 3] = [
    ("one", &["nodes=1", "insecure=true"]),
    ("three", &["insecure=true"]),
    ("three-tls", &["tls.secret=ratchet-tls", "tokens=true"]),
];
/// The files of Jobs that a person creates.
const JOBS: [&str; 3] = ["found.yaml", "found-tls.yaml", "recover.yaml"];
/// The one that founds itself.
const THROW_AWAY: &str = "try";

fn overlays() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist/kubernetes/overlays");
    let entries = fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// All that can be rendered, with its name.
fn all_rendered() -> Vec<(String, Objects)> {
    let mut all: Vec<(String, Objects)> =
        overlays().into_iter().map(|overlay| (overlay.clone(), kustomized(&overlay))).collect();
    for (overlay, values) in SAME {
        all.push((format!("the chart as {overlay}"), chart("ratchet", values)));
    }
    let more = ["insecure=true", "nodes=5", "founders=3", "settings.fence=quorum"];
    all.push(("the chart with further values".to_owned(), chart("numbers", &more)));
    all
}

#[test]
fn all_that_is_rendered_is_valid_for_the_oldest_and_the_newest_kubernetes() {
    let mut all = all_rendered();
    for name in JOBS {
        let mut objects = file(name);
        // The validator names the object that it looks at.
        objects.0[0]["metadata"]["name"] = json!("job");
        all.push((name.to_owned(), objects));
    }
    for (name, objects) in all {
        for version in ["1.28", "1.37"] {
            let (is_valid, printed) = validated(&objects, version);
            assert!(is_valid, "{name} for Kubernetes {version}: {printed}");
        }
    }
}

#[test]
fn an_object_with_a_field_that_kubernetes_does_not_have_is_found() {
    let mut objects = kustomized("one");
    let stateful_set = objects.0.iter_mut().find(|object| object["kind"] == "StatefulSet").unwrap();
    stateful_set["spec"]["template"]["spec"]["gracePeriod"] = json!(90);
    let (is_valid, printed) = validated(&objects, "1.28");
    assert!(!is_valid && printed.contains("gracePeriod"), "{printed}");
}

#[test]
fn helm_finds_nothing_wrong_with_the_chart() {
    for (_, values) in SAME {
        let (is_well, printed) = lint(values);
        assert!(is_well, "{values:?}: {printed}");
    }
}

#[test]
fn the_chart_and_the_manifests_say_the_same() {
    for (overlay, values) in SAME {
        let (made, manifests) = (chart("ratchet", values), kustomized(overlay));
        let nodes = made.one("StatefulSet", "ratchet")["spec"]["replicas"].as_u64().unwrap();
        let (made, manifests) = (comparable(&made, nodes), comparable(&manifests, nodes));
        assert_eq!(Vec::from_iter(made.keys()), Vec::from_iter(manifests.keys()), "{overlay}");
        for (object, made) in made {
            assert_eq!(made, manifests[&object], "{object} of {overlay}");
        }
    }
    let with_monitor = ["insecure=true", "serviceMonitor.enabled=true"];
    let made = comparable(&chart("ratchet", &with_monitor), 3);
    let component = comparable(&file("components/service-monitor/service-monitor.yaml"), 3);
    assert_eq!(component.len(), 1);
    for (object, expected) in component {
        assert_eq!(made[&object], expected, "{object}");
    }
}

/// The objects by kind and name, without the parts that must differ: labels and sums of the one tool, and the sum of its
/// content that kustomize puts into the name of a map. The manifests have files for more nodes.
fn comparable(objects: &Objects, nodes: u64) -> BTreeMap<String, Value> {
    fn without_tools(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| {
                    !["helm.sh/chart", "app.kubernetes.io/managed-by", "checksum/settings"]
                        .contains(&name.as_str())
                });
                let are_gone = |value: &Value| value.as_object().is_some_and(|all| all.is_empty());
                fields.values_mut().for_each(without_tools);
                fields.retain(|name, value| name != "annotations" || !are_gone(value));
            }
            Value::Array(values) => values.iter_mut().for_each(without_tools),
            Value::String(text) if text.starts_with("ratchet-settings-") => {
                *text = "ratchet-settings".to_owned();
            }
            _ => {}
        }
    }
    let mut found = BTreeMap::new();
    for object in &objects.0 {
        let mut object = object.clone();
        without_tools(&mut object);
        let named = format!("{} {}", object["kind"], object["metadata"]["name"]);
        if let Some(files) = object["data"].as_object_mut() {
            let is_of_node = |name: &str| {
                let pod = name.strip_prefix("ratchet-")?.strip_suffix(".toml")?;
                Some(pod.parse::<u64>().unwrap() <= nodes)
            };
            files.retain(|name, _| is_of_node(name).unwrap_or(true));
        }
        assert!(found.insert(named, object).is_none(), "two objects have one name");
    }
    found
}

#[test]
fn values_under_which_strangers_could_do_everything_or_no_node_would_run_are_refused() {
    for (values, why) in [
        (&[][..], "whoever reaches the nodes could do everything: set tls.secret"),
        (&["tls.secret=a", "insecure=true"], "tls.secret and insecure=true exclude each other"),
        (&["tls.secret=a", "tls.clientCertificates=false"], "could do everything, over TLS"),
        (&["insecure=true", "tokens=true"], "tokens need TLS between the nodes"),
        (&["settings.insecure=true"], "whoever reaches the nodes could do everything"),
        (&["tls.secret=a", "settings.insecure=true"], "the chart sets insecure itself"),
        (&["tls.secret=a", "settings.tls=off"], "the chart sets tls itself"),
        (&["insecure=true", "nodes=4"], "4 founders: a cluster has an odd number of voters"),
        (&["insecure=true", "nodes=0"], "nodes"),
        (&["insecure=true", "founders=5"], "5 founders and 3 pods"),
        (&["insecure=true", "settings.client_connections_max=9"], "client_connections_max itself"),
        (&["insecure=true", "nodeIds.3=2"], "pods 2 and 3 would both run node 2"),
        (&["insecure=true", "nodeIds.3=three"], "nodeIds"),
        (&["insecure=true", "node=3"], "node"),
        (&["insecure=true", "settings.refuse_root=false"], "settings.refuse_root"),
        (&["insecure=true", "settings.tinyid_tokens=a=b"], "secretSettings"),
    ] {
        let said = chart_refuses(values);
        assert!(said.contains(why), "{values:?}: {said}");
    }
    let made = chart("ratchet", &["insecure=true", "secretSettings=secret-settings"]);
    let container = &made.stateful_set()["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["envFrom"][1]["secretRef"]["name"], "secret-settings");
    // Tokens alone, over TLS, are enough.
    chart("ratchet", &["tls.secret=a", "tls.clientCertificates=false", "tokens=true"]);
    // Founders may be gone later.
    let later = upgraded_chart("ratchet", &["insecure=true", "nodes=1", "founders=3"]);
    assert_eq!(later.stateful_set()["spec"]["replicas"], 1);
}

#[test]
fn a_number_in_a_file_of_values_is_a_setting_with_its_fraction_or_without_one() {
    let made = chart_of_file(
        "insecure: true\nsettings: { otlp_sample: 0.1, log_keep_bytes: 268435456, fence: quorum }\n",
    );
    let file = made.one("ConfigMap", "ratchet-nodes")["data"]["ratchet-1.toml"].as_str().unwrap();
    let lines =
        ["node_id = 1", "fence = \"quorum\"", "log_keep_bytes = 268435456", "otlp_sample = 0.1"];
    assert_eq!(file.lines().collect::<Vec<_>>(), lines);
}

/// docs/deploy.md ("How large?") has the sum.
#[test]
fn a_node_that_takes_all_the_memory_that_its_settings_allow_stays_below_the_limit() {
    let defaults = Config::default();
    for (name, objects) in all_rendered() {
        let mut maps = objects.0.iter().map(|object| &object["data"]);
        let settings = maps.find(|data| data["RATCHET_LISTEN"].is_string());
        let settings = settings.expect("the settings of all nodes");
        let set = |variable: &str, default: u64| {
            settings[variable].as_str().map_or(default, |text| text.parse::<u64>().unwrap())
        };
        let keys = set("RATCHET_MEMORY_MAX_MB", defaults.memory_max_mb);
        let requests = set("RATCHET_MEMORY_REQUESTS_MAX_MB", defaults.memory_requests_max_mb);
        let records = set("RATCHET_RECENT_RECORDS_MB", defaults.recent_records_mb);
        let cache = set("RATCHET_BLOCK_CACHE_MB", defaults.block_cache_mb);
        let connections = set("RATCHET_CLIENT_CONNECTIONS_MAX", defaults.client_connections_max);
        let calls = set("RATCHET_CLIENT_CALLS_MAX", defaults.client_calls_max);
        // A successor takes twice as much for keys as it has. The program takes 50 MB.
        let takes_mib = 3 * keys + requests + records + cache + 50;
        // An idle connection takes 18 KiB, and hostile callers can have it take 112 KiB more, and each call 76 KiB.
        let takes_kib = (takes_mib << 10) + connections * (18 + 112) + calls * 76;
        let container = &objects.stateful_set()["spec"]["template"]["spec"]["containers"][0];
        let limit = container["resources"]["limits"]["memory"].as_str().unwrap();
        let limit_gib: u64 = limit.strip_suffix("Gi").expect(limit).parse().unwrap();
        assert!(takes_kib < limit_gib << 20, "{name}: {takes_kib} KiB of {limit}");
    }
}

#[test]
fn a_pod_that_lost_its_volume_gets_a_node_of_another_id_and_its_certificate() {
    let made = chart(
        "ratchet",
        &["tls.secret=a", "tokens=true", "nodeIds.3=4", "nodes=4", "founders=3", "nodeIds.4=5"],
    );
    let files = &made.one("ConfigMap", "ratchet-nodes")["data"];
    for (pod, id) in [(1, 1), (2, 2), (3, 4), (4, 5)] {
        let file = files[format!("ratchet-{pod}.toml")].as_str().unwrap();
        let mut lines = vec![format!("node_id = {id}")];
        for setting in ["tls", "peer_tls"] {
            for (what, end) in [("cert", "crt"), ("key", "key")] {
                lines.push(format!("{setting}_{what} = \"/etc/ratchet-tls/node-{id}.{end}\""));
            }
        }
        assert_eq!(file.lines().collect::<Vec<_>>(), lines);
    }
    // The others go on: the sums that would start them again have not changed.
    let sum = |objects: &Objects| {
        objects.stateful_set()["spec"]["template"]["metadata"]["annotations"].clone()
    };
    let before = chart("ratchet", &["tls.secret=a", "tokens=true"]);
    assert_eq!(sum(&before), sum(&made));
    let other = chart("ratchet", &["tls.secret=a", "tokens=true", "settings.fence=quorum"]);
    assert_ne!(sum(&before), sum(&other), "a setting that changes starts the nodes again");
}

/// An empty list of a rule's sources lets everybody in.
#[test]
fn a_network_policy_without_clients_lets_no_client_in() {
    let nobody = ["insecure=true", "networkPolicy.clients=null", "networkPolicy.monitoring=null"];
    let made = chart("ratchet", &nobody);
    let rules = &made.one("NetworkPolicy", "ratchet")["spec"]["ingress"];
    let ports: Vec<&Value> =
        rules.as_array().unwrap().iter().map(|rule| &rule["ports"][0]["port"]).collect();
    assert_eq!(ports, ["peers"], "{rules}");
    for (name, objects) in all_rendered() {
        for object in objects.0.iter().filter(|object| object["kind"] == "NetworkPolicy") {
            for rule in object["spec"]["ingress"].as_array().unwrap() {
                let from = rule["from"].as_array().expect("sources");
                assert!(!from.is_empty() && rule["ports"][0]["port"].is_string(), "{name}: {rule}");
            }
        }
    }
}

#[test]
fn nothing_but_the_throw_away_overlay_founds_a_cluster() {
    for (name, objects) in all_rendered() {
        let kinds: BTreeSet<&str> =
            objects.0.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        assert!(!kinds.contains("Job") && !kinds.contains("CronJob"), "{name}: {kinds:?}");
        let stateful_set = objects.stateful_set();
        let pod = &stateful_set["spec"]["template"]["spec"];
        assert_eq!(pod["initContainers"], Value::Null, "{name}");
        let container = &pod["containers"][0];
        assert_eq!(container["lifecycle"], Value::Null, "{name}");
        let is_throw_away = name == THROW_AWAY;
        let expected = if is_throw_away { json!(["start", "--dev"]) } else { json!(["start"]) };
        assert_eq!(container["args"], expected, "{name}");
        let keeps_volumes = stateful_set["spec"]["volumeClaimTemplates"].is_array();
        assert_eq!(keeps_volumes, !is_throw_away, "{name}: only what is thrown away has no volume");
    }
    for name in JOBS {
        let job = &file(name).0[0];
        // Without a name it cannot be applied, so no pipeline keeps it there.
        assert_eq!(job["metadata"]["name"], Value::Null, "{name}");
        assert!(job["metadata"]["generateName"].is_string(), "{name}");
        assert_eq!(job["spec"]["backoffLimit"], 0, "{name}");
        let image = &job["spec"]["template"]["spec"]["containers"][0]["image"];
        let nodes = kustomized("three");
        assert_eq!(
            image,
            &nodes.stateful_set()["spec"]["template"]["spec"]["containers"][0]["image"]
        );
    }
}

/// A machine of another kind starts a pod again and again, and none of them runs.
#[test]
fn pods_run_on_machines_of_the_kind_that_the_image_is_for() {
    let kind = |template: &Value| template["spec"]["nodeSelector"]["kubernetes.io/arch"].clone();
    for (name, objects) in all_rendered() {
        assert_eq!(kind(&objects.stateful_set()["spec"]["template"]), "amd64", "{name}");
    }
    for name in JOBS {
        assert_eq!(kind(&file(name).0[0]["spec"]["template"]), "amd64", "{name}");
    }
}

#[test]
fn the_image_is_that_of_this_release() {
    for (name, objects) in all_rendered() {
        let image = &objects.stateful_set()["spec"]["template"]["spec"]["containers"][0]["image"];
        let version = image.as_str().unwrap().rsplit(':').next().unwrap();
        assert_eq!(version, env!("CARGO_PKG_VERSION"), "{name}");
    }
}

/// The most that a node with these settings takes to stop, in milliseconds.
fn stop_ms(config: &Config) -> u64 {
    Node::stop_max(config).as_millis().try_into().unwrap()
}

/// How much longer than a node may take to stop a supervisor waits, in seconds.
const BEYOND_STOP_S: u64 = 15;

#[test]
fn kubernetes_waits_for_as_long_as_a_handover_may_take() {
    let grace = |objects: &Objects| {
        let spec = &objects.stateful_set()["spec"]["template"]["spec"];
        spec["terminationGracePeriodSeconds"].as_u64().unwrap()
    };
    let takes = |config: &Config| stop_ms(config).div_ceil(1_000) + BEYOND_STOP_S;
    let by_default = takes(&Config::default());
    for (name, objects) in all_rendered() {
        assert_eq!(grace(&objects), by_default, "{name}");
        // If the disk hangs, the process is ended 8 s later, tells why for 2 s at most, and is aborted after 2 more.
        let until_gone_ms = stop_ms(&Config::default()) + 12_000;
        assert!(grace(&objects) * 1_000 > until_gone_ms, "{name}");
    }
    for (path, waits) in [
        ("dist/ratchet.service", format!("\nTimeoutStopSec={by_default}\n")),
        ("README.md", format!(" --stop-timeout={by_default} ")),
        ("docs/deploy.md", format!(" --stop-timeout={by_default} ")),
        ("docs/deploy.md", format!("{BEYOND_STOP_S} s more: {by_default} s by default")),
        ("docs/kubernetes.md", format!("`terminationGracePeriodSeconds: {by_default}`")),
    ] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        assert!(text.contains(&waits), "{path} does not have {waits:?}");
    }
    let with_setting = |setting: &str| grace(&chart("ratchet", &["insecure=true", setting]));
    let longer = Config { handover_timeout_ms: 60_001, ..Config::default() };
    assert_eq!(with_setting("settings.handover_timeout_ms=60001"), takes(&longer));
    let other = Config { shutdown_timeout_ms: 7_000, ..Config::default() };
    assert_eq!(with_setting("settings.shutdown_timeout_ms=7000"), takes(&other));
    let slower = Config { election_timeout_ms: 3_000, ..Config::default() };
    assert_eq!(with_setting("settings.election_timeout_ms=3000"), takes(&slower));
}

#[test]
fn the_page_and_the_manifests_tell_what_the_time_of_a_stop_is_made_of() {
    let default = Config::default();
    let longer = |config: Config| stop_ms(&config) - stop_ms(&default);
    let handovers =
        longer(Config { handover_timeout_ms: default.handover_timeout_ms + 1, ..default.clone() });
    let shutdowns =
        longer(Config { shutdown_timeout_ms: default.shutdown_timeout_ms + 1, ..default.clone() });
    let elections =
        longer(Config { election_timeout_ms: default.election_timeout_ms + 1, ..default.clone() });
    assert_eq!((handovers, shutdowns), (2, 3), "it is told as twice and three times");
    let sum = format!(
        "twice handover_timeout_ms, three times shutdown_timeout_ms and {elections} x election_timeout_ms"
    );
    let manifests =
        ["dist/kubernetes/base/statefulset.yaml", "dist/helm/ratchet/templates/statefulset.yaml"];
    let by_default = format!("{sum}: {} s by default", stop_ms(&default).div_ceil(1_000));
    let page = [("docs/deploy.md", &by_default)];
    for (path, sum) in manifests.map(|path| (path, &sum)).into_iter().chain(page) {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let words = text.split_whitespace().filter(|word| *word != "#");
        let told = words.collect::<Vec<_>>().join(" ").replace('`', "");
        assert!(told.contains(sum), "{path} does not tell: {sum}");
    }
}

#[test]
fn every_name_and_port_that_one_object_uses_of_another_is_there() {
    for (name, objects) in all_rendered() {
        let stateful_set = objects.stateful_set();
        let release = stateful_set["metadata"]["name"].as_str().unwrap();
        let pod = &stateful_set["spec"]["template"];
        let labels = pod["metadata"]["labels"].as_object().unwrap();
        let headless = stateful_set["spec"]["serviceName"].as_str().unwrap();
        let headless = objects.one("Service", headless);
        assert_eq!(headless["spec"]["clusterIP"], "None", "{name}");
        // No node is ready before nodes find each other.
        assert_eq!(headless["spec"]["publishNotReadyAddresses"], true, "{name}");
        let container = &pod["spec"]["containers"][0];
        let ports = container["ports"].as_array().unwrap();
        let is_port = |port: &Value| ports.iter().any(|known| known["name"] == *port);
        for service in objects.0.iter().filter(|object| object["kind"] == "Service") {
            for port in service["spec"]["ports"].as_array().unwrap() {
                assert!(is_port(&port["targetPort"]), "{name}: {service}");
                let target =
                    ports.iter().find(|known| known["name"] == port["targetPort"]).unwrap();
                assert_eq!(port["port"], target["containerPort"], "{name}: {service}");
            }
        }
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert!(is_port(&container[probe]["httpGet"]["port"]), "{name}: {probe}");
        }
        for kind in ["Service", "PodDisruptionBudget", "NetworkPolicy"] {
            let spec = &objects.one(kind, release)["spec"];
            let selectors = [
                &spec["selector"]["matchLabels"],
                &spec["podSelector"]["matchLabels"],
                &spec["selector"],
            ];
            let selector = selectors.into_iter().find_map(Value::as_object).unwrap();
            let fits = |(label, value): (&String, &Value)| labels.get(label) == Some(value);
            assert!(selector.iter().all(fits), "{name}: {kind} selects {selector:?}");
        }
    }
}

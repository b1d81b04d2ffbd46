//! Pods of rendered objects, as processes on this machine: each has its container's arguments and variables, the files that are
//! mounted, and an address of loopback in the place of its names.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use ratchet_jepsen::manifest::{Container, Manifest};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::rendered::{Objects, chart, file, kustomized};
use crate::common::{
    certificates::Certificates,
    eventually, http_get, own_ip,
    processes::{Process, ratchet},
};

/// The namespace of Kubernetes.
const NAMESPACE: &str = "orders";

/// The container of a Job, or of a pod of `objects`, with its arguments and variables.
fn container(template: &Value, pod: &str, objects: &Objects) -> Container {
    let data_of = |map: &str| Some(&objects.one("ConfigMap", map)["data"]);
    Container::of(template, pod, NAMESPACE, data_of).expect("a container")
}

/// The pods of rendered objects.
struct Pods {
    objects: Objects,
    dir: TempDir,
    /// Their addresses, by name.
    ips: BTreeMap<String, IpAddr>,
    /// The directories of secrets, by name.
    secrets: BTreeMap<String, PathBuf>,
    running: Vec<Process>,
}

impl Pods {
    fn of(objects: Objects) -> Pods {
        let manifest = Manifest::new(objects.0.clone());
        let pods = manifest.numbers().expect("numbers").map(|number| manifest.pod(number));
        let ips = pods.map(|pod| (pod.expect("a name"), own_ip())).collect();
        let dir = TempDir::new().expect("a directory");
        Pods { objects, dir, ips, secrets: BTreeMap::new(), running: Vec::new() }
    }

    /// A secret with files.
    fn with_secret(mut self, name: &str, files: &[(impl AsRef<str>, Vec<u8>)]) -> Pods {
        let dir = self.dir.path().join(format!("secret-{name}"));
        fs::create_dir(&dir).expect("a directory");
        for (file, content) in files {
            fs::write(dir.join(file.as_ref()), content).expect("written");
        }
        self.secrets.insert(name.to_owned(), dir);
        self
    }

    /// A text with the names and paths of this machine.
    fn here(&self, text: &str, pod: &str, mounted: &[(String, PathBuf)]) -> String {
        let mut text = text.to_owned();
        let headless = self.objects.stateful_set()["spec"]["serviceName"].as_str().expect("a name");
        for (other, ip) in &self.ips {
            let short = format!("{other}.{headless}");
            text = text.replace(&format!("{short}.{NAMESPACE}.svc"), &ip.to_string());
            text = text.replace(&short, &ip.to_string());
        }
        // In a pod that is all of its addresses.
        if let Some(ip) = self.ips.get(pod) {
            text = text.replace("0.0.0.0:", &format!("{ip}:"));
        }
        for (path, dir) in mounted {
            text = text.replace(&format!("{path}/"), &format!("{}/", dir.display()));
        }
        text
    }

    /// The program with the arguments and variables of a container of this pod.
    fn command(&self, container: &Container, pod: &str) -> Command {
        let data = self.data(pod);
        let mut mounted = vec![("/data".to_owned(), data.clone())];
        for (source, path) in &container.mounts {
            let dir = match self.secrets.get(source) {
                Some(dir) => dir.clone(),
                None => self.dir.path().join(format!("{source}-{pod}")),
            };
            mounted.push((path.clone(), dir));
        }
        for (source, path) in &container.mounts {
            if self.secrets.contains_key(source) {
                continue;
            }
            let dir = &mounted.iter().find(|(other, _)| other == path).expect("a mount").1;
            fs::create_dir_all(dir).expect("a directory");
            let map = self.objects.one("ConfigMap", source);
            for (name, content) in map["data"].as_object().expect("data") {
                let content = self.here(content.as_str().expect("a text"), pod, &mounted);
                fs::write(dir.join(name), content).expect("written");
            }
        }
        let mut command = ratchet();
        command.env("RATCHET_DATA_DIR", &data);
        command.args(container.args.iter().map(|arg| self.here(arg, pod, &mounted)));
        for (name, value) in &container.env {
            command.env(name, self.here(value, pod, &mounted));
        }
        command
    }

    fn container_of(&self, pod: &str) -> Container {
        container(&self.objects.stateful_set()["spec"]["template"], pod, &self.objects)
    }

    /// Starts all pods, side by side.
    fn start(mut self) -> Pods {
        for pod in self.ips.keys() {
            let mut command = self.command(&self.container_of(pod), pod);
            let log = fs::File::create(self.dir.path().join(format!("{pod}.log"))).expect("a log");
            let started = command.stdout(Stdio::null()).stderr(log).spawn();
            self.running.push(Process(started.expect("the node starts")));
        }
        self
    }

    /// The status with which this pod answers a probe.
    async fn probe(&self, probe: &str, pod: &str) -> u16 {
        http_get(self.probed(probe, pod), &self.manifest().probe(probe).expect("a probe").path)
            .await
            .status
    }

    /// Where a probe asks.
    fn probed(&self, probe: &str, pod: &str) -> SocketAddr {
        let port = self.manifest().probe(probe).expect("a probe").port;
        SocketAddr::new(self.ips[pod], port)
    }

    fn manifest(&self) -> Manifest {
        Manifest::new(self.objects.0.clone())
    }

    /// Waits until a probe of each pod succeeds.
    async fn all_succeed(&self, probe: &str) {
        for pod in self.ips.keys() {
            let log = self.dir.path().join(format!("{pod}.log"));
            let what = format!("{probe} of {pod}, whose log is {}", log.display());
            eventually(&what, async || {
                // Nobody listens at first.
                tokio::net::TcpStream::connect(self.probed(probe, pod)).await.ok()?;
                (self.probe(probe, pod).await == 200).then_some(())
            })
            .await;
        }
    }

    /// Runs a Job to its end.
    async fn run_job(&self, name: &str) -> Output {
        let job = &file(name).0[0];
        let container = container(&job["spec"]["template"], "found", &self.objects);
        let mut command = self.command(&container, "found");
        let ran = tokio::task::spawn_blocking(move || command.output());
        ran.await.expect("no panic").expect("the command runs")
    }

    /// The directory in the place of a pod's volume.
    fn data(&self, pod: &str) -> PathBuf {
        self.dir.path().join(format!("data-{pod}"))
    }

    /// Runs the Job that recovers the volume of a pod to its end. With `dry_run` it changes nothing.
    async fn recover(&self, pod: &str, dry_run: bool) -> Output {
        let job = &file("recover.yaml").0[0];
        let mut container = container(&job["spec"]["template"], pod, &self.objects);
        container.args.retain(|arg| dry_run || arg != "--dry-run");
        let data = self.data(pod);
        for arg in &mut container.args {
            *arg = arg.replace("/data", data.to_str().expect("UTF-8"));
        }
        let mut command = self.command(&container, pod);
        let ran = tokio::task::spawn_blocking(move || command.output());
        ran.await.expect("no panic").expect("the command runs")
    }

    /// Runs a command in a pod, as `kubectl exec` does.
    async fn exec(&self, pod: &str, words: &[&str]) -> Output {
        self.exec_reading(Stdio::null(), pod, words).await
    }

    /// The same with an input, as `kubectl exec -i` does.
    async fn exec_reading(&self, input: Stdio, pod: &str, words: &[&str]) -> Output {
        let container = Container { args: Vec::new(), ..self.container_of(pod) };
        let mut command = self.command(&container, pod);
        command.args(words).stdin(input);
        let ran = tokio::task::spawn_blocking(move || command.output());
        ran.await.expect("no panic").expect("the command runs")
    }
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

/// What the secret ratchet-tls has: the CA, and the certificate and the key of the node of each pod.
fn tls_secret(certificates: &Certificates, pods: &Pods) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![("ca.crt".to_owned(), certificates.read("ca.crt"))];
    for (id, ip) in (1..).zip(pods.ips.values()) {
        let (id, ip) = (format!("{id}"), ip.to_string());
        certificates.make(&["node", "--cluster", "ratchet", "--node-id", &id, "--host", &ip]);
        for end in ["crt", "key"] {
            let file = format!("node-{id}.{end}");
            let content = certificates.read(&file);
            files.push((file, content));
        }
    }
    files
}

/// Starts the pods, and waits until their nodes are alive. They hold no data, and so none is ready.
async fn waiting(pods: Pods) -> Pods {
    let pods = pods.start();
    pods.all_succeed("startupProbe").await;
    pods.all_succeed("livenessProbe").await;
    for pod in pods.ips.keys() {
        assert_eq!(pods.probe("readinessProbe", pod).await, 503, "{pod} waits");
    }
    pods
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_the_manifests_wait_alive_and_are_ready_once_they_are_founded() {
    for overlay in ["one", "three"] {
        let pods = waiting(Pods::of(kustomized(overlay))).await;
        let founded = pods.run_job("found.yaml").await;
        assert!(founded.status.success(), "{overlay}: {}", said(&founded));
        pods.all_succeed("readinessProbe").await;
        for (pod, expected) in pods.ips.keys().zip(1..) {
            let taken = pods.exec(pod, &["next", "book", "42"]).await;
            assert_eq!(said(&taken), format!("{expected}\n"), "{overlay}: {pod}");
        }
        let again = pods.run_job("found.yaml").await;
        assert!(
            again.status.success() && said(&again).contains("was founded before"),
            "{}",
            said(&again)
        );
    }
}

/// The names of pods and services are others then.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_a_release_of_any_name_run_with_further_settings() {
    let values = ["insecure=true", "settings.fence=quorum"];
    let pods = waiting(Pods::of(chart("numbers", &values))).await;
    let founded = pods.exec("numbers-1", &["found"]).await;
    assert!(founded.status.success(), "{}", said(&founded));
    pods.all_succeed("readinessProbe").await;
    assert_eq!(said(&pods.exec("numbers-3", &["next", "book", "42"]).await), "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_no_node_knows_keeps_its_nodes_from_starting() {
    let pods = Pods::of(chart("ratchet", &["insecure=true", "settings.fenc=quorum"]));
    let mut command = pods.command(&pods.container_of("ratchet-1"), "ratchet-1");
    let log = pods.dir.path().join("log");
    let started = command.stderr(fs::File::create(&log).expect("a log")).spawn();
    let status = Process(started.expect("the node starts")).ended().await;
    let log = fs::read_to_string(log).expect("a log");
    assert_eq!(status.code(), Some(78), "{log}");
    assert!(log.contains("fenc"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_tls_are_founded_with_a_token_without_which_nobody_may_do_anything() {
    let certificates = Certificates::new();
    let pods = Pods::of(kustomized("three-tls"));
    let tls = tls_secret(&certificates, &pods);
    certificates.make(&["client", "--cluster", "ratchet", "--name", "admin"]);
    let of_client = ["ca.crt", "client-admin.crt", "client-admin.key"];
    let token = b"ratchet_0123456789abcdef0123456789abcdef\n".to_vec();
    let mut founding: Vec<(&str, Vec<u8>)> =
        of_client.map(|file| (file, certificates.read(file))).to_vec();
    founding.push(("admin.token", token));
    let pods = pods.with_secret("ratchet-tls", &tls).with_secret("ratchet-founding", &founding);
    let pods = waiting(pods).await;
    let server = format!("{}:7600", pods.ips["ratchet-2"]);
    let stranger = ["found", "--server", &server, "--timeout-ms", "3000"];
    let open = pods.exec("ratchet-2", &stranger).await;
    assert!(!open.status.success(), "a stranger founds the cluster: {}", said(&open));
    let founded = pods.run_job("found-tls.yaml").await;
    assert!(founded.status.success(), "{}", said(&founded));
    pods.all_succeed("readinessProbe").await;
    let mut stranger = vec!["next", "book", "42", "--server", &server];
    let paths = of_client.map(|file| certificates.path(file));
    for (flag, path) in ["--tls-ca", "--tls-cert", "--tls-key"].iter().zip(&paths) {
        stranger.extend([*flag, path]);
    }
    let refused = pods.exec("ratchet-1", &stranger).await;
    assert_eq!(refused.status.code(), Some(8), "{}", said(&refused));
    let token = pods.secrets["ratchet-founding"].join("admin.token");
    let token = token.to_str().expect("UTF-8");
    let taken = pods.exec("ratchet-1", &[&stranger[..], &["--token-file", token]].concat()).await;
    assert_eq!(said(&taken), "1\n");
}

/// As docs/kubernetes.md says under Helm.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_ask_clients_for_no_certificate_are_founded_in_a_pod_with_a_token_that_is_piped_to_it()
 {
    let certificates = Certificates::new();
    let values = ["tls.secret=ratchet-tls", "tls.clientCertificates=false", "tokens=true"];
    let pods = Pods::of(chart("ratchet", &values));
    let tls = tls_secret(&certificates, &pods);
    let pods = waiting(pods.with_secret("ratchet-tls", &tls)).await;
    certificates.make(&["client", "--cluster", "ratchet", "--name", "admin"]);
    let server = format!("{}:7600", pods.ips["ratchet-2"]);
    let [ca, certificate, key] =
        ["ca.crt", "client-admin.crt", "client-admin.key"].map(|file| certificates.path(file));
    let over_network = ["--server", &server, "--tls-ca", &ca];
    let shows = ["found", "--tls-cert", &certificate, "--tls-key", &key];
    let refused = pods.exec("ratchet-1", &[&shows[..], &over_network].concat()).await;
    assert_eq!(refused.status.code(), Some(8), "{}", said(&refused));

    let token = "ratchet_0123456789abcdef0123456789abcdef\n";
    let (input, mut writer) = io::pipe().expect("a pipe");
    writer.write_all(token.as_bytes()).expect("written");
    drop(writer);
    let found = ["found", "--admin-token-file", "/dev/stdin", "--timeout-ms", "60000"];
    let founded = pods.exec_reading(input.into(), "ratchet-1", &found).await;
    assert!(founded.status.success(), "{}", said(&founded));
    pods.all_succeed("readinessProbe").await;
    let next = [&["next", "book", "42"][..], &over_network].concat();
    let refused = pods.exec("ratchet-1", &next).await;
    assert_eq!(refused.status.code(), Some(8), "{}", said(&refused));
    let file = pods.dir.path().join("admin.token");
    fs::write(&file, token).expect("written");
    let shows = ["--token-file", file.to_str().expect("UTF-8")];
    let taken = pods.exec("ratchet-1", &[&next[..], &shows].concat()).await;
    assert_eq!(said(&taken), "1\n");
}

/// As docs/kubernetes.md says under Recover.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_goes_on_from_the_volume_of_one_pod_and_the_others_get_new_nodes() {
    let mut pods = waiting(Pods::of(kustomized("three"))).await;
    let founded = pods.run_job("found.yaml").await;
    assert!(founded.status.success(), "{}", said(&founded));
    pods.all_succeed("readinessProbe").await;
    assert_eq!(said(&pods.exec("ratchet-1", &["next", "book", "42"]).await), "1\n");
    let in_use = pods.recover("ratchet-2", false).await;
    assert_eq!(in_use.status.code(), Some(74), "{}", said(&in_use));

    // All pods go, and two volumes are lost.
    pods.running.clear();
    let would = said(&pods.recover("ratchet-2", true).await);
    assert!(would.contains("this would make node 2 a cluster of one"), "{would}");
    let done = said(&pods.recover("ratchet-2", false).await);
    assert!(done.contains("node 2 is now a cluster of one"), "{done}");
    for (pod, id) in [("ratchet-1", 6), ("ratchet-3", 7)] {
        fs::remove_dir_all(pods.data(pod)).expect("its volume");
        let is_of_nodes = |object: &&mut Value| {
            object["kind"] == "ConfigMap" && object["metadata"]["name"] == "ratchet-nodes"
        };
        let map = pods.objects.0.iter_mut().find(is_of_nodes).expect("the files of the nodes");
        map["data"][format!("{pod}.toml")] = json!(format!("node_id = {id}\n"));
    }
    let pods = pods.start();
    pods.all_succeed("startupProbe").await;
    eventually("the survivor leads", async || {
        (pods.probe("readinessProbe", "ratchet-2").await == 200).then_some(())
    })
    .await;
    for (pod, id) in [("ratchet-1", "6"), ("ratchet-3", "7")] {
        let address = format!("{}:7601", pods.ips[pod]);
        let added = pods.exec("ratchet-2", &["node", "add", id, &address, "--voter"]).await;
        assert!(added.status.success(), "{}", said(&added));
    }
    pods.all_succeed("readinessProbe").await;
    let told = said(&pods.exec("ratchet-1", &["next", "book", "42"]).await);
    let number: u64 = told.trim_end().parse().unwrap_or_else(|_| panic!("{told}"));
    assert!(number > 1, "{number}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overlay_to_try_things_founds_itself() {
    let pods = Pods::of(kustomized("try")).start();
    pods.all_succeed("readinessProbe").await;
    assert_eq!(said(&pods.exec("ratchet-1", &["next", "book", "42"]).await), "1\n");
}

/// A variable whose name is misspelt is ignored by the node: nothing else would tell.
#[test]
fn every_variable_in_what_is_rendered_is_one_that_the_program_reads() {
    let mut read = BTreeSet::new();
    for command in ["start", "found"] {
        let help = ratchet().args([command, "--help"]).output().expect("the command runs");
        let help = String::from_utf8(help.stdout).expect("UTF-8");
        let is_of_name = |c: char| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit();
        let words = help.split(|c| !is_of_name(c)).filter(|word| word.starts_with("RATCHET_"));
        read.extend(words.map(str::to_owned));
    }
    assert!(read.contains("RATCHET_PEERS"), "{read:?}");
    let mut used = BTreeSet::new();
    for overlay in super::overlays() {
        let pods = Pods::of(kustomized(&overlay));
        used.extend(pods.container_of("ratchet-1").env.into_keys());
    }
    for name in ["found.yaml", "found-tls.yaml"] {
        let job = container(&file(name).0[0]["spec"]["template"], "found", &Objects(Vec::new()));
        used.extend(job.env.into_keys());
    }
    used.retain(|name| name.starts_with("RATCHET_"));
    assert!(used.len() > 10, "{used:?}");
    let unknown: Vec<&String> = used.difference(&read).collect();
    assert!(unknown.is_empty(), "the program reads none of {unknown:?}");
}

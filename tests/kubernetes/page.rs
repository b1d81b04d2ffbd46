//! The commands of docs/kubernetes.md, as far as they can be tried without a cluster of Kubernetes: `ratchet` takes its
//! arguments, the applied directories can be rendered, and secrets and volumes have the names and files that the pods ask for.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    JOBS,
    rendered::{Objects, chart, file, kustomized, parsed},
};
use crate::common::processes::ratchet;

const OVERLAYS: &str = "dist/kubernetes/overlays/";
const FILES: &str = "dist/kubernetes/";

/// The text of the page.
fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/kubernetes.md");
    fs::read_to_string(path).unwrap()
}

/// The commands in the page's blocks of code.
fn commands() -> Vec<String> {
    let page = page();
    let lines = page.lines().filter(|line| line.starts_with("    "));
    let programs = ["kubectl ", "helm ", "ratchet ", "sed -e ", "("];
    let is_command = |line: &&str| programs.iter().any(|program| line.starts_with(program));
    lines.map(str::trim_start).filter(is_command).map(str::to_owned).collect()
}

/// `ratchet` takes these arguments: with a flag too many, or one too few, it would end with 2 in the place of its help.
fn takes(arguments: &[&str]) {
    let (last, others) = arguments.split_last().expect("arguments");
    let unquoted = |word: &&str| word.trim_matches('\'').to_owned();
    let mut command = ratchet();
    command.args(others.iter().map(unquoted)).arg(unquoted(last)).arg("--help");
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "ratchet {arguments:?}: {ran:?}");
}

/// The secrets of a page: a directory with the files that were made, and the names that are used.
struct Secrets {
    dir: TempDir,
    made: BTreeSet<String>,
}

impl Secrets {
    fn run(&self, line: &str) {
        let program = PathBuf::from(ratchet().get_program());
        let bin = program.parent().expect("a directory").display().to_string();
        let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
        let mut bash = Command::new("bash");
        bash.args(["-c", line]).current_dir(self.dir.path()).env("PATH", path);
        let ran = bash.stdin(Stdio::null()).output().unwrap();
        assert!(ran.status.success(), "{line}: {ran:?}");
    }

    /// Each file is there, and all that pods of `template` read of the secret are among them.
    fn make(&mut self, name: &str, flags: &[&str], templates: &[Value]) {
        let files = flags.iter().map(|flag| flag.strip_prefix("--from-file=").expect(flag));
        let mut keys = BTreeSet::new();
        for file in files {
            let path = self.dir.path().join(file);
            assert!(path.is_file(), "{file} was not made before");
            keys.insert(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
        let mut is_used = false;
        for template in templates {
            let text = template.to_string();
            is_used |= text.contains(&format!("\"secretName\":\"{name}\""));
        }
        assert!(is_used, "no pod mounts the secret {name}");
        let needed: &[&str] = match name {
            "ratchet-tls" => &["ca.crt", "node-1.crt", "node-1.key", "node-3.crt", "node-3.key"],
            _ => &["ca.crt", "client-admin.crt", "client-admin.key", "admin.token"],
        };
        for key in needed {
            assert!(keys.contains(*key), "the secret {name} has no {key}");
        }
        assert!(self.made.insert(name.to_owned()), "{name} is made twice");
    }
}

/// Whether an object has a label, as NAME=VALUE.
fn has_label(object: &Value, label: &str) -> bool {
    let (name, value) = label.split_once('=').expect(label);
    object["metadata"]["labels"][name] == value
}

/// Runs the command before the pipe of a line, which makes a Job that recovers the volume of a pod, and sees that `ratchet`
/// takes its arguments. Returns the volume, and whether the Job changes it.
fn recovery(line: &str) -> (String, bool) {
    let (making, _) = line.split_once(" | ").expect(line);
    let mut bash = Command::new("bash");
    let root = env!("CARGO_MANIFEST_DIR");
    let ran = bash.args(["-c", making]).current_dir(root).stdin(Stdio::null()).output().unwrap();
    assert!(ran.status.success(), "{line}: {ran:?}");
    let job = parsed(&ran.stdout).0.remove(0);
    let pod = &job["spec"]["template"]["spec"];
    let arguments = pod["containers"][0]["args"].as_array().expect("arguments");
    let arguments: Vec<&str> = arguments.iter().filter_map(Value::as_str).collect();
    takes(&arguments);
    let volume = &pod["volumes"][0]["persistentVolumeClaim"]["claimName"];
    (volume.as_str().expect("a volume").to_owned(), !arguments.contains(&"--dry-run"))
}

#[test]
fn the_commands_of_the_page_name_what_there_is_and_those_that_need_no_cluster_are_run() {
    let mut secrets = Secrets { dir: TempDir::new().unwrap(), made: BTreeSet::new() };
    let tls = kustomized("three-tls");
    let template = |objects: &Objects| objects.0[0]["spec"]["template"].clone();
    let templates =
        [tls.stateful_set()["spec"]["template"].clone(), template(&file("found-tls.yaml"))];
    let claim = &tls.stateful_set()["spec"]["volumeClaimTemplates"][0]["metadata"]["name"];
    let claim = claim.as_str().unwrap();
    let (mut recoveries, mut played) = (Vec::new(), 0);
    for line in commands() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_pod =
            |name: &str| name.strip_prefix("ratchet-").is_some_and(|n| n.parse::<u64>().is_ok());
        match &words[..] {
            ["ratchet", "cert", ..] | ["(umask", ..] => secrets.run(&line),
            ["kubectl", "exec", pod, "--", "ratchet", arguments @ ..] => {
                assert!(is_pod(pod), "{line}");
                takes(arguments);
            }
            ["kubectl", "exec", "-i", pod, "--", "ratchet", arguments @ .., from] => {
                assert!(is_pod(pod), "{line}");
                takes(arguments);
                let file = secrets.dir.path().join(from.strip_prefix('<').expect(from));
                assert!(file.is_file(), "{line}: it was not made before");
            }
            ["kubectl", "apply" | "delete", "-k", path] => {
                let overlay = path.strip_prefix(OVERLAYS).expect(path);
                assert!(!kustomized(overlay).0.is_empty());
            }
            ["kubectl", "create", "-f", path] => {
                assert_eq!(file(path.strip_prefix(FILES).expect(path)).0.len(), 1);
            }
            ["kubectl", "create", "secret", "generic", name, flags @ ..] => {
                secrets.make(name, flags, &templates);
            }
            ["kubectl", "delete", "secret", name] => {
                assert!(secrets.made.contains(*name), "{line}")
            }
            ["kubectl", "delete", "pvc", claims @ ..] => {
                for name in claims.iter().filter(|word| !word.starts_with("--")) {
                    let pod = name.strip_prefix(&format!("{claim}-"));
                    assert!(pod.is_some_and(is_pod), "{line}");
                }
            }
            ["kubectl", "delete", "pod", "-l", label]
            | ["kubectl", "wait", "--for=delete", "pod", "-l", label, _] => {
                let pods = &tls.stateful_set()["spec"]["template"];
                assert!(has_label(pods, label), "{line}");
            }
            ["kubectl", "delete", "pod", pod] => assert!(is_pod(pod), "{line}"),
            ["kubectl", "create", "namespace", _] | ["kubectl", "config", "set-context", ..] => {}
            ["kubectl", "wait", "--for=condition=complete", "job", "-l", label, _]
            | ["kubectl", "delete", "job", "-l", label] => {
                let has_it = |name: &&str| has_label(&file(name).0[0], label);
                let named: Vec<&str> = JOBS.into_iter().filter(has_it).collect();
                let is_known =
                    named == ["found.yaml", "found-tls.yaml"] || named == ["recover.yaml"];
                assert!(is_known, "{line}: {named:?}");
            }
            ["kubectl", "logs", "-l", label, "--tail=-1"] => {
                assert!(has_label(&template(&file("recover.yaml")), label), "{line}");
            }
            ["sed", .., "|", "kubectl", "create", "-f", "-"] => recoveries.push(recovery(&line)),
            ["kubectl", "scale", name, replicas] => {
                assert_eq!(*name, "statefulset/ratchet");
                assert!(["--replicas=0", "--replicas=3"].contains(replicas), "{line}");
            }
            ["kubectl", "rollout", "status" | "restart", name] => {
                assert_eq!(*name, "statefulset/ratchet");
            }
            ["helm", "install", release, "dist/helm/ratchet", flags @ ..] => {
                let values = flags.chunks(2).map(|pair| {
                    assert_eq!(pair[0], "--set", "{line}");
                    pair[1]
                });
                assert!(!chart(release, &values.collect::<Vec<_>>()).0.is_empty());
            }
            [
                "helm",
                "upgrade",
                "ratchet",
                "dist/helm/ratchet",
                "--reset-then-reuse-values",
                flags @ ..,
            ] => {
                let values = flags.iter().filter(|word| **word != "--set").copied();
                let values: Vec<&str> = ["insecure=true"].into_iter().chain(values).collect();
                assert!(!chart("ratchet", &values).0.is_empty(), "{line}");
            }
            _ => panic!("nobody tries {line:?}"),
        }
        played += 1;
    }
    assert!(played > 30, "only {played} commands were found");
    assert_eq!(secrets.made.len(), 2);
    let volume = format!("{claim}-ratchet-2");
    assert_eq!(recoveries, [(volume.clone(), false), (volume, true)]);
}

#[test]
fn the_command_that_wraps_the_alerts_makes_a_rule_for_the_operator_of_all_of_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = page();
    let (_, block) = page.split_once("\n    { printf").expect("the command");
    let (wrapping, _) = block.split_once(" | kubectl apply -f -\n").expect("its end");
    let mut bash = Command::new("bash");
    bash.args(["-ec", &format!("{{ printf{wrapping}")]).current_dir(root).stdin(Stdio::null());
    let ran = bash.output().unwrap();
    assert!(ran.status.success(), "{wrapping}: {ran:?}");
    let rules = fs::read(root.join("observe/alerts.yml")).unwrap();
    let expected = json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": { "name": "ratchet" },
        "spec": parsed(&rules).0[0],
    });
    assert_eq!(parsed(&ran.stdout).0, [expected]);
}

//! The objects that kustomize and helm make of the sources, as JSON, and the verdict of the validator.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// The directories in the cache where cluster/prerequisites installs the tools.
const TOOLS: [&str; 2] = ["kubernetes-v3.22.0-v5.7.1", "kubernetes-validate-1.37.0/bin"];
/// A helm that was built from its sources takes the cluster for an old one unless it is told.
const KUBERNETES: &str = "1.28.0";

/// Objects of Kubernetes.
pub struct Objects(pub Vec<Value>);

impl Objects {
    /// The object of this kind and name.
    pub fn one(&self, kind: &str, name: &str) -> &Value {
        let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        self.0.iter().find(is_it).unwrap_or_else(|| panic!("there is no {kind} {name}"))
    }

    /// The only one.
    pub fn stateful_set(&self) -> &Value {
        let mut found = self.0.iter().filter(|object| object["kind"] == "StatefulSet");
        let first = found.next().expect("a StatefulSet");
        assert!(found.next().is_none(), "a second StatefulSet");
        first
    }
}

fn tool(name: &str) -> Command {
    let home = || PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache");
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
    let paths = TOOLS.map(|dir| cache.join("ratchet").join(dir).join(name));
    let found = paths.iter().find(|path| path.exists()).unwrap_or(&paths[0]);
    Command::new(found)
}

fn dist() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("dist")
}

/// Runs a tool, which reads `input`.
fn run(command: &mut Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn();
    let mut child = child.unwrap_or_else(|error| {
        panic!("{command:?}: {error}; cluster/prerequisites --tests installs it")
    });
    // The tools read all of it before they write.
    child.stdin.take().expect("a pipe").write_all(input).expect("the tool reads");
    child.wait_with_output().expect("its output")
}

fn printed(command: &mut Command, input: &[u8]) -> Vec<u8> {
    let Output { status, stdout, stderr } = run(command, input);
    assert!(status.success(), "{command:?}: {status}: {}", String::from_utf8_lossy(&stderr));
    stdout
}

/// The objects in a text of YAML.
pub fn parsed(yaml: &[u8]) -> Objects {
    let program = "import json, sys, yaml
json.dump([one for one in yaml.safe_load_all(sys.stdin) if one], sys.stdout)";
    let json = printed(tool("python").args(["-c", program]), yaml);
    Objects(serde_json::from_slice(&json).expect("JSON"))
}

/// The objects that kustomize makes of an overlay.
pub fn kustomized(overlay: &str) -> Objects {
    let dir = dist().join("kubernetes/overlays").join(overlay);
    parsed(&printed(tool("kustomize").arg("build").arg(dir), b""))
}

/// The objects that kustomize makes of a user's overlay of ours, with one of our components.
pub fn kustomized_with(overlay: &str, component: &str) -> Objects {
    let dir = tempfile::tempdir().expect("a directory");
    // Kustomize takes paths below its directories, and no absolute ones.
    printed(Command::new("cp").arg("-r").arg(dist().join("kubernetes")).arg(dir.path()), b"");
    let own = dir.path().join("kubernetes/overlays/own");
    std::fs::create_dir(&own).expect("a directory");
    let text = format!("resources: [../{overlay}]\ncomponents: [../../components/{component}]\n");
    std::fs::write(own.join("kustomization.yaml"), text).expect("written");
    parsed(&printed(tool("kustomize").arg("build").arg(own), b""))
}

/// A file in dist/kubernetes as it is.
pub fn file(name: &str) -> Objects {
    parsed(&std::fs::read(dist().join("kubernetes").join(name)).expect(name))
}

fn helm(what: &[&str], values: &[&str]) -> Command {
    let mut command = tool("helm");
    command.args(what).arg(dist().join("helm/ratchet")).args(["--kube-version", KUBERNETES]);
    command.args(values.iter().flat_map(|value| ["--set", *value]));
    command
}

/// The objects that helm makes of the chart with these values, for a release of this name.
pub fn chart(release: &str, values: &[&str]) -> Objects {
    parsed(&printed(&mut helm(&["template", release], values), b""))
}

/// The same, for a release that is there already.
pub fn upgraded_chart(release: &str, values: &[&str]) -> Objects {
    parsed(&printed(&mut helm(&["template", release, "--is-upgrade"], values), b""))
}

/// The same, with the values in a file of this text, for a release of the name ratchet.
pub fn chart_of_file(text: &str) -> Objects {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("values.yaml");
    std::fs::write(&path, text).expect("written");
    let path = path.to_str().expect("UTF-8");
    parsed(&printed(&mut helm(&["template", "ratchet", "--values", path], &[]), b""))
}

/// The message of helm about values that it refuses.
pub fn chart_refuses(values: &[&str]) -> String {
    let Output { status, stdout, stderr } = run(&mut helm(&["template", "ratchet"], values), b"");
    assert!(!status.success() && stdout.is_empty(), "{values:?} are taken");
    String::from_utf8(stderr).expect("UTF-8")
}

/// Whether helm finds no fault in the chart, and its output.
pub fn lint(values: &[&str]) -> (bool, String) {
    let Output { status, stdout, .. } = run(&mut helm(&["lint", "--strict"], values), b"");
    (status.success(), String::from_utf8_lossy(&stdout).into_owned())
}

/// Whether a release of Kubernetes takes these objects, and the validator's output.
pub fn validated(objects: &Objects, version: &str) -> (bool, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("objects.yaml");
    // JSON is YAML.
    let texts = objects.0.iter().map(|object| format!("---\n{object}\n"));
    std::fs::write(&file, texts.collect::<String>()).expect("written");
    let mut command = tool("kubernetes-validate");
    command.args(["--strict", "-k", version]).arg(&file);
    let Output { status, stdout, stderr } = run(&mut command, b"");
    let text = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    // Each one was looked at.
    let passed = text.matches(" passed for resource ").count();
    (status.success() && passed == objects.0.len(), text)
}

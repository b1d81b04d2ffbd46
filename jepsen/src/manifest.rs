//! Reads rendered manifests about the pods of a StatefulSet: the start of their container, their names, when Kubernetes takes
//! them for started and ready, and how long it waits for their end.

use std::{collections::BTreeMap, fs, io, path::Path, time::Duration};

use serde_json::Value;

/// Rendered objects, one StatefulSet among them.
#[derive(Debug, Clone)]
pub struct Manifest {
    objects: Vec<Value>,
}

/// How Kubernetes asks a container over HTTP.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The port of the container.
    pub port: u16,
    /// The path.
    pub path: String,
    /// How often it asks.
    pub period: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How many answers in a row have to be bad.
    pub failures: u64,
}

/// A container, with the variables that Kubernetes gives it.
#[derive(Debug, Clone)]
pub struct Container {
    /// The arguments of its program.
    pub args: Vec<String>,
    /// The variables.
    pub env: BTreeMap<String, String>,
    /// The names of the secrets and maps that are mounted, and where.
    pub mounts: Vec<(String, String)>,
}

/// `$(NAME)` in a value stands for a variable that was set before.
fn expanded(value: &str, env: &BTreeMap<String, String>) -> io::Result<String> {
    let mut expanded = value.to_owned();
    for (name, value) in env {
        expanded = expanded.replace(&format!("$({name})"), value);
    }
    match expanded.contains("$(") {
        false => Ok(expanded),
        true => Err(wrong(format!("{value} names a variable that is not set before it"))),
    }
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn text(value: &Value) -> io::Result<String> {
    value.as_str().map(str::to_owned).ok_or_else(|| wrong(format!("{value} is no text")))
}

fn number(of: &Value, name: &str) -> io::Result<u64> {
    of[name].as_u64().ok_or_else(|| wrong(format!("{name} is no number: {}", of[name])))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

impl Container {
    /// The first container of a template of pods, in a pod of this name and namespace of Kubernetes. `data_of` returns the
    /// content of a map of settings.
    ///
    /// # Errors
    /// The template needs something that is not there, or that nobody here knows.
    pub fn of<'a>(
        template: &Value, pod: &str, namespace: &str, data_of: impl Fn(&str) -> Option<&'a Value>,
    ) -> io::Result<Container> {
        let container = &template["spec"]["containers"][0];
        let mut env = BTreeMap::new();
        for source in list(&container["envFrom"]) {
            let map = text(&source["configMapRef"]["name"])?;
            let data = data_of(&map).and_then(Value::as_object);
            for (name, value) in data.ok_or_else(|| wrong(format!("there is no map {map}")))? {
                env.insert(name.clone(), text(value)?);
            }
        }
        for variable in list(&container["env"]) {
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some("metadata.name") => pod.to_owned(),
                Some("metadata.namespace") => namespace.to_owned(),
                Some(other) => return Err(wrong(format!("the field {other} is not known here"))),
                None => expanded(&text(&variable["value"])?, &env)?,
            };
            env.insert(text(&variable["name"])?, value);
        }
        let mut mounts = Vec::new();
        for mount in list(&container["volumeMounts"]) {
            let volumes = list(&template["spec"]["volumes"]);
            let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]);
            let source = volume.and_then(|volume| {
                let names = [&volume["configMap"]["name"], &volume["secret"]["secretName"]];
                names.into_iter().find_map(Value::as_str)
            });
            if let Some(source) = source {
                mounts.push((source.to_owned(), text(&mount["mountPath"])?));
            }
        }
        let args = list(&container["args"]).iter().map(text).collect::<io::Result<_>>()?;
        Ok(Container { args, env, mounts })
    }
}

impl Manifest {
    /// The manifest of these objects.
    pub fn new(objects: Vec<Value>) -> Manifest {
        Manifest { objects }
    }

    /// Reads a file with a list of objects, as JSON.
    ///
    /// # Errors
    /// It cannot be read, or holds something else.
    pub fn read(path: &Path) -> io::Result<Manifest> {
        let objects: Vec<Value> = serde_json::from_slice(&fs::read(path)?)?;
        let manifest = Manifest::new(objects);
        manifest.stateful_set()?;
        Ok(manifest)
    }

    fn stateful_set(&self) -> io::Result<&Value> {
        let is_it = |object: &&Value| object["kind"] == "StatefulSet";
        self.objects.iter().find(is_it).ok_or_else(|| wrong("there is no StatefulSet"))
    }

    /// The name of a pod.
    ///
    /// # Errors
    /// The StatefulSet has no name.
    pub fn pod(&self, number: impl Into<u64>) -> io::Result<String> {
        let name = text(&self.stateful_set()?["metadata"]["name"])?;
        Ok(format!("{name}-{}", number.into()))
    }

    /// The numbers of the pods.
    ///
    /// # Errors
    /// The StatefulSet does not say.
    pub fn numbers(&self) -> io::Result<std::ops::Range<u64>> {
        let spec = &self.stateful_set()?["spec"];
        let first = number(&spec["ordinals"], "start")?;
        Ok(first..first + number(spec, "replicas")?)
    }

    /// The names of a pod in the network, for pods of its namespace and of others.
    ///
    /// # Errors
    /// The StatefulSet has no headless service that publishes names at once. Without that, no node finds another one.
    pub fn names(&self, pod: &str, namespace: &str) -> io::Result<[String; 2]> {
        let service = text(&self.stateful_set()?["spec"]["serviceName"])?;
        let is_it = |object: &&Value| {
            object["kind"] == "Service" && object["metadata"]["name"] == service.as_str()
        };
        let found = self.objects.iter().find(is_it);
        let found = found.ok_or_else(|| wrong(format!("there is no service {service}")))?;
        if found["spec"]["publishNotReadyAddresses"] != true {
            return Err(wrong(format!("{service} hides pods that are not ready")));
        }
        Ok([format!("{pod}.{service}"), format!("{pod}.{service}.{namespace}.svc")])
    }

    /// The content of a map of settings.
    pub fn data(&self, map: &str) -> Option<&Value> {
        let is_it =
            |object: &&Value| object["kind"] == "ConfigMap" && object["metadata"]["name"] == map;
        self.objects.iter().find(is_it).map(|object| &object["data"])
    }

    /// The container of a pod, with its arguments and variables.
    ///
    /// # Errors
    /// The objects do not say.
    pub fn container(&self, pod: &str, namespace: &str) -> io::Result<Container> {
        let template = &self.stateful_set()?["spec"]["template"];
        Container::of(template, pod, namespace, |map| self.data(map))
    }

    /// Whether pods are started without waiting for one another.
    ///
    /// # Errors
    /// There is no StatefulSet.
    pub fn starts_side_by_side(&self) -> io::Result<bool> {
        Ok(self.stateful_set()?["spec"]["podManagementPolicy"] == "Parallel")
    }

    /// For how long a pod has to be ready before an update goes on.
    ///
    /// # Errors
    /// The StatefulSet does not say.
    pub fn min_ready(&self) -> io::Result<Duration> {
        number(&self.stateful_set()?["spec"], "minReadySeconds").map(Duration::from_secs)
    }

    /// How long a pod has for its end.
    ///
    /// # Errors
    /// The StatefulSet does not say.
    pub fn grace(&self) -> io::Result<Duration> {
        let spec = &self.stateful_set()?["spec"]["template"]["spec"];
        number(spec, "terminationGracePeriodSeconds").map(Duration::from_secs)
    }

    /// A probe, as `readinessProbe`.
    ///
    /// # Errors
    /// The container has none over HTTP.
    pub fn probe(&self, name: &str) -> io::Result<Probe> {
        let container = &self.stateful_set()?["spec"]["template"]["spec"]["containers"][0];
        let (probe, get) = (&container[name], &container[name]["httpGet"]);
        let port = list(&container["ports"]).iter().find(|port| port["name"] == get["port"]);
        let port = port.ok_or_else(|| wrong(format!("{name} names no port: {probe}")))?;
        let port = u16::try_from(number(port, "containerPort")?).map_err(io::Error::other)?;
        Ok(Probe {
            port,
            path: text(&get["path"])?,
            period: Duration::from_secs(number(probe, "periodSeconds")?),
            timeout: Duration::from_secs(number(probe, "timeoutSeconds")?),
            failures: number(probe, "failureThreshold")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest() -> Manifest {
        let container = json!({
            "args": ["start"],
            "envFrom": [{ "configMapRef": { "name": "all" } }],
            "env": [
                { "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                { "name": "FILE", "value": "/etc/$(POD).toml" },
            ],
            "ports": [{ "name": "metrics", "containerPort": 7602 }],
            "volumeMounts": [
                { "name": "data", "mountPath": "/data" },
                { "name": "nodes", "mountPath": "/etc" },
            ],
            "readinessProbe": {
                "httpGet": { "path": "/readyz", "port": "metrics" },
                "periodSeconds": 2, "timeoutSeconds": 1, "failureThreshold": 3,
            },
        });
        let template = json!({ "spec": {
            "terminationGracePeriodSeconds": 90,
            "containers": [container],
            "volumes": [{ "name": "nodes", "configMap": { "name": "each" } }],
        } });
        Manifest::new(vec![
            json!({ "kind": "ConfigMap", "metadata": { "name": "all" }, "data": { "A": "b" } }),
            json!({
                "kind": "Service",
                "metadata": { "name": "nodes" },
                "spec": { "publishNotReadyAddresses": true },
            }),
            json!({
                "kind": "StatefulSet",
                "metadata": { "name": "a" },
                "spec": {
                    "replicas": 3, "ordinals": { "start": 1 }, "serviceName": "nodes",
                    "minReadySeconds": 10, "podManagementPolicy": "Parallel", "template": template,
                },
            }),
        ])
    }

    #[test]
    fn a_pod_has_its_names_and_variables_and_times() {
        let manifest = manifest();
        let pod = manifest.pod(3_u64).unwrap();
        assert_eq!((&*pod, manifest.numbers().unwrap()), ("a-3", 1..4));
        assert_eq!(manifest.names(&pod, "here").unwrap(), ["a-3.nodes", "a-3.nodes.here.svc"]);
        let container = manifest.container(&pod, "here").unwrap();
        let env = [("A", "b"), ("FILE", "/etc/a-3.toml"), ("POD", "a-3")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(container.env, BTreeMap::from(env));
        assert_eq!(container.mounts, [("each".to_owned(), "/etc".to_owned())]);
        assert_eq!(manifest.grace().unwrap(), Duration::from_secs(90));
        assert_eq!(manifest.min_ready().unwrap(), Duration::from_secs(10));
        assert!(manifest.starts_side_by_side().unwrap());
        let probe = manifest.probe("readinessProbe").unwrap();
        assert_eq!((probe.port, &*probe.path, probe.failures), (7_602, "/readyz", 3));
    }

    #[test]
    fn what_is_missing_is_told() {
        let told = |error: io::Error| error.to_string();
        let mut without = manifest();
        without.objects.remove(0);
        let error = told(without.container("a-1", "here").unwrap_err());
        assert_eq!(error, "there is no map all");
        let mut hidden = manifest();
        hidden.objects[1]["spec"]["publishNotReadyAddresses"] = json!(false);
        let error = told(hidden.names("a-1", "here").unwrap_err());
        assert_eq!(error, "nodes hides pods that are not ready");
        let error = told(manifest().probe("livenessProbe").unwrap_err());
        assert_eq!(error, "livenessProbe names no port: null");
        let error = told(expanded("$(B)", &BTreeMap::new()).unwrap_err());
        assert_eq!(error, "$(B) names a variable that is not set before it");
    }
}

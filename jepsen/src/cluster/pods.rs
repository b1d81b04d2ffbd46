//! Nodes that run as the pods of a manifest: with its arguments and variables, and with names that stand for an address that
//! changes whenever a pod is made again.
//!
//! Callers reach a node at an address that stays, as through a service of its own. The other nodes know its names alone.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{
    isolate,
    manifest::Manifest,
    network::{self, Network, Port},
};

/// The namespace of Kubernetes in which the pods are.
const NAMESPACE: &str = "default";
/// The first and the last address that pods get by turns. The addresses below belong to nodes.
const HOSTS: (u8, u8) = (100, 250);
/// Where the system looks for names first.
const HOSTS_FILE: &str = "/etc/hosts";

/// A pod in which a node runs, or ran last.
struct Pod {
    number: u64,
    /// The last part of its address, while there is such a pod.
    host: Option<u8>,
}

/// The pods.
pub struct Pods {
    /// The manifest of the pods.
    pub manifest: Manifest,
    dir: PathBuf,
    of_node: BTreeMap<Port, Pod>,
    next_host: u8,
}

impl Pods {
    /// No pods yet. From now on this process and its child processes know their names.
    ///
    /// # Errors
    /// The file with the names cannot be written, or cannot take the place of the system's.
    pub fn start(manifest: Manifest, dir: &Path) -> io::Result<Pods> {
        let pods =
            Pods { manifest, dir: dir.join("pods"), of_node: BTreeMap::new(), next_host: HOSTS.0 };
        fs::create_dir_all(&pods.dir)?;
        pods.write_names()?;
        isolate::mount_file(&pods.names_file(), Path::new(HOSTS_FILE))?;
        Ok(pods)
    }

    /// From its next start on, the node runs in this pod.
    pub fn assign(&mut self, node: Port, number: u64) {
        self.of_node.insert(node, Pod { number, host: None });
    }

    /// The number of the pod in which a node runs.
    pub fn number(&self, node: Port) -> Option<u64> {
        self.of_node.get(&node).map(|pod| pod.number)
    }

    /// Where its peers reach a node.
    ///
    /// # Errors
    /// It has no pod, or its pod has no name.
    pub fn peer_address(&self, node: Port, port: u16) -> io::Result<String> {
        let [name, _] = self.names(node)?;
        Ok(format!("{name}:{port}"))
    }

    fn names(&self, node: Port) -> io::Result<[String; 2]> {
        let number = self.number(node);
        let number = number.ok_or_else(|| io::Error::other(format!("node {node} has no pod")))?;
        self.manifest.names(&self.manifest.pod(number)?, NAMESPACE)
    }

    /// Makes the pod of a node. It has an address that no pod had lately. One that is there already is kept.
    ///
    /// # Errors
    /// The network refuses the address, or the names cannot be written.
    pub fn make(&mut self, node: Port, network: &Network) -> io::Result<()> {
        if self.of_node.get(&node).is_some_and(|pod| pod.host.is_some()) {
            return Ok(());
        }
        let free = |host: &u8| !self.of_node.values().any(|pod| pod.host == Some(*host));
        let host = (self.next_host..=HOSTS.1).chain(HOSTS.0..self.next_host).find(free);
        let host = host.ok_or_else(|| io::Error::other("all addresses of pods are in use"))?;
        self.next_host = if host == HOSTS.1 { HOSTS.0 } else { host + 1 };
        self.make_at(node, host, network)
    }

    /// Makes the pod of a node with this address, which no pod may have.
    ///
    /// # Errors
    /// The node has no pod, the network refuses the address, or the names cannot be written.
    pub fn make_at(&mut self, node: Port, host: u8, network: &Network) -> io::Result<()> {
        let Some(pod) = self.of_node.get_mut(&node) else {
            return Err(io::Error::other(format!("node {node} has no pod")));
        };
        network.add_address(node, host)?;
        pod.host = Some(host);
        self.write_names()
    }

    /// Removes the pod of a node. Its address leads nowhere then. Returns the last part of it.
    ///
    /// # Errors
    /// The network keeps the address, or the names cannot be written.
    pub fn remove(&mut self, node: Port, network: &Network) -> io::Result<Option<u8>> {
        let Some(host) = self.of_node.get_mut(&node).and_then(|pod| pod.host.take()) else {
            return Ok(None);
        };
        network.remove_address(node, host)?;
        self.write_names()?;
        Ok(Some(host))
    }

    /// The variables and the arguments with which a node starts.
    ///
    /// # Errors
    /// The manifest does not say, or a file cannot be written.
    pub fn start_with(&self, node: Port) -> io::Result<(Vec<String>, Vec<String>)> {
        let number = self.number(node);
        let number = number.ok_or_else(|| io::Error::other(format!("node {node} has no pod")))?;
        let pod = self.manifest.pod(number)?;
        let container = self.manifest.container(&pod, NAMESPACE)?;
        let mut variables = Vec::new();
        for (name, value) in &container.env {
            let mut value = value.clone();
            for (source, path) in &container.mounts {
                let dir = self.dir.join(format!("{source}-{node}"));
                value = value.replace(&format!("{path}/"), &format!("{}/", dir.display()));
            }
            variables.push(format!("{name}={value}"));
        }
        for (source, _) in &container.mounts {
            let dir = self.dir.join(format!("{source}-{node}"));
            fs::create_dir_all(&dir)?;
            let data = self.manifest.data(source).and_then(|data| data.as_object());
            let data = data.ok_or_else(|| io::Error::other(format!("there is no map {source}")))?;
            for (name, content) in data {
                let content = content.as_str().unwrap_or_default();
                // As a person writes the id of a new node into the file of its pod.
                let file = File::create(dir.join(name))?;
                write_with_id(file, content, (format!("{pod}.toml") == *name).then_some(node))?;
            }
        }
        Ok((variables, container.args))
    }

    fn names_file(&self) -> PathBuf {
        self.dir.join("hosts")
    }

    /// Writes the names of all pods that there are. The file stays the same one, since it is mounted.
    fn write_names(&self) -> io::Result<()> {
        let mut text = "127.0.0.1 localhost\n".to_owned();
        for (node, pod) in &self.of_node {
            if let Some(host) = pod.host {
                let names = self.names(*node)?.join(" ");
                writeln!(text, "{} {names}", network::address(host)).map_err(io::Error::other)?;
            }
        }
        fs::write(self.names_file(), text)
    }
}

/// Writes lines of settings. The id of the node is this one, if there is one.
fn write_with_id(mut file: impl Write, content: &str, id: Option<Port>) -> io::Result<()> {
    for line in content.lines() {
        match id {
            Some(id) if line.starts_with("node_id = ") => writeln!(file, "node_id = {id}")?,
            _ => writeln!(file, "{line}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_node_is_the_only_line_that_changes() {
        let mut written = Vec::new();
        let content = "node_id = 3\ntls_cert = \"/a/node_id = 3\"\n";
        write_with_id(&mut written, content, Some(6)).unwrap();
        let expected = "node_id = 6\ntls_cert = \"/a/node_id = 3\"\n";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}

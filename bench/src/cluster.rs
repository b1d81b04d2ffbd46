//! The cluster that is measured: a running one, or one that is started for the run.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    child::{Directory, Process, free_ports, this_program},
    error::Error,
    options::Fence,
    target::{NAMESPACE, Server, Target},
};
use ratchet_client::{Client, Code, api};

/// How long a cluster may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The node's program: `named`, or `ratchet` in the directory of this program.
///
/// # Errors
/// If there is no such file.
pub fn program(named: Option<&Path>) -> Result<PathBuf, Error> {
    let program = match named {
        Some(named) => named.to_owned(),
        None => this_program()?.with_file_name("ratchet"),
    };
    match program.is_file() {
        true => Ok(program),
        false => Err(Error::config(format!(
            "there is no program {}; build it (cargo build --bin ratchet), or name another with --binary",
            program.display()
        ))),
    }
}

fn client(servers: &[String], timeout: Duration) -> Result<Client, Error> {
    Ok(Client::builder()
        .servers(servers)
        .timeout(timeout)
        .build()?)
}

/// Starts a cluster of `nodes` nodes on this machine.
///
/// # Errors
/// If a node does not start or answer; with the end of its log.
pub async fn start(
    directory: &Directory,
    program: &Path,
    name: &'static str,
    nodes: u64,
    fence: Fence,
    step: u64,
) -> Result<Target, Error> {
    let ports = free_ports(2 * nodes as usize)?;
    let (clients, peers) = ports.split_at(nodes as usize);
    let founders: Vec<String> = (peers.iter().zip(1..))
        .map(|(peer, id)| format!("{id}={peer}"))
        .collect();
    let mut servers = Vec::new();
    for ((client, peer), id) in clients.iter().zip(peers).zip(1u64..) {
        let data = directory.place(&format!("{name}-{id}"));
        let args = [
            "start".to_owned(),
            "--cluster=bench".to_owned(),
            format!("--node-id={id}"),
            format!("--data-dir={}", data.display()),
            format!("--listen={client}"),
            format!("--peer-listen={peer}"),
            "--metrics-listen=off".to_owned(),
            format!("--peers={}", founders.join(",")),
            format!("--fence={}", fence.name()),
        ];
        let node = format!("{name} node {id}");
        servers.push(Server {
            id,
            address: client.to_string(),
            process: Some(Process::start(directory, &node, program, &args, false)?),
        });
    }
    let addresses: Vec<String> = servers
        .iter()
        .map(|server| server.address.clone())
        .collect();
    let found = found(&addresses, Some(step)).await;
    let leader = match (
        found,
        servers.first().and_then(|server| server.process.as_ref()),
    ) {
        (Ok(leader), _) => leader,
        (Err(_), Some(process)) => return Err(process.complaint()),
        (Err(error), None) => return Err(error),
    };
    Ok(Target::new(name, servers, leader))
}

/// Finds the nodes of a running cluster.
///
/// # Errors
/// If none of its servers answers, or it has no leader.
pub async fn running(servers: &[String]) -> Result<Target, Error> {
    found(servers, None).await?;
    let status = client(servers, PATIENCE)?.status().await?;
    let servers = status.nodes.iter().map(|node| Server {
        id: node.id,
        address: node.address.clone(),
        process: None,
    });
    let leader = status.leader.ok_or_else(no_leader)?;
    Ok(Target::new("ratchet", servers.collect(), leader))
}

/// Waits until the cluster has a leader, creates the namespace, and returns the leader's id.
async fn found(servers: &[String], step: Option<u64>) -> Result<u64, Error> {
    let client = client(servers, PATIENCE)?;
    // This waits until there is a leader.
    client.next("book", u64::MAX).await?;
    let created = client.create_namespace(api::CreateNamespaceRequest {
        name: NAMESPACE.to_owned(),
        step,
        ..api::CreateNamespaceRequest::default()
    });
    match created.await {
        Err(error) if error.code() == Some(Code::AlreadyExists) => {}
        created => drop(created?),
    }
    client.status().await?.leader.ok_or_else(no_leader)
}

fn no_leader() -> Error {
    Error::other("the cluster has no leader at the moment; see `ratchet status`".to_owned())
}

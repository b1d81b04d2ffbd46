//! The cluster that is measured: a running one, or one that is started for the run.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    child::{Directory, Process, free_ports, this_program},
    error::Error,
    http,
    options::ClusterOptions,
    secrets::{CLUSTER, Secrets},
    target::{NAMESPACE, Server, Target},
    tls::Certificates,
    token::Token,
};
use ratchet_client::{Client, Code, api};

/// How many ports a node has: for gRPC, peers, metrics, HTTP and Redis clients.
const PORTS: usize = 5;
/// How long a cluster may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long nodes that were started again may take to catch up.
const HEALTHY_MAX: Duration = Duration::from_secs(120);
/// How many entries a node that has caught up may be behind, under load.
const LAG_MAX: u64 = 1_000;

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

/// A client of the cluster at `servers`.
///
/// # Errors
/// If an address is not of the form "host:port".
pub fn client(servers: &[String], timeout: Duration) -> Result<Client, Error> {
    client_showing(servers, timeout, None, None)
}

/// A client of the cluster at `servers`, over TLS if it is given certificates, which shows the token if it is given one.
fn client_showing(
    servers: &[String], timeout: Duration, tls: Option<&Certificates>, token: Option<&Token>,
) -> Result<Client, Error> {
    let mut client = Client::builder().servers(servers).timeout(timeout);
    if let Some(tls) = tls {
        client = client.tls(tls.of_client());
    }
    if let Some(token) = token {
        client = client.token(token.of_client());
    }
    Ok(client.build()?)
}

/// Starts a cluster of `nodes` nodes on this machine.
///
/// # Errors
/// If there is no such program, or if a node does not start or answer; with the end of its log.
pub async fn start(
    directory: &Directory, name: &'static str, nodes: u64, options: &ClusterOptions,
) -> Result<Target, Error> {
    let program = program(options.binary.as_deref())?;
    let ports = free_ports(PORTS * nodes as usize)?;
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    let (ports, _) = ports.as_chunks::<PORTS>();
    let founders: Vec<String> =
        (ports.iter().zip(1..)).map(|([_, peer, ..], id)| format!("{id}={peer}")).collect();
    let mut servers = Vec::new();
    for ([client, peer, metrics, http, redis], id) in ports.iter().zip(1..) {
        let data = directory.place(&format!("{name}-{id}"));
        let mut command = Command::new(&program);
        command
            .arg("start")
            .arg(format!("--cluster={CLUSTER}"))
            .arg(format!("--node-id={id}"))
            .arg(format!("--data-dir={}", data.display()))
            .arg(format!("--listen={client}"))
            .arg(format!("--peer-listen={peer}"))
            .arg(format!("--metrics-listen={metrics}"))
            .arg(format!("--peers={}", founders.join(",")))
            .arg(format!("--fence={}", options.fence.name()))
            .args(options.secrets.iter().flat_map(|secrets| secrets.of_node(id)))
            .args(&options.further)
            .env_remove("RATCHET_CONFIG")
            // An older build does not know a flag for these.
            .env("RATCHET_HTTP_LISTEN", http)
            .env("RATCHET_RESP_LISTEN", redis);
        let node = format!("{name} node {id}");
        servers.push(Server {
            http: Some(http.clone()),
            redis: Some(redis.clone()),
            metrics: Some(metrics.clone()),
            process: Some(Process::start(directory, &node, &command, false)?),
            ..Server::new(id, client.clone())
        });
    }
    let addresses: Vec<String> = servers.iter().map(|server| server.address.clone()).collect();
    if let Some(secrets) = &options.secrets {
        let founded = found_secure(directory, &addresses, secrets, options).await;
        // A node that has ended says why, and its caller does not.
        let (leader, token) = founded.map_err(|error| has_ended(&mut servers).unwrap_or(error))?;
        let (target, tls) = (Target::new(name, servers, leader), Some(secrets.of_callers()));
        return Ok(Target { tls, token: Some(token), ..target });
    }
    let found = found(&addresses, options).await;
    let leader = match (found, servers.first().and_then(|server| server.process.as_ref())) {
        (Ok(leader), _) => leader,
        (Err(_), Some(process)) => return Err(process.complaint("does not answer")),
        (Err(error), None) => return Err(error),
    };
    Ok(Target::new(name, servers, leader))
}

/// The complaint about the first server whose process has ended; `None` if all run.
fn has_ended(servers: &mut [Server]) -> Option<Error> {
    let mut processes = servers.iter_mut().filter_map(|server| server.process.as_mut());
    processes.find_map(|process| process.has_ended().then(|| process.complaint("has ended")))
}

/// Finds the nodes of a running cluster.
///
/// # Errors
/// If none of its servers answers, it has no leader, or a certificate cannot be used.
pub async fn running(
    servers: &[String], tls: Option<Certificates>, token: Option<Token>,
) -> Result<Target, Error> {
    let client = client_showing(servers, PATIENCE, tls.as_ref(), token.as_ref())?;
    prepare(&client, None).await?;
    let status = client.status().await?;
    let nodes = status.nodes.iter();
    let servers = nodes.map(|node| Server::new(node.id, node.address.clone()));
    let leader = status.leader.ok_or_else(no_leader)?;
    let target = Target::new("ratchet", servers.collect(), leader);
    Ok(Target { tls: tls.map(Arc::new), token, ..target })
}

/// Founds a cluster whose nodes were just started, once they listen.
async fn found_cluster(servers: &[String]) -> Result<(), Error> {
    let until = Instant::now() + PATIENCE;
    let client = client(&servers[..servers.len().min(1)], PATIENCE)?;
    loop {
        match client.found().await {
            Ok(_) => return Ok(()),
            // An older build founds by itself.
            Err(error) if error.code() == Some(Code::Unimplemented) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error.into()),
            // That a process listens is no event, so ask again and again.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Founds a cluster that was just started, and returns its leader's id once it can be measured.
async fn found(servers: &[String], options: &ClusterOptions) -> Result<u64, Error> {
    found_cluster(servers).await?;
    prepare(&client(servers, PATIENCE)?, Some(options)).await
}

/// Founds a cluster that has certificates and tokens. Returns its leader's id, and the token of its callers.
async fn found_secure(
    directory: &Directory, servers: &[String], secrets: &Secrets, options: &ClusterOptions,
) -> Result<(u64, Token), Error> {
    let first = servers.first().ok_or_else(|| Error::other("no server"))?;
    let admin = secrets.found(directory, first).await?;
    let client = client_showing(servers, PATIENCE, Some(&secrets.of_callers()), Some(&admin))?;
    let leader = prepare(&client, Some(options)).await?;
    // All that callers do is to take numbers.
    let grant = format!("next:{NAMESPACE}");
    Ok((leader, secrets.create_token(directory, first, &grant).await?))
}

/// Waits until the cluster has a leader, creates the namespace, and returns the leader's id.
async fn prepare(client: &Client, options: Option<&ClusterOptions>) -> Result<u64, Error> {
    // This waits until there is a leader.
    client.next("book", u64::MAX).await?;
    let created = client.create_namespace(api::CreateNamespaceRequest {
        name: NAMESPACE.to_owned(),
        step: options.map(|options| options.step),
        section_size: options.map(|options| options.section_size),
        gapless: options.is_some_and(|options| options.gapless),
        // The client gives its messages ids; the other ways of asking have none, as a put to etcd has none.
        request_id_optional: options.is_some_and(|options| options.gapless),
        ..api::CreateNamespaceRequest::default()
    });
    match created.await {
        Err(error) if error.code() == Some(Code::AlreadyExists) => {}
        created => drop(created?),
    }
    client.status().await?.leader.ok_or_else(no_leader)
}

/// The leader of a started cluster.
///
/// # Errors
/// If the cluster does not answer, or has no leader.
pub async fn leader(target: &Target) -> Result<u64, Error> {
    let status = client(&target.addresses, PATIENCE)?.status().await?;
    status.leader.ok_or_else(no_leader)
}

/// Waits until all nodes of a started cluster are ready and have caught up with the leader, whose id it returns.
///
/// # Errors
/// If that takes too long; with the reason of the last attempt.
pub async fn until_healthy(target: &Target) -> Result<u64, Error> {
    let until = Instant::now() + HEALTHY_MAX;
    loop {
        match health(target).await {
            Ok(leader) => return Ok(leader),
            Err(error) if Instant::now() > until => return Err(error),
            // Nodes do not report when they have caught up, so ask again and again.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The id of the leader, if all nodes of `target` are ready and have caught up.
async fn health(target: &Target) -> Result<u64, Error> {
    for server in &target.servers {
        let Some(address) = &server.metrics else {
            continue;
        };
        // The status does not tell whether a node that was just stopped and started again runs.
        let ready = http::get(address, "/readyz").await;
        ready.map_err(|error| Error::other(format!("node {} is not ready: {error}", server.id)))?;
    }
    let status = client(&target.addresses, PATIENCE)?.status().await?;
    let behind = |node: &&api::NodeStatus| node.missing || node.lag.is_none_or(|lag| lag > LAG_MAX);
    match (status.leader, status.nodes.iter().find(behind)) {
        (_, Some(node)) => Err(Error::other(format!(
            "node {} has not caught up: its lag is {:?} entries",
            node.id, node.lag
        ))),
        (Some(leader), None) if status.serving => Ok(leader),
        _ => Err(no_leader()),
    }
}

fn no_leader() -> Error {
    Error::other("the cluster has no leader at the moment; see `ratchet status`".to_owned())
}

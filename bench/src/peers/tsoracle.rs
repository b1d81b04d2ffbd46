//! tsoracle: starts one, and takes timestamps of its one global sequence.

use std::process::Command;

use tonic::transport::Channel;

use super::{
    grpc::call,
    program::{installed, until_up},
};
use crate::{
    child::{Directory, Process, free_ports},
    connection::connect,
    error::Error,
    target::{Protocol, Server, Target},
};

/// How many bits of a timestamp count within one millisecond.
const LOGICAL_BITS: u32 = 18;

/// Starts a three-node tsoracle on openraft.
///
/// # Errors
/// If it is not installed or does not start.
pub async fn start(directory: &Directory) -> Result<Target, Error> {
    let program = installed("tsoracle", "cargo install tsoracle")?;
    let ports = free_ports(9)?;
    let members = (0..3).map(|at| {
        let (id, raft, service, admin) = (at + 1, ports[at + 3], ports[at], ports[at + 6]);
        format!("{id}={raft}/{service}/{admin}")
    });
    let members = members.collect::<Vec<_>>().join(",");
    let mut servers = Vec::new();
    // The founder of the cluster starts last, when the others listen.
    for at in (0..3).rev() {
        let mut args = vec![
            "serve".to_owned(),
            "openraft".to_owned(),
            format!("--listen={}", ports[at]),
            format!("--id={}", at + 1),
            format!("--raft-addr={}", ports[at + 3]),
            format!("--raft-dir={}", directory.place(&format!("tsoracle-{}", at + 1)).display()),
        ];
        if at == 0 {
            args.extend(["--bootstrap".to_owned(), format!("--members={members}")]);
        }
        let name = format!("tsoracle node {}", at + 1);
        let mut command = Command::new(&program);
        let command = command.args(args);
        servers.push(Server {
            process: Some(Process::start(directory, &name, command, false)?),
            ..Server::new(at as u64 + 1, ports[at].to_string())
        });
    }
    let leader = {
        let Some(process) = servers.last().and_then(|founder| founder.process.as_ref()) else {
            return Err(Error::other("tsoracle has no nodes"));
        };
        // Only the leader answers.
        until_up(process, async || {
            for server in &servers {
                if let Ok(channel) = connect(&server.address, None).await
                    && TsOracle::new(channel).next().await.is_ok()
                {
                    return Some(server.id);
                }
            }
            None
        })
        .await?
    };
    let mut target = Target::new("tsoracle", servers, leader);
    target.protocol = Protocol::TsOracle;
    Ok(target)
}

/// The part of tsoracle's API that is used here.
#[derive(Clone)]
pub struct TsOracle(tonic::client::Grpc<Channel>);

#[derive(Clone, PartialEq, prost::Message)]
struct GetTsRequest {
    #[prost(uint32, tag = "1")]
    count: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct GetTsResponse {
    #[prost(uint64, tag = "1")]
    physical_ms: u64,
    #[prost(uint32, tag = "2")]
    logical_start: u32,
}

impl TsOracle {
    /// A client over `channel`.
    pub fn new(channel: Channel) -> TsOracle {
        TsOracle(tonic::client::Grpc::new(channel))
    }

    /// The next timestamp.
    ///
    /// # Errors
    /// The text of the failure.
    pub async fn next(&mut self) -> Result<u64, String> {
        let request = GetTsRequest { count: 1 };
        let path = "/tsoracle.v1.TsoService/GetTs";
        let answer: GetTsResponse = call(&mut self.0, request, path).await?;
        Ok((answer.physical_ms << LOGICAL_BITS) + u64::from(answer.logical_start))
    }
}

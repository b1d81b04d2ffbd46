//! etcd: starts one, and puts keys.

use std::process::Command;

use bytes::Bytes;
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

/// Starts a three-node etcd.
///
/// # Errors
/// If it is not installed or does not start.
pub async fn start(directory: &Directory) -> Result<Target, Error> {
    let program = installed("etcd", "apt-get install etcd-server (Debian)")?;
    let ports = free_ports(6)?;
    let founders: Vec<String> =
        (1..=3).map(|id| format!("n{id}=http://{}", ports[id + 2])).collect();
    let mut servers = Vec::new();
    for id in 1..=3 {
        let (client, peer) = (ports[id - 1], ports[id + 2]);
        let args = [
            format!("--name=n{id}"),
            format!("--data-dir={}", directory.place(&format!("etcd-{id}")).display()),
            format!("--listen-client-urls=http://{client}"),
            format!("--advertise-client-urls=http://{client}"),
            format!("--listen-peer-urls=http://{peer}"),
            format!("--initial-advertise-peer-urls=http://{peer}"),
            format!("--initial-cluster={}", founders.join(",")),
            "--log-level=error".to_owned(),
        ];
        let name = format!("etcd node {id}");
        let mut command = Command::new(&program);
        let command = command.args(args);
        servers.push(Server {
            process: Some(Process::start(directory, &name, command, false)?),
            ..Server::new(id as u64, client.to_string())
        });
    }
    let mut leader = 1;
    for server in &servers {
        let Some(process) = &server.process else {
            continue;
        };
        let status = until_up(process, async || {
            let channel = connect(&server.address, None).await.ok()?;
            let status = Etcd::new(channel).status().await.ok()?;
            status
                .header
                .filter(|_| status.leader != 0)
                .map(|header| (header.member, status.leader))
        });
        let (member, leads) = status.await?;
        if member == leads {
            leader = server.id;
        }
    }
    let mut target = Target::new("etcd", servers, leader);
    target.protocol = Protocol::Etcd;
    Ok(target)
}

/// The part of etcd's API that is used here.
#[derive(Clone)]
pub struct Etcd(tonic::client::Grpc<Channel>);

#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResponseHeader {
    #[prost(uint64, tag = "2")]
    member: u64,
    #[prost(int64, tag = "3")]
    revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

impl Etcd {
    /// A client over `channel`.
    pub fn new(channel: Channel) -> Etcd {
        Etcd(tonic::client::Grpc::new(channel))
    }

    /// Puts a key. The number is the revision of the store.
    ///
    /// # Errors
    /// The text of the failure.
    pub async fn put(&mut self, key: u64) -> Result<u64, String> {
        let request = PutRequest { key: key.to_string().into(), value: Bytes::from_static(b"x") };
        let path = "/etcdserverpb.KV/Put";
        let answer: PutResponse = call(&mut self.0, request, path).await?;
        let header = answer.header.ok_or("etcd answered without a revision")?;
        Ok(header.revision.unsigned_abs())
    }

    async fn status(&mut self) -> Result<StatusResponse, String> {
        let path = "/etcdserverpb.Maintenance/Status";
        call(&mut self.0, StatusRequest {}, path).await
    }
}

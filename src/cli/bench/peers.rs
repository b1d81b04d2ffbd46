//! Peers to compare with: what hands out numbers where it is installed.

use std::path::PathBuf;

use bytes::Bytes;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use tonic::{codegen::http::uri::PathAndQuery, transport::Channel};

use super::{
    Failed,
    child::{Directory, Process, free_ports},
    load::{Server, Target, Way, connect},
};

/// A program of this name on the path.
fn installed(name: &str, package: &str) -> Result<PathBuf, Failed> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|dir| dir.join(name));
    places.find(|place| place.is_file()).ok_or_else(|| {
        Failed::other(format!(
            "{name} is not installed (no such program in PATH); on Debian: apt-get install {package}"
        ))
    })
}

/// Tries until a server lets us in.
async fn until_up<T>(
    process: &Process,
    mut attempt: impl AsyncFnMut() -> Option<T>,
) -> Result<T, Failed> {
    for _ in 0..300 {
        if let Some(done) = attempt().await {
            return Ok(done);
        }
        // It says nothing when it is ready: the one thing here that cannot be awaited.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    Err(process.complaint())
}

/// Starts a redis-server that keeps nothing on disk.
///
/// # Errors
/// Where it is not installed or does not start.
pub async fn redis(directory: &Directory) -> Result<Target, Failed> {
    let program = installed("redis-server", "redis-server")?;
    let address = free_ports(1)?[0];
    let port = address.port().to_string();
    let args = [
        "--port",
        &port,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
    ];
    let process = Process::start(directory, "redis", &program, &args, false)?;
    let address = address.to_string();
    until_up(&process, async || Redis::connect(&address).await.ok()).await?;
    let server = Server {
        id: 1,
        address,
        process: Some(process),
    };
    let mut target = Target::new("redis", vec![server], 1);
    target.way = Way::Redis;
    Ok(target)
}

/// One connection to Redis, with one command under way at a time.
pub struct Redis(BufReader<TcpStream>);

impl Redis {
    /// Connects.
    pub async fn connect(address: &str) -> Result<Redis, Failed> {
        let connected = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok::<_, std::io::Error>(Redis(BufReader::new(stream)))
        };
        let connected = connected.await;
        connected.map_err(|error| Failed::other(format!("redis at {address}: {error}")))
    }

    /// INCR, in Redis' own protocol.
    pub async fn increment(&mut self, key: u64) -> Result<u64, String> {
        let key = key.to_string();
        let command = format!("*2\r\n$4\r\nINCR\r\n${}\r\n{key}\r\n", key.len());
        let mut line = String::new();
        let exchange = async {
            self.0.get_mut().write_all(command.as_bytes()).await?;
            self.0.read_line(&mut line).await
        };
        exchange.await.map_err(|error| error.to_string())?;
        let number = line
            .trim_end()
            .strip_prefix(':')
            .and_then(|n| n.parse().ok());
        number.ok_or(line)
    }
}

/// Starts a three-node etcd.
///
/// # Errors
/// Where it is not installed or does not start.
pub async fn etcd(directory: &Directory) -> Result<Target, Failed> {
    let program = installed("etcd", "etcd-server")?;
    let ports = free_ports(6)?;
    let founders: Vec<String> = (1..=3)
        .map(|id| format!("n{id}=http://{}", ports[id + 2]))
        .collect();
    let mut servers = Vec::new();
    for id in 1..=3 {
        let (client, peer) = (ports[id - 1], ports[id + 2]);
        let args = [
            format!("--name=n{id}"),
            format!(
                "--data-dir={}",
                directory.place(&format!("etcd-{id}")).display()
            ),
            format!("--listen-client-urls=http://{client}"),
            format!("--advertise-client-urls=http://{client}"),
            format!("--listen-peer-urls=http://{peer}"),
            format!("--initial-advertise-peer-urls=http://{peer}"),
            format!("--initial-cluster={}", founders.join(",")),
            "--log-level=error".to_owned(),
        ];
        let name = format!("etcd node {id}");
        servers.push(Server {
            id: id as u64,
            address: client.to_string(),
            process: Some(Process::start(directory, &name, &program, &args, false)?),
        });
    }
    let mut leader = 1;
    for server in &servers {
        let Some(process) = &server.process else {
            continue;
        };
        let status = until_up(process, async || {
            let channel = connect(&server.address).await.ok()?;
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
    target.way = Way::Etcd;
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

    /// Puts a key; the revision of the store is the number.
    pub async fn put(&mut self, key: u64) -> Result<u64, String> {
        let request = PutRequest {
            key: key.to_string().into(),
            value: Bytes::from_static(b"x"),
        };
        let path = PathAndQuery::from_static("/etcdserverpb.KV/Put");
        let answer: PutResponse = self.call(request, path).await?;
        let header = answer.header.ok_or("etcd answered without a revision")?;
        Ok(header.revision.unsigned_abs())
    }

    async fn status(&mut self) -> Result<StatusResponse, String> {
        let path = PathAndQuery::from_static("/etcdserverpb.Maintenance/Status");
        self.call(StatusRequest {}, path).await
    }

    async fn call<Q, A>(&mut self, request: Q, path: PathAndQuery) -> Result<A, String>
    where
        Q: prost::Message + Default + 'static,
        A: prost::Message + Default + 'static,
    {
        self.0.ready().await.map_err(|error| error.to_string())?;
        let codec = tonic_prost::ProstCodec::<Q, A>::default();
        let answer = self
            .0
            .unary(tonic::Request::new(request), path, codec)
            .await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| status.message().to_owned())
    }
}

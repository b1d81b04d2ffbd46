//! Clusters to test against: real processes, or nodes in this process with a network to break.

#![allow(dead_code)] // each test file uses its own part

pub mod history;
pub mod links;
pub mod power;
pub mod processes;
pub mod tapped;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use ratchet::proto::v1::{
    CurrentRequest, Key, NextManyRequest, NextRequest, NextResponse, admin_client::AdminClient,
    key::Kind, sequencer_client::SequencerClient,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

/// The longest that anything in a test may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Timing under which no leader is lost on a machine that is busy with other tests: for tests of something
/// else than failover.
pub fn unhurried(config: &mut ratchet::node::Config) {
    (config.election_timeout_ms, config.lease_ms) = (3_000, 2_500);
}

/// The same, as flags.
pub const UNHURRIED: [&str; 4] = ["--election-timeout-ms", "3000", "--lease-ms", "2500"];

/// A loopback address that no other test of this machine uses at this time: the process id is in
/// it. On an address of one's own, ports that the system chose stay free until they are used.
pub fn own_ip() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let host = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(host < 255, "one test process starts at most 254 nodes");
    let process = std::process::id() % (120 * 256);
    let (high, low) = (process / 256, process % 256);
    Ipv4Addr::new(127, 100 + high as u8, low as u8, host as u8).into()
}

/// `N` distinct free ports of `ip`, chosen by the system.
pub fn free_ports<const N: usize>(ip: IpAddr) -> [SocketAddr; N] {
    let listeners = [(); N].map(|()| std::net::TcpListener::bind((ip, 0)).expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("its address"))
}

/// A connection that is made at its first use.
pub fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .expect("an address")
        .connect_timeout(Duration::from_secs(1))
        .tcp_nodelay(true)
        .connect_lazy()
}

/// A client of the public API at one node.
#[derive(Clone)]
pub struct Client {
    pub sequencer: SequencerClient<Channel>,
    pub admin: AdminClient<Channel>,
    pub timeout: Duration,
}

pub fn id(id: u64) -> Option<Key> {
    Some(Key {
        kind: Some(Kind::Id(id)),
    })
}

pub fn name(name: &[u8]) -> Option<Key> {
    Some(Key {
        kind: Some(Kind::Name(name.to_vec().into())),
    })
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        let channel = channel(address);
        Client {
            sequencer: SequencerClient::new(channel.clone()),
            admin: AdminClient::new(channel),
            timeout: Duration::from_secs(5),
        }
    }

    pub fn patient(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(self.timeout);
        request
    }

    pub async fn try_next(
        &mut self,
        namespace: &str,
        key: Option<Key>,
        count: u64,
    ) -> Result<NextResponse, Status> {
        let request = self.request(NextRequest {
            namespace: namespace.to_owned(),
            key,
            count: Some(count),
            route_version: 0,
            members_version: None,
        });
        self.sequencer.next(request).await.map(|r| r.into_inner())
    }

    /// The next number of a book.
    pub async fn next(&mut self, key: u64) -> Result<u64, Status> {
        self.try_next("book", id(key), 1)
            .await
            .map(|answer| answer.first)
    }

    /// The next number of a book, by way of a stream.
    pub async fn next_by_stream(&mut self, key: u64) -> Result<u64, Status> {
        let request = NextManyRequest {
            namespace: "book".to_owned(),
            ids: vec![key],
            timeout_ms: self.timeout.as_millis() as u64,
            ..NextManyRequest::default()
        };
        let requests = self.request(tokio_stream::once(request));
        let mut answers = self.sequencer.next_many(requests).await?.into_inner();
        let answer = answers.message().await?;
        let answer = answer.ok_or_else(|| Status::unavailable("the stream ended"))?;
        match answer.failure {
            Some(failure) => Err(failure.into()),
            None if answer.exhausted.is_some() => Err(Status::out_of_range("no number is left")),
            None => Ok(answer.firsts[0]),
        }
    }

    pub async fn current(
        &mut self,
        namespace: &str,
        key: Option<Key>,
    ) -> Result<Option<u64>, Status> {
        let request = self.request(CurrentRequest {
            namespace: namespace.to_owned(),
            key,
            route_version: 0,
            members_version: None,
        });
        let answer = self.sequencer.current(request).await?;
        Ok(answer.into_inner().last)
    }

    /// Asks until it is answered.
    pub async fn next_at_last(&mut self, key: u64) -> u64 {
        let asking = async {
            loop {
                match self.next(key).await {
                    Ok(number) => return number,
                    // The node may not listen yet: the one thing here that cannot be awaited.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, asking)
            .await
            .expect("numbers within the test's patience")
    }

    pub async fn status(&mut self) -> Result<ratchet::proto::v1::StatusResponse, Status> {
        let request = self.request(ratchet::proto::v1::StatusRequest {});
        self.admin.status(request).await.map(|r| r.into_inner())
    }
}

/// Asks for a page by HTTP/1.1; answers the status and the text.
pub async fn http_get(address: SocketAddr, path: &str) -> (u16, String) {
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = tokio::time::timeout(PATIENCE, asking)
        .await
        .expect("an answer in time")
        .expect("an answer");
    let (head, text) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.expect("a status"), text.to_owned())
}

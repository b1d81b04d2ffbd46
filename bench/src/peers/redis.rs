//! Redis: starts one, and increments keys.

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use super::program::{installed, until_up};
use crate::{
    child::{Directory, Process, free_ports},
    error::Error,
    target::{Protocol, Server, Target},
};

/// Starts a redis-server without persistence.
///
/// # Errors
/// If it is not installed or does not start.
pub async fn start(directory: &Directory) -> Result<Target, Error> {
    let program = installed("redis-server", "apt-get install redis-server (Debian)")?;
    let address = free_ports(1)?[0];
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let args = [
        "--port",
        &port,
        "--bind",
        &ip,
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
        metrics: None,
        process: Some(process),
    };
    let mut target = Target::new("redis", vec![server], 1);
    target.protocol = Protocol::Redis;
    Ok(target)
}

/// One connection to Redis, with one command in flight at a time.
pub struct Redis(BufReader<TcpStream>);

impl Redis {
    /// Connects.
    ///
    /// # Errors
    /// If the server cannot be connected to.
    pub async fn connect(address: &str) -> Result<Redis, Error> {
        let connected = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok::<_, std::io::Error>(Redis(BufReader::new(stream)))
        };
        let connected = connected.await;
        connected.map_err(|error| Error::other(format!("redis at {address}: {error}")))
    }

    /// INCR, in the protocol of Redis.
    ///
    /// # Errors
    /// The text of the failure, or what Redis answered instead of a number.
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

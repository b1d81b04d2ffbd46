//! A connection that speaks the protocol of Redis: to redis-server, or to a node.

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::{error::Error, target::NAMESPACE};

/// A connection with one command in flight at a time.
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

    /// INCR.
    ///
    /// # Errors
    /// The text of the failure, or what the server answered instead of a number.
    pub async fn increment(&mut self, key: u64) -> Result<u64, String> {
        let key = format!("{NAMESPACE}:{key}");
        let command = format!("*2\r\n$4\r\nINCR\r\n${}\r\n{key}\r\n", key.len());
        let line = self.ask(&command).await?;
        let number = line.trim_end().strip_prefix(':').and_then(|n| n.parse().ok());
        number.ok_or(line)
    }

    /// PING.
    ///
    /// # Errors
    /// The text of the failure, or what the server answered instead of PONG.
    pub async fn ping(&mut self) -> Result<(), String> {
        let line = self.ask("*1\r\n$4\r\nPING\r\n").await?;
        match line.as_str() {
            "+PONG\r\n" => Ok(()),
            _ => Err(format!("PING was answered with {line:?}")),
        }
    }

    /// Sends a command that is answered in one line.
    async fn ask(&mut self, command: &str) -> Result<String, String> {
        let mut line = String::new();
        let exchange = async {
            self.0.get_mut().write_all(command.as_bytes()).await?;
            self.0.read_line(&mut line).await
        };
        match exchange.await {
            Ok(0) => Err("the server closed the connection".to_owned()),
            Ok(_) => Ok(line),
            Err(error) => Err(error.to_string()),
        }
    }
}

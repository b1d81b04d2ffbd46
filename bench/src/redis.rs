//! A connection that speaks the protocol of Redis: to redis-server, or to a node.

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::{
    error::Error,
    socket::{Manner, Socket},
    target::NAMESPACE,
    token::Token,
};

/// A connection with one command in flight at a time.
pub struct Redis(BufReader<Socket>);

impl Redis {
    /// Connects, and sends AUTH if there is a token.
    ///
    /// # Errors
    /// If the server cannot be connected to, or does not take the token.
    pub async fn connect(address: &str, manner: &Manner) -> Result<Redis, Error> {
        let failed = |why: String| Error::other(format!("redis at {address}: {why}"));
        let stream = manner.connect(address).await.map_err(|error| failed(error.to_string()))?;
        let mut redis = Redis(BufReader::new(stream));
        if let Some(token) = &manner.token {
            redis.log_in(token).await.map_err(failed)?;
        }
        Ok(redis)
    }

    async fn log_in(&mut self, token: &Token) -> Result<(), String> {
        let token = token.of_client();
        let command = format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{token}\r\n", token.len());
        match self.ask(&command).await?.as_str() {
            "+OK\r\n" => Ok(()),
            line => Err(format!("AUTH was answered with {line:?}")),
        }
    }

    /// INCR.
    ///
    /// # Errors
    /// The text of the failure, or the server's answer if it is no number.
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
    /// The text of the failure, or the server's answer if it is not PONG.
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
            // Over TLS, written bytes may still be on their way to the socket.
            self.0.get_mut().flush().await?;
            self.0.read_line(&mut line).await
        };
        match exchange.await {
            Ok(0) => Err("the server closed the connection".to_owned()),
            Ok(_) => Ok(line),
            Err(error) => Err(error.to_string()),
        }
    }
}

//! One GET request to a node's HTTP port.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// The body that `address` serves at `path`.
///
/// # Errors
/// If it does not answer in time, or with another status than 200.
pub async fn get(address: &str, path: &str) -> io::Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok::<_, io::Error>(text)
    };
    let text = timeout(PATIENCE, exchange).await;
    let text = text.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    let status = text.split(' ').nth(1);
    match (status, text.split_once("\r\n\r\n")) {
        (Some("200"), Some((_, body))) => Ok(body.to_owned()),
        _ => {
            let line = text.lines().next().unwrap_or_default();
            Err(io::Error::other(format!("the answer is {line:?}")))
        }
    }
}

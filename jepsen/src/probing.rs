//! Asks a node as the probes of its pod do.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// The status with which `at` answers a GET of this path; `None` if it does not within `limit`.
pub async fn status_of(at: SocketAddr, path: &str, limit: Duration) -> Option<u16> {
    let asking = async {
        let mut stream = TcpStream::connect(at).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    // The probe has failed if there is no answer, for any cause.
    let answer = timeout(limit, asking).await.ok()?.ok()?;
    status(&answer)
}

fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    std::str::from_utf8(line).ok()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_an_answer_is_in_its_first_line() {
        assert_eq!(status(b"HTTP/1.0 503 Service Unavailable\r\na: 200\r\n\r\n"), Some(503));
        assert_eq!(status(b"HTTP/1.1 200 OK\r\n\r\n"), Some(200));
        assert_eq!(status(b""), None);
        assert_eq!(status(b"SSH-2.0 200 OK\r\n"), None);
    }
}

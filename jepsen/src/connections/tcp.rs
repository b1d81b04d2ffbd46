//! Connections for the interfaces that are not gRPC.

use std::net::SocketAddr;

use tokio::{net::TcpStream, time::timeout};

use super::failure::Failure;
use crate::client::DEADLINE;

/// Connects.
///
/// # Errors
/// There is no connection. So nothing was asked.
pub async fn connect(address: SocketAddr) -> Result<TcpStream, Failure> {
    let refused = |why: String| Failure::refused(format!("no connection to {address}: {why}"));
    let connected = timeout(DEADLINE / 2, TcpStream::connect(address)).await;
    let stream = connected
        .map_err(|_| refused("no answer in time".to_owned()))?
        .map_err(|error| refused(error.to_string()))?;
    // A small request leaves at once.
    stream.set_nodelay(true).map_err(|error| refused(error.to_string()))?;
    Ok(stream)
}

//! Connections for the interfaces that are not gRPC.

use super::failure::Failure;
use crate::{
    access::Protocol,
    address::{Address, Socket},
    client::DEADLINE,
};

/// Connects.
///
/// # Errors
/// There is no connection. So nothing was asked.
pub async fn connect(address: &Address, protocol: Protocol) -> Result<Socket, Failure> {
    let connected = address.connect(protocol, DEADLINE / 2).await;
    connected.map_err(|error| Failure::refused(format!("no connection to {}: {error}", address.at)))
}

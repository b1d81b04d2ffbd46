//! The entrance of a caller: the interface, the port and the address at which it has reached this node.

use std::net::IpAddr;

use crate::metrics::Interface;

/// Where a caller has reached this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entrance {
    /// Through which interface.
    pub interface: Interface,
    /// From which address. `None`: over the local socket.
    pub address: Option<IpAddr>,
    /// Whether that is the port for administrators.
    pub is_admin_port: bool,
}

impl Entrance {
    /// Whether it is a port for clients.
    pub fn is_client_port(self) -> bool {
        self.address.is_some() && !self.is_admin_port
    }
}

//! Addresses of servers: "host:port", or "unix:" and the path of a node's local socket. Pure.

use std::net::IpAddr;

/// True if a client on another machine can connect to the address. `0.0.0.0` would lead it to its own
/// machine.
pub fn is_address(text: &str) -> bool {
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    let unbracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let ip: Option<IpAddr> = unbracketed.unwrap_or(host).parse().ok();
    is_host_and_port(text) && !ip.is_some_and(|ip| ip.is_unspecified())
}

/// True if a client can be given the address.
pub fn is_server(text: &str) -> bool {
    is_host_and_port(text) || is_local(text)
}

/// True if the address is that of a local socket: "unix:" and a path from the root on.
pub fn is_local(text: &str) -> bool {
    text.strip_prefix("unix:").is_some_and(|path| path.starts_with('/'))
}

/// True if the text has the form "host:port".
fn is_host_and_port(text: &str) -> bool {
    let uri = || format!("http://{text}").parse::<tonic::transport::Uri>();
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    }) && uri().is_ok_and(|uri| uri.port().is_some())
}

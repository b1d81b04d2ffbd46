//! Redis: starts one.

use std::process::Command;

use super::program::{installed, until_up};
use crate::{
    child::{Directory, Process, free_ports},
    error::Error,
    redis::Redis,
    socket::Manner,
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
    let args = ["--port", &port, "--bind", &ip, "--save", "", "--appendonly", "no"];
    let process = Process::start(directory, "redis", Command::new(program).args(args), false)?;
    let address = address.to_string();
    let plain = Manner::default();
    until_up(&process, async || Redis::connect(&address, &plain).await.ok()).await?;
    let server = Server { process: Some(process), ..Server::new(1, address) };
    let mut target = Target::new("redis", vec![server], 1);
    target.protocol = Protocol::Redis;
    Ok(target)
}

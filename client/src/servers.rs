//! The servers of a cluster: which there are, and connections to them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use crate::{address::is_host_and_port, api::Route, error::Error, members::Members};

/// How long a connection that is used may be silent before the server is asked whether it is there, and
/// how long that may take.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// The servers that the client was given, and those that it learnt of.
pub struct Servers {
    members: Mutex<Members>,
    /// Whether it stays with those that it was given.
    stays: bool,
    timeout: Duration,
    channels: Mutex<HashMap<Arc<str>, Channel>>,
}

impl Servers {
    /// The servers `given` ("host:port"), for calls that are given up after `timeout`; one that `stays`
    /// learns of no others.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an address that cannot be one, or if there is none.
    pub fn new(given: &[String], timeout: Duration, stays: bool) -> Result<Servers, Error> {
        if given.is_empty() {
            return Err(Error::Invalid("no server is given".to_owned()));
        }
        let servers = Servers {
            members: Mutex::new(Members::new(given)),
            stays,
            timeout,
            channels: Mutex::default(),
        };
        match given.iter().find(|server| !is_host_and_port(server)) {
            Some(server) => Err(invalid(server)),
            None => Ok(servers),
        }
    }

    /// After how long a call is given up.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether the client stays with the servers that it was given.
    pub fn stays(&self) -> bool {
        self.stays
    }

    /// How many are known; at least 1.
    pub fn count(&self) -> usize {
        self.members.lock().all().len()
    }

    /// All that are known.
    pub fn all(&self) -> Vec<Arc<str>> {
        self.members.lock().all().to_vec()
    }

    /// The one to ask.
    pub fn current(&self) -> Arc<str> {
        self.members.lock().current().clone()
    }

    /// Has another one be asked than `failed`.
    pub fn pass_over(&self, failed: &str) {
        self.members.lock().pass_over(failed);
    }

    /// The version of the members to ask with; `None` where none are wanted.
    pub fn members_version(&self) -> Option<u64> {
        (!self.stays).then(|| self.members.lock().version())
    }

    /// Learns the members that an answer told; true if that changes which servers there are.
    pub fn learn(&self, route: &Route) -> bool {
        let mut members = self.members.lock();
        if self.stays || !members.learn(route) {
            return false;
        }
        let is_known = |server: &Arc<str>| members.all().contains(server);
        self.channels.lock().retain(|server, _| is_known(server));
        true
    }

    /// Lets any membership replace the one that is known.
    pub fn expect_any(&self) {
        self.members.lock().expect_any();
    }

    /// Why nobody answered, for a caller who should know that this client asks no other servers.
    pub fn explain(&self, status: Status) -> Status {
        if !self.stays || !is_absence(status.code()) {
            return status;
        }
        let (all, why) = (self.all().join(", "), status.message());
        let message = format!(
            "{why} (this client stays with the servers that it was given, {all}, and asks no other members)"
        );
        Status::new(status.code(), message)
    }

    /// The connection to a server; made at its first use, on the runtime of that, and again after it
    /// broke.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an address that cannot be one.
    pub fn channel(&self, server: &str) -> Result<Channel, Error> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(server) {
            return Ok(channel.clone());
        }
        let endpoint =
            Endpoint::from_shared(format!("http://{server}")).map_err(|_| invalid(server))?;
        let channel = endpoint
            .connect_timeout(self.timeout.min(Duration::from_secs(1)))
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .connect_lazy();
        channels.insert(server.into(), channel.clone());
        Ok(channel)
    }
}

fn invalid(server: &str) -> Error {
    Error::Invalid(format!(
        "server {server:?} is not of the form host:port, for example 10.0.0.1:7600"
    ))
}

/// Whether a code says that nobody was there to answer.
fn is_absence(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::DeadlineExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_refused_and_named_without_a_runtime() {
        let new = |servers: &[&str]| {
            let servers: Vec<String> = servers.iter().map(|s| (*s).to_owned()).collect();
            Servers::new(&servers, Duration::from_secs(5), false).map(drop)
        };
        assert!(new(&["10.0.0.1:7600", "name:1", "[::1]:7600"]).is_ok());
        for wrong in ["10.0.0.1", "a:0", ":1", "a b:1", "a:99999", "http://a:1"] {
            let refused = new(&["a:1", wrong]).unwrap_err().to_string();
            assert!(refused.contains(&format!("{wrong:?}")), "{refused}");
        }
        assert!(new(&[]).unwrap_err().to_string().contains("no server"));
    }
}

//! How a client is made.

use std::time::Duration;

use crate::{client::Client, error::Error};

/// Where a node listens for callers unless told otherwise.
const SERVER: &str = "127.0.0.1:7600";
const TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT_MAX: Duration = Duration::from_secs(86_400);

impl Client {
    /// Makes a client.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// Makes a [`Client`].
///
/// ```
/// # fn main() -> Result<(), ratchet_client::Error> {
/// use std::time::Duration;
///
/// let client = ratchet_client::Client::builder()
///     .servers(["10.0.0.1:7600", "10.0.0.2:7600"])
///     .timeout(Duration::from_secs(2))
///     .build()?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    servers: Vec<String>,
    timeout: Duration,
    follow_leader: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            servers: vec![SERVER.to_owned()],
            timeout: TIMEOUT,
            follow_leader: true,
        }
    }
}

impl Builder {
    /// Servers of the cluster, "host:port", to begin with: one that runs is enough, several are safer.
    /// Where this is not called: 127.0.0.1:7600.
    pub fn servers(mut self, servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.servers = servers.into_iter().map(Into::into).collect();
        self
    }

    /// After how long a request is given up, retries included: up to a day. 5 s unless told otherwise.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether it learns who leads and who the members are, and goes to them; it does unless told
    /// otherwise. If not, it stays with the servers that it was given, which forward what they are
    /// asked: for networks in which the nodes' own addresses cannot be reached. When all of them are
    /// gone its requests fail, whoever else is there; name several.
    pub fn follow_leader(mut self, follow: bool) -> Self {
        self.follow_leader = follow;
        self
    }

    /// The client. It connects at its first request, on the Tokio runtime that this is made on; without
    /// one, requests panic.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an address that cannot be one, if there is none, and for a timeout of 0 or
    /// of more than a day.
    pub fn build(self) -> Result<Client, Error> {
        if self.timeout.is_zero() || self.timeout > TIMEOUT_MAX {
            return Err(Error::Invalid(format!(
                "timeout is {:?}; it must be above 0 and at most a day",
                self.timeout
            )));
        }
        Client::new(&self.servers, self.timeout, !self.follow_leader)
    }
}

//! Builds a client.

use std::time::Duration;

use crate::{
    caller_span::CallerSpan, client::Client, cluster::ClusterId, error::Error,
    server_pool::ServerPool, tls::Tls, token::Token,
};

/// The default address of a node.
const SERVER: &str = "127.0.0.1:7600";
const TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT_MAX: Duration = Duration::from_secs(86_400);

impl Client {
    /// Starts to build a client.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// Builds a [`Client`].
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
    cluster_id: Option<String>,
    tls: Option<Tls>,
    token: Option<Token>,
    caller_span: Option<CallerSpan>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            servers: vec![SERVER.to_owned()],
            timeout: TIMEOUT,
            follow_leader: true,
            cluster_id: None,
            tls: None,
            token: None,
            caller_span: None,
        }
    }
}

impl Builder {
    /// Sets the servers to start with, "host:port". One that runs is enough; several are safer. The default
    /// is 127.0.0.1:7600.
    ///
    /// On the machine of a node, a user that may open its data directory can give its local socket: "unix:" and the path of the
    /// file `admin.sock` there. Calls over it may do everything, without a token. A client all of whose servers are such
    /// sockets stays with them, with or without [`Builder::follow_leader`].
    pub fn servers(mut self, servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.servers = servers.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how long a request may take, retries included: up to a day. The default is 5 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets whether the client learns the leader and the members from answers, and connects to them. The
    /// default is true.
    ///
    /// With false, the client asks only the servers that it was given, and they forward its requests. Numbers are asked of
    /// one of them, and each other call of the next one. Use this if the nodes' own addresses cannot be reached from the
    /// client. Give several servers: when all of them are gone, requests fail although other members run.
    pub fn follow_leader(mut self, follow: bool) -> Self {
        self.follow_leader = follow;
        self
    }

    /// Sets the cluster to ask, by the id that `ratchet status` shows. Without it, the client stays with the first cluster that
    /// answers. Servers of another cluster refuse its calls.
    pub fn cluster_id(mut self, id: impl Into<String>) -> Self {
        self.cluster_id = Some(id.into());
        self
    }

    /// Makes every connection one over TLS. Each server's certificate must be valid for the host in its address: a name, or an
    /// IP address. This holds also for the addresses that the client learns. Without this, no connection is one over TLS. One
    /// to a local socket never is.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Shows this token with every call: it names the caller, and so decides its grants. It has 1 to 256 characters of visible
    /// ASCII.
    ///
    /// Over connections that are not TLS the network can read it: give [`Builder::tls`] as well.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Token::new(token.into()));
        self
    }

    /// Has this function say which span a call is a part of. It is asked in the task of each call, before anything is sent, and
    /// answers the value of the header `traceparent` of W3C Trace Context; or `None`, if the call is a part of none. A text
    /// that no header can hold counts as `None`.
    ///
    /// Numbers that are taken within a span travel in a message of their own, which is a part of that span, and are not merged
    /// with numbers of other tasks. So answer `None` where a span is not recorded. A call that the client makes for itself, as
    /// to fetch a segment ahead, is no part of a caller's span, unless the function answers one there, too.
    pub fn traceparent(
        mut self, span: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.caller_span = Some(CallerSpan::new(span));
        self
    }

    /// Builds the client. It connects at its first request, and needs that request to be made on a Tokio
    /// runtime: outside of one, requests panic.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no server is given, if a server is not of the form "host:port" or "unix:/path", if the timeout is
    /// 0 or more than a day, if the id of the cluster is no UUID, if a certificate or a key cannot be used, or if the token is
    /// malformed.
    pub fn build(self) -> Result<Client, Error> {
        if self.timeout.is_zero() || self.timeout > TIMEOUT_MAX {
            return Err(Error::Invalid(format!(
                "timeout is {:?}; it must be above 0 and at most a day",
                self.timeout
            )));
        }
        let cluster = self.cluster_id.as_deref().map(ClusterId::parse).transpose()?;
        let tls = self.tls.as_ref().map(Tls::config).transpose()?;
        let authorization = self.token.as_ref().map(Token::authorization).transpose()?;
        let (servers, follow_leader) = (&self.servers, self.follow_leader);
        let pool = ServerPool::new(servers, self.timeout, follow_leader, cluster, tls)?;
        Ok(Client::new(pool.showing(authorization).within(self.caller_span)))
    }
}

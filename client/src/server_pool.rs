//! The servers of a cluster, and a connection to each.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tonic::{
    Code, Status,
    metadata::{Ascii, MetadataMap, MetadataValue},
    transport::{Channel, ClientTlsConfig, Endpoint},
};

use crate::{
    address::{is_local, is_server},
    api::Route,
    caller_span::CallerSpan,
    causes,
    cluster::{CallHeaders, ClusterId, Connection, Known, cluster_in_refusal, route_in},
    error::{Error, OtherCluster},
    members::Members,
    turns::Turns,
};

/// How long a connection in use may be silent before it is checked with an HTTP/2 ping, and how long the
/// ping may take.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// How long it may take to connect, and the handshake of TLS as well.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// The known servers of a cluster, and a connection to each.
pub struct ServerPool {
    known: Arc<Known>,
    /// The turns of servers for unary calls that any server does itself, or for all calls if the client does not follow the
    /// leader.
    turns: Mutex<Turns>,
    timeout: Duration,
    /// `None`: connections are plain.
    tls: Option<ClientTlsConfig>,
    /// The header with the token of calls, if they show one.
    authorization: Option<MetadataValue<Ascii>>,
    /// The function that says which span a call is a part of.
    caller_span: Option<CallerSpan>,
    channels: Mutex<HashMap<Arc<str>, Channel>>,
}

impl ServerPool {
    /// Starts with the servers `given` ("host:port", or "unix:" and a path). Without `follow_leader`, or if all of them are
    /// local sockets, no others are learnt. If no `cluster` is given, it is the first one that answers. Requests are given up
    /// after `timeout`. With `tls` no connection is plain, except connections to local sockets.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no server is given, or one is of neither form, or, with `tls`, no certificate can name its host.
    pub fn new(
        given: &[String], timeout: Duration, follow_leader: bool, cluster: Option<ClusterId>,
        tls: Option<ClientTlsConfig>,
    ) -> Result<ServerPool, Error> {
        if given.is_empty() {
            return Err(Error::Invalid("no server is given".to_owned()));
        }
        // A client that is let in by its local socket alone may have nothing to show to other nodes, nor a way there.
        let follow_leader = follow_leader && !given.iter().all(|server| is_local(server));
        let servers = ServerPool {
            known: Arc::new(Known::new(given, cluster, follow_leader)),
            turns: Mutex::default(),
            timeout,
            tls,
            authorization: None,
            caller_span: None,
            channels: Mutex::default(),
        };
        if let Some(server) = given.iter().find(|server| !is_server(server)) {
            return Err(invalid(server));
        }
        for server in given {
            servers.endpoint(server)?;
        }
        Ok(servers)
    }

    /// The same servers, whose calls show this `authorization`.
    pub fn showing(self, authorization: Option<MetadataValue<Ascii>>) -> ServerPool {
        ServerPool { authorization, ..self }
    }

    /// The same servers, whose calls are parts of the spans that `caller_span` names.
    pub fn within(self, caller_span: Option<CallerSpan>) -> ServerPool {
        ServerPool { caller_span, ..self }
    }

    /// The function that says which span a call is a part of, if there is one.
    pub fn caller_span(&self) -> Option<&CallerSpan> {
        self.caller_span.as_ref()
    }

    /// Whether calls show a token.
    pub fn has_token(&self) -> bool {
        self.authorization.is_some()
    }

    /// How long a request may take, retries included.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether the client learns the members and follows the leader.
    pub fn follows_leader(&self) -> bool {
        self.known.follow_leader
    }

    /// The id of the cluster, once it is known.
    pub fn cluster_id(&self) -> Option<&str> {
        self.known.cluster_id()
    }

    /// The known servers. A call that holds them keeps every other call from them.
    pub fn members(&self) -> MutexGuard<'_, Members> {
        self.known.members.lock()
    }

    /// The server that the next unary call asks: the one to ask next, or the one whose turn it is, `in_turn` or if the client
    /// does not follow the leader.
    pub fn for_call(&self, in_turn: bool) -> Arc<str> {
        match in_turn || !self.known.follow_leader {
            false => self.members().current().clone(),
            true => {
                let all = self.members().all().to_vec();
                self.turns.lock().next(&all, Instant::now())
            }
        }
    }

    /// A unary call to a server has failed, which was asked `in_turn` or not: the next one asks another server.
    pub fn call_failed(&self, server: &Arc<str>, in_turn: bool) {
        match in_turn || !self.known.follow_leader {
            false => self.members().advance_past(server),
            true => self.turns.lock().failed(server, Instant::now()),
        }
    }

    /// The version of the known members, to send with a request; `None` if the members are not wanted.
    pub fn members_version(&self) -> Option<u64> {
        self.known.follow_leader.then(|| self.members().version())
    }

    /// Takes in the members that a server reported. True if the list of servers changes.
    pub fn learn(&self, route: &Route) -> bool {
        let mut members = self.members();
        if !self.known.follow_leader || !members.learn(route) {
            return false;
        }
        let is_known = |server: &Arc<str>| members.all().contains(server);
        self.channels.lock().retain(|server, _| is_known(server));
        true
    }

    /// Takes in the route that came in the metadata of a server's answer, if one did.
    ///
    /// # Errors
    /// A failure whose source is [`OtherCluster`] if the server belongs to another cluster: the answer is not to be used.
    pub fn hear(&self, server: &str, metadata: &MetadataMap) -> Result<(), Status> {
        if let Some(route) = route_in(metadata) {
            self.check(server, &route)?;
            self.learn(&route);
        }
        Ok(())
    }

    /// Checks that a server which reports this route belongs to the cluster. If it does not, it is dropped.
    ///
    /// # Errors
    /// A failure whose source is [`OtherCluster`]: the answer is not to be used.
    pub fn check(&self, server: &str, route: &Route) -> Result<(), Status> {
        self.unless_other(server, self.known.check(server, &route.cluster_id))
    }

    /// The failure for the caller, once the metadata of a server's failure is taken in. A server that refuses the call because
    /// it belongs to another cluster is dropped.
    pub fn judge(&self, server: &str, status: Status) -> Status {
        let heard = match cluster_in_refusal(&status) {
            Some(found) => self.unless_other(server, Err(self.known.other(server, found))),
            None => self.hear(server, status.metadata()),
        };
        heard.err().unwrap_or(status)
    }

    /// Drops the server if `checked` says that it belongs to another cluster.
    fn unless_other(&self, server: &str, checked: Result<(), Status>) -> Result<(), Status> {
        if (checked.as_ref().err()).is_some_and(|status| OtherCluster::of(status).is_some()) {
            self.members().remove(server);
            self.channels.lock().remove(server);
        }
        checked
    }

    /// The failure for the caller if the connection broke: no server answered. A server that speaks TLS ends plain connections.
    /// So a plain client that no server has answered yet is told of TLS.
    pub fn unbroken(&self, status: Status) -> Status {
        let may_lack_tls = self.tls.is_none()
            && self.cluster_id().is_none()
            && !self.members().all().iter().all(|server| is_local(server));
        let advice =
            "if the server speaks TLS, give the CA of the cluster (--tls-ca, or Builder::tls)";
        causes::unbroken(status, may_lack_tls.then_some(advice))
    }

    /// Adds to a failure without an answer that this client asks the given servers alone, if so.
    pub fn explain(&self, status: Status) -> Status {
        if self.known.follow_leader || !is_absence(status.code()) {
            return status;
        }
        let (all, why) = (self.members().all().join(", "), causes::text(&status));
        let message = format!(
            "{why} (this client stays with the servers that it was given, {all}, and asks no other members)"
        );
        Status::with_details(status.code(), message, status.details().to_vec().into())
    }

    /// The connection to a server. It is made at its first use, on the runtime of the caller, and again
    /// after it broke.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `server` is no address of a server, or, with TLS, no certificate can name its host.
    pub fn connection(&self, server: &str) -> Result<Connection, Error> {
        let channel = self.channel(server)?;
        let (known, authorization) = (self.known.clone(), self.authorization.clone());
        Ok(Connection::new(channel, CallHeaders { known, authorization }))
    }

    fn channel(&self, server: &str) -> Result<Channel, Error> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(server) {
            return Ok(channel.clone());
        }
        let channel = self.endpoint(server)?.connect_lazy();
        channels.insert(server.into(), channel.clone());
        Ok(channel)
    }

    /// How to connect to a server.
    fn endpoint(&self, server: &str) -> Result<Endpoint, Error> {
        // Messages over a local socket do not leave the machine.
        let tls = self.tls.as_ref().filter(|_| !is_local(server));
        let address = match tls {
            _ if is_local(server) => server.to_owned(),
            Some(_) => format!("https://{server}"),
            None => format!("http://{server}"),
        };
        let endpoint = Endpoint::from_shared(address);
        let endpoint = endpoint.map_err(|_| invalid(server))?;
        let connect_max = self.timeout.min(CONNECT_MAX);
        let endpoint = endpoint
            .connect_timeout(connect_max)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE);
        match tls {
            None => Ok(endpoint),
            Some(tls) => endpoint.tls_config(tls.clone().timeout(connect_max)).map_err(|_| {
                Error::Invalid(format!(
                    "server {server:?} has a host that no certificate can name; give a DNS name or an IP address"
                ))
            }),
        }
    }
}

fn invalid(server: &str) -> Error {
    Error::Invalid(format!(
        "server {server:?} is not of the form host:port, for example 10.0.0.1:7600, nor unix: and the whole \
         path of a local socket, as unix:/var/lib/ratchet/admin.sock"
    ))
}

/// True if a code means that no server answered.
fn is_absence(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::DeadlineExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_host_or_port_is_refused_by_name() {
        let new = |servers: &[&str]| {
            let servers: Vec<String> = servers.iter().map(|s| (*s).to_owned()).collect();
            ServerPool::new(&servers, Duration::from_secs(5), true, None, None).map(drop)
        };
        assert!(new(&["10.0.0.1:7600", "name:1", "[::1]:7600", "unix:1"]).is_ok());
        assert!(new(&["unix:/var/lib/ratchet/admin.sock", "a:1"]).is_ok());
        for wrong in
            ["10.0.0.1", "a:0", ":1", "a b:1", "a:99999", "http://a:1", "unix:", "unix:a", "/a"]
        {
            let refused = new(&["a:1", wrong]).unwrap_err().to_string();
            assert!(refused.contains(&format!("{wrong:?}")), "{refused}");
        }
        assert!(new(&[]).unwrap_err().to_string().contains("no server"));
    }

    #[tokio::test]
    async fn a_client_of_local_sockets_alone_stays_with_them_and_speaks_no_tls_there() {
        let new = |servers: &[&str]| {
            let servers: Vec<String> = servers.iter().map(|s| (*s).to_owned()).collect();
            let tls = Some(ClientTlsConfig::new());
            ServerPool::new(&servers, Duration::from_secs(5), true, None, tls).expect("servers")
        };
        let local = new(&["unix:/a", "unix:/b"]);
        assert!(!local.follows_leader() && new(&["unix:/a", "a:1"]).follows_leader());
        let told =
            Route { members_version: 1, members: vec!["a:1".to_owned()], ..Route::default() };
        assert!(!local.learn(&told));
        for server in ["unix:/a", "unix:/b"] {
            let uri = local.endpoint(server).expect("an address").uri().clone();
            assert_eq!(uri.scheme_str(), Some("http"));
            local.connection(server).expect("an address");
        }
    }

    #[test]
    fn what_any_server_does_itself_goes_round_and_the_rest_goes_to_one_server_until_it_fails() {
        let given = ["a:1", "b:1", "c:1"].map(str::to_owned);
        let servers = ServerPool::new(&given, Duration::from_secs(5), true, None, None).unwrap();
        let first = servers.for_call(false);
        for _ in 0..2 {
            let mut asked: Vec<String> =
                (0..3).map(|_| servers.for_call(true).to_string()).collect();
            asked.sort();
            assert_eq!(asked, given);
            assert_eq!(servers.for_call(false), first);
        }
        servers.call_failed(&first, true);
        assert!((0..3).all(|_| servers.for_call(true) != first), "it rests");
        assert_eq!(servers.for_call(false), first);
        servers.call_failed(&first, false);
        assert_ne!(servers.for_call(false), first);
    }
}

//! A gRPC connection to a cluster that outlives its servers: it moves to the next server if one fails, and to the
//! leader if an answer names another one.

use std::sync::Arc;

use parking_lot::Mutex;
use tonic::{
    Code, Request,
    transport::{Channel, ClientTlsConfig, Endpoint},
};

use crate::{
    error::Error,
    token::{self, Token},
};
use ratchet_client::api::Route;

/// The version of a route that no route is newer than: asked with it, a server reports none.
const NEWEST: u64 = u64::MAX;

/// A connection to one of the servers of a cluster. Clones share it.
#[derive(Clone)]
pub struct Connection {
    state: Arc<Mutex<State>>,
    token: Option<Token>,
}

struct State {
    /// All servers, in the order in which they are asked when one fails.
    servers: Vec<String>,
    follow_leader: bool,
    /// `None`: connections are plain.
    tls: Option<ClientTlsConfig>,
    /// Counts the moves from server to server.
    moves: u64,
    server: String,
    channel: Channel,
    /// The version of the known route.
    route_version: u64,
}

/// The server that is asked at the moment.
pub struct Link {
    pub channel: Channel,
    /// The version of the route, which is sent with each request.
    pub route_version: u64,
    moves: u64,
}

impl Connection {
    /// A connection to the first of `servers`. It follows the leader if the benchmark asks the leader; otherwise
    /// it stays with a server until that one fails. It is made at the first request.
    ///
    /// # Errors
    /// If there is no server, or its address is not of the form "host:port".
    pub fn new(
        servers: &[String], follow_leader: bool, tls: Option<&ClientTlsConfig>,
    ) -> Result<Connection, Error> {
        let server = servers.first().ok_or_else(|| Error::other("no server"))?;
        let state = State {
            servers: servers.to_vec(),
            follow_leader,
            tls: tls.cloned(),
            moves: 0,
            server: server.clone(),
            channel: endpoint(server, tls)?.connect_lazy(),
            route_version: oldest(follow_leader),
        };
        Ok(Connection { state: Arc::new(Mutex::new(state)), token: None })
    }

    /// The connection, whose requests show a token.
    pub fn showing(self, token: Option<&Token>) -> Connection {
        Connection { token: token.cloned(), ..self }
    }

    /// A request to be sent on it.
    pub fn request<M>(&self, message: M) -> Request<M> {
        token::request(message, self.token.as_ref())
    }

    /// The server that is asked at the moment.
    pub fn link(&self) -> Link {
        let state = self.state.lock();
        Link {
            channel: state.channel.clone(),
            route_version: state.route_version,
            moves: state.moves,
        }
    }

    /// True if the connection is still to the server of `link`.
    pub fn is_at(&self, link: &Link) -> bool {
        self.state.lock().moves == link.moves
    }

    /// Takes in the route of an answer. Returns the version of the route that is known now.
    pub fn learn(&self, route: &Route) -> u64 {
        let mut state = self.state.lock();
        if state.follow_leader && route.version > state.route_version {
            state.route_version = route.version;
            state.move_to(route.address.clone());
        }
        state.route_version
    }

    /// Moves to the next server, if the server of `link` is still asked and `code` says that it is gone or finds no
    /// leader.
    pub fn failed(&self, link: &Link, code: Code) {
        let mut state = self.state.lock();
        if state.moves != link.moves || !is_absence(code) {
            return;
        }
        let at = state.servers.iter().position(|one| *one == state.server);
        let next = at.map_or(0, |at| (at + 1) % state.servers.len());
        let next = state.servers[next].clone();
        // The next server names the leader, even if that is the same node as before.
        state.route_version = oldest(state.follow_leader);
        state.move_to(next);
    }
}

impl State {
    /// Asks `server` from now on. An address that cannot be used changes nothing.
    fn move_to(&mut self, server: String) {
        if server == self.server {
            return;
        }
        if let Ok(endpoint) = endpoint(&server, self.tls.as_ref()) {
            self.moves += 1;
            self.channel = endpoint.connect_lazy();
            self.server = server;
        }
    }
}

/// The version of the route before any was learnt.
fn oldest(follow_leader: bool) -> u64 {
    if follow_leader { 0 } else { NEWEST }
}

/// Connects to a server, over TLS or not.
///
/// # Errors
/// If the server cannot be connected to.
pub async fn connect(server: &str, tls: Option<&ClientTlsConfig>) -> Result<Channel, Error> {
    let connected = endpoint(server, tls)?.connect().await;
    connected.map_err(|error| {
        // The error alone says "transport error".
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        let cause = cause.unwrap_or_default();
        Error::other(format!("cannot connect to {server}: {error}{cause}; is it running?"))
    })
}

/// How to connect to a server.
///
/// # Errors
/// If `server` is not of the form "host:port".
fn endpoint(server: &str, tls: Option<&ClientTlsConfig>) -> Result<Endpoint, Error> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let failed = |error| Error::other(format!("cannot connect to {server}: {error}"));
    let endpoint = Endpoint::from_shared(format!("{scheme}://{server}")).map_err(failed)?;
    let endpoint = endpoint.tcp_nodelay(true);
    match tls {
        Some(tls) => endpoint.tls_config(tls.clone()).map_err(failed),
        None => Ok(endpoint),
    }
}

/// True if a code means that a server is gone, or finds no leader.
fn is_absence(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> Vec<String> {
        ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec()
    }

    fn route(version: u64, address: &str) -> Route {
        Route { version, address: address.to_owned(), ..Route::default() }
    }

    #[tokio::test]
    async fn a_connection_to_the_leader_moves_with_the_leader_and_away_from_a_failed_server() {
        let connection = Connection::new(&servers(), true, None).unwrap();
        let first = connection.link();
        connection.learn(&route(3, "a:1"));
        assert!(connection.is_at(&first), "that server leads");
        connection.learn(&route(4, "c:1"));
        let second = connection.link();
        assert!(!connection.is_at(&first));
        assert_eq!(second.route_version, 4);
        connection.failed(&first, Code::Unavailable);
        assert!(connection.is_at(&second), "another server failed");
        connection.failed(&second, Code::OutOfRange);
        assert!(connection.is_at(&second), "the server answers");
        connection.failed(&second, Code::Unavailable);
        assert_eq!(connection.state.lock().server, "a:1");
        assert_eq!(connection.link().route_version, 0, "it asks who leads again");
    }

    #[tokio::test]
    async fn a_connection_that_does_not_follow_the_leader_asks_for_no_route() {
        let connection = Connection::new(&servers(), false, None).unwrap();
        assert_eq!(connection.link().route_version, NEWEST);
        connection.failed(&connection.link(), Code::Unavailable);
        connection.learn(&route(9, "c:1"));
        assert_eq!(connection.state.lock().server, "b:1");
        assert_eq!(connection.link().route_version, NEWEST);
    }
}

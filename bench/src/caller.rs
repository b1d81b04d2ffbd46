//! Callers that ask for one number at a time, one kind for each protocol.

use std::{sync::Arc, time::Duration};

use tokio::sync::Mutex;

use crate::{
    connection::Connection,
    error::Error,
    handshake::Handshakes,
    http_connection::HttpConnection,
    load::Load,
    options::Interface,
    peers::{Etcd, TsOracle},
    redis::Redis,
    target::{NAMESPACE, Protocol, Target},
};
use ratchet_client::{
    Client, Key,
    api::{self, NextRequest, key::Kind, sequencer_client::SequencerClient},
};

/// A caller that asks for one number at a time. Clones share its connection.
#[derive(Clone)]
pub enum Caller {
    Unary(Connection),
    Client(Client),
    Http(Arc<Mutex<HttpConnection>>),
    Redis(Arc<Mutex<Redis>>),
    Etcd(Etcd),
    TsOracle(TsOracle),
    /// It asks for no number: each call is a handshake.
    Handshakes(Arc<Handshakes>),
}

impl Caller {
    /// Asks for the next number of a key.
    ///
    /// # Errors
    /// The text of the failure, if the server refuses the request or does not answer.
    pub async fn call(&mut self, key: u64) -> Result<u64, String> {
        match self {
            Caller::Unary(connection) => next(connection, key).await,
            Caller::Client(client) => {
                let answer = client.next(NAMESPACE, Key::Id(key)).await;
                answer.map_err(|error| error.to_string())
            }
            Caller::Http(connection) => connection.lock().await.next(key).await,
            Caller::Redis(connection) => connection.lock().await.increment(key).await,
            Caller::Etcd(client) => client.put(key).await,
            Caller::TsOracle(client) => client.next().await,
            Caller::Handshakes(handshakes) => handshakes.shake().await.map(|()| 1),
        }
    }
}

/// One unary call.
async fn next(connection: &Connection, key: u64) -> Result<u64, String> {
    let link = connection.link();
    let request = NextRequest {
        namespace: NAMESPACE.to_owned(),
        key: Some(api::Key { kind: Some(Kind::Id(key)) }),
        count: None,
        route_version: link.route_version,
        members_version: None,
        request_id: None,
        retry_window_ms: None,
        made_ms: None,
    };
    let mut client = SequencerClient::new(link.channel.clone());
    match client.next(connection.request(request)).await {
        Ok(answer) => {
            let answer = answer.into_inner();
            if let Some(route) = &answer.route {
                connection.learn(route);
            }
            Ok(answer.first)
        }
        Err(status) => {
            connection.failed(&link, status.code());
            Err(format!("{:?}: {}", status.code(), status.message()))
        }
    }
}

/// The callers of a round, connected to `target`.
///
/// # Errors
/// If a server cannot be connected to.
pub async fn callers(target: &Target, load: &Load) -> Result<Vec<Caller>, Error> {
    let each = |caller: Caller, times: usize| std::iter::repeat_n(caller, times);
    let calls = load.connections * load.in_flight;
    Ok(match target.protocol {
        Protocol::Ratchet(Interface::Client) => {
            let mut client = Client::builder()
                .servers(&target.addresses)
                .timeout(Duration::from_secs(10))
                .follow_leader(target.follow_leader);
            if let Some(tls) = &target.tls {
                client = client.tls(tls.of_client());
            }
            if let Some(token) = &target.token {
                client = client.token(token.of_client());
            }
            each(Caller::Client(client.build()?), load.tasks).collect()
        }
        Protocol::Ratchet(Interface::Http) => {
            let (manner, mut callers) =
                (target.manner(Some("http/1.1"))?, Vec::with_capacity(calls));
            for server in target.addresses.iter().take(1).cycle().take(calls) {
                let connection = HttpConnection::connect(server, &manner).await?;
                callers.push(Caller::Http(Arc::new(Mutex::new(connection))));
            }
            callers
        }
        Protocol::Redis | Protocol::Ratchet(Interface::Redis) => {
            let (manner, mut callers) = (target.manner(None)?, Vec::with_capacity(calls));
            for server in target.addresses.iter().take(1).cycle().take(calls) {
                let connection = Redis::connect(server, &manner).await?;
                callers.push(Caller::Redis(Arc::new(Mutex::new(connection))));
            }
            callers
        }
        Protocol::Etcd => {
            let channels = target.channels(load.connections).await?;
            let callers = channels.into_iter().map(|c| Caller::Etcd(Etcd::new(c)));
            callers.flat_map(|caller| each(caller, load.in_flight)).collect()
        }
        Protocol::TsOracle => {
            let channels = target.channels(load.connections).await?;
            let callers = channels.into_iter().map(|c| Caller::TsOracle(TsOracle::new(c)));
            callers.flat_map(|caller| each(caller, load.in_flight)).collect()
        }
        Protocol::Handshakes(kind) => {
            let mut callers = Vec::with_capacity(calls);
            for server in target.addresses.iter().take(1).cycle().take(calls) {
                let handshakes = Handshakes::begin(server, target.certificates()?, kind).await?;
                callers.push(Caller::Handshakes(Arc::new(handshakes)));
            }
            callers
        }
        Protocol::Ratchet(Interface::Unary | Interface::Stream) | Protocol::Ids => {
            let connections = target.connections(load.connections)?;
            let callers = connections.into_iter().map(Caller::Unary);
            callers.flat_map(|caller| each(caller, load.in_flight)).collect()
        }
    })
}

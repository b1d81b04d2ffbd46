//! The ancestor of Ratchet: every server broadcasts, and the maximum wins.
//!
//! A reference service with the client port of the product, and the reason why the product exists. A
//! large reader's id generator was built this way: the server that is asked asks all others for the
//! last number that they know, takes the greatest, adds one, remembers it, and answers. Asked at one
//! server at a time it is right. Asked at two at once, both learn the same maximum, and both hand out
//! the same number.

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use futures::{future::join_all, stream::BoxStream};
use parking_lot::Mutex;
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Channel, Endpoint, Server},
};

use crate::proto::{
    CurrentManyRequest, CurrentManyResponse, CurrentRequest, CurrentResponse, ExportRequest,
    ExportResponse, Key, NextManyRequest, NextManyResponse, NextRequest, NextResponse,
    RaiseManyRequest, RaiseManyResponse, RaiseRequest, RaiseResponse, RaiseSectionsRequest, Route,
    WatchRouteRequest,
    key::Kind,
    sequencer_client::SequencerClient,
    sequencer_server::{Sequencer, SequencerServer},
};

const BROADCAST: Duration = Duration::from_millis(200);

type Numbers = Arc<Mutex<HashMap<(String, Kind), u64>>>;

/// The service for clients, or for peers.
struct MaxWins {
    numbers: Numbers,
    /// The peers that are asked once a client asks. `None` if it is a peer that asks: it is told what this server knows.
    peers: Option<Vec<SequencerClient<Channel>>>,
}

fn name(namespace: String, key: Option<Key>) -> Result<(String, Kind), Status> {
    let kind = key.and_then(|key| key.kind);
    let kind = kind.ok_or_else(|| Status::invalid_argument("no key"))?;
    Ok((namespace, kind))
}

impl MaxWins {
    /// The last number that this server knows.
    fn known(&self, namespace: String, key: Option<Key>) -> Result<Option<u64>, Status> {
        Ok(self.numbers.lock().get(&name(namespace, key)?).copied())
    }

    /// The last number that this server or one of its `peers` knows.
    async fn highest(
        &self, peers: &[SequencerClient<Channel>], namespace: &str, key: Option<Key>,
    ) -> Result<u64, Status> {
        let asked = peers.iter().map(|peer| {
            let request = CurrentRequest {
                namespace: namespace.to_owned(),
                key: key.clone(),
                route_version: 0,
                members_version: None,
            };
            let mut peer = peer.clone();
            async move { tokio::time::timeout(BROADCAST, peer.current(request)).await }
        });
        // Peers that do not answer in time are left out, as in the original.
        let answers = join_all(asked).await.into_iter().flatten().flatten();
        let known = answers.filter_map(|answer| answer.into_inner().last);
        let own = self.known(namespace.to_owned(), key)?;
        Ok(known.chain(own).max().unwrap_or(0))
    }
}

#[tonic::async_trait]
impl Sequencer for MaxWins {
    async fn next(&self, request: Request<NextRequest>) -> Result<Response<NextResponse>, Status> {
        let Some(peers) = &self.peers else {
            return Err(Status::unimplemented("peers only ask"));
        };
        let NextRequest { namespace, key, count, .. } = request.into_inner();
        let highest = self.highest(peers, &namespace, key.clone()).await?;
        let last = highest + count.unwrap_or(1);
        self.numbers.lock().insert(name(namespace, key)?, last);
        Ok(Response::new(NextResponse { first: highest + 1, last, increment: 1, route: None }))
    }

    type NextManyStream = BoxStream<'static, Result<NextManyResponse, Status>>;

    async fn next_many(
        &self, _: Request<Streaming<NextManyRequest>>,
    ) -> Result<Response<Self::NextManyStream>, Status> {
        Err(Status::unimplemented("one key at a time"))
    }

    async fn current(
        &self, request: Request<CurrentRequest>,
    ) -> Result<Response<CurrentResponse>, Status> {
        let CurrentRequest { namespace, key, .. } = request.into_inner();
        let last = match &self.peers {
            Some(peers) => Some(self.highest(peers, &namespace, key).await?),
            None => self.known(namespace, key)?,
        };
        Ok(Response::new(CurrentResponse { last, route: None }))
    }

    async fn raise(&self, _: Request<RaiseRequest>) -> Result<Response<RaiseResponse>, Status> {
        Err(Status::unimplemented("floors are not raised"))
    }

    async fn raise_many(
        &self, _: Request<RaiseManyRequest>,
    ) -> Result<Response<RaiseManyResponse>, Status> {
        Err(Status::unimplemented("floors are not raised"))
    }

    async fn raise_sections(
        &self, _: Request<RaiseSectionsRequest>,
    ) -> Result<Response<RaiseManyResponse>, Status> {
        Err(Status::unimplemented("floors are not raised"))
    }

    async fn current_many(
        &self, _: Request<CurrentManyRequest>,
    ) -> Result<Response<CurrentManyResponse>, Status> {
        Err(Status::unimplemented("the last number is told of one key at a time: ask with Current"))
    }

    type ExportStream = BoxStream<'static, Result<ExportResponse, Status>>;

    async fn export(
        &self, _: Request<ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        Err(Status::unimplemented("nothing is exported"))
    }

    type WatchRouteStream = BoxStream<'static, Result<Route, Status>>;

    async fn watch_route(
        &self, _: Request<WatchRouteRequest>,
    ) -> Result<Response<Self::WatchRouteStream>, Status> {
        Err(Status::unimplemented("nobody leads"))
    }
}

/// Serves until the process ends.
///
/// # Errors
/// The server cannot listen on an address, or an address of a peer is invalid.
pub async fn serve(
    listen: SocketAddr, peer_listen: SocketAddr, peers: Vec<SocketAddr>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let numbers = Numbers::default();
    let others = peers.into_iter().filter(|peer| *peer != peer_listen);
    let others = others.map(|peer| {
        let endpoint = Endpoint::from_shared(format!("http://{peer}"))?;
        let channel = endpoint.connect_timeout(BROADCAST).connect_lazy();
        Ok(SequencerClient::new(channel))
    });
    let others = others.collect::<Result<Vec<_>, tonic::transport::Error>>()?;
    let for_clients = MaxWins { numbers: numbers.clone(), peers: Some(others) };
    let for_peers = MaxWins { numbers, peers: None };
    let clients = Server::builder().add_service(SequencerServer::new(for_clients));
    let peers = Server::builder().add_service(SequencerServer::new(for_peers));
    tokio::try_join!(clients.serve(listen), peers.serve(peer_listen))?;
    Ok(())
}

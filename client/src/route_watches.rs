//! `WatchRoute` streams: servers report who leads while the client's own server is silent.

use std::sync::Arc;

use futures::{
    StreamExt, TryFutureExt, TryStreamExt,
    stream::{self, BoxStream, SelectAll},
};

use crate::{
    api::{Route, WatchRouteRequest, sequencer_client::SequencerClient},
    cluster::Connection,
    server_pool::ServerPool,
};

/// A `WatchRoute` stream to each of some servers.
#[derive(Default)]
pub struct RouteWatches {
    servers: Vec<Arc<str>>,
    routes: SelectAll<BoxStream<'static, (Arc<str>, Option<Route>)>>,
}

impl RouteWatches {
    /// True if no server is watched.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// True if `server` is watched.
    pub fn contains(&self, server: &Arc<str>) -> bool {
        self.servers.contains(server)
    }

    /// Watches `server` of `servers` as well, by this connection.
    pub fn watch(&mut self, servers: Arc<ServerPool>, server: Arc<str>, connection: Connection) {
        self.servers.push(server.clone());
        let asked = server.clone();
        let opening = async move {
            let mut client = SequencerClient::new(connection);
            let routes = client.watch_route(WatchRouteRequest {}).await;
            let routes = routes.map_err(|status| servers.judge(&asked, status))?.into_inner();
            Ok::<_, tonic::Status>(routes.and_then(move |route| {
                std::future::ready(servers.check(&asked, &route).map(|()| route))
            }))
        };
        // The reason why a watch ends does not matter: other servers are asked as well.
        let routes = opening.try_flatten_stream().map(Result::ok);
        let routes = routes.take_while(|route| std::future::ready(route.is_some()));
        let routes = routes.chain(stream::iter([None]));
        self.routes.push(routes.map(move |route| (server.clone(), route)).boxed());
    }

    /// The next route that a server reports; `None` if no server is watched.
    pub async fn next(&mut self) -> Option<Route> {
        while let Some((server, route)) = self.routes.next().await {
            if route.is_some() {
                return route;
            }
            self.servers.retain(|known| *known != server);
        }
        None
    }
}

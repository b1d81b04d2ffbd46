//! The streams on which servers tell who leads.

use std::sync::Arc;

use futures::{
    StreamExt, TryFutureExt,
    stream::{self, BoxStream, SelectAll},
};
use tonic::{Response, transport::Channel};

use crate::api::{Route, WatchRouteRequest, sequencer_client::SequencerClient};

/// The streams on which servers tell who leads.
#[derive(Default)]
pub struct Watches {
    servers: Vec<Arc<str>>,
    routes: SelectAll<BoxStream<'static, (Arc<str>, Option<Route>)>>,
}

impl Watches {
    /// Whether nobody is listened to.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Whether `server` is listened to.
    pub fn has(&self, server: &Arc<str>) -> bool {
        self.servers.contains(server)
    }

    /// Listens to `server` as well.
    pub fn begin(&mut self, server: Arc<str>, channel: Channel) {
        self.servers.push(server.clone());
        let opening = async move {
            let mut client = SequencerClient::new(channel);
            let routes = client.watch_route(WatchRouteRequest {}).await;
            routes.map(Response::into_inner)
        };
        // Why it ended does not matter: others are asked as well.
        let routes = opening.try_flatten_stream().map(Result::ok);
        let routes = routes.take_while(|route| std::future::ready(route.is_some()));
        let routes = routes.chain(stream::iter([None]));
        self.routes
            .push(routes.map(move |route| (server.clone(), route)).boxed());
    }

    /// The next route that one of them tells; `None` when there is nobody to listen to.
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

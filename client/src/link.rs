//! Streams to servers: one to send messages on, and those on which others tell who leads.

use std::sync::Arc;

use futures::{
    StreamExt, TryFutureExt, TryStreamExt,
    stream::{self, BoxStream, SelectAll},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, transport::Channel};

use crate::api::{
    NextStreamRequest, NextStreamResponse, Route, WatchRouteRequest,
    sequencer_client::SequencerClient,
};

/// What is heard on a link.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are answers, and a box costs an allocation each"
)]
pub enum Heard {
    /// The server took the stream: it is there.
    Opened,
    /// An answer.
    Answer(NextStreamResponse),
    /// The stream ended, or could not be opened.
    Ended(Status),
}

/// A stream to a server, to send messages on.
pub struct Link {
    /// By the client's numbering.
    pub id: u64,
    /// The server.
    pub server: Arc<str>,
    /// What is to be sent; waits until the server takes the stream.
    pub messages: mpsc::Sender<NextStreamRequest>,
}

impl Link {
    /// Opens a stream for up to `messages_max` messages at a time; what is heard on it comes with its id.
    pub fn open(
        id: u64,
        server: Arc<str>,
        channel: Channel,
        messages_max: usize,
    ) -> (Link, BoxStream<'static, (u64, Heard)>) {
        let (messages, outgoing) = mpsc::channel(messages_max);
        let opening = async move {
            let mut client = SequencerClient::new(channel);
            let answers = client.next_stream(ReceiverStream::new(outgoing)).await?;
            let answers = answers.into_inner().map_ok(Heard::Answer);
            Ok::<_, Status>(stream::iter([Ok(Heard::Opened)]).chain(answers))
        };
        let heard = opening.try_flatten_stream();
        let heard = heard.map(|heard| heard.unwrap_or_else(Heard::Ended));
        let end = Heard::Ended(Status::unavailable("the server ended the stream"));
        let heard = heard.chain(stream::iter([end]));
        let link = Link {
            id,
            server,
            messages,
        };
        (link, heard.map(move |heard| (id, heard)).boxed())
    }
}

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

//! The streams of a client: the one on which batches are sent, and one to the leader that is to replace it.
//!
//! If another server leads, a stream to it is opened beside the present one. Batches move there once the leader has accepted
//! it. So an unreachable leader costs nothing while other servers forward.
//!
//! Invariant: events come of every stream until it ends, also of streams that batches have left: they may owe answers.

use std::sync::Arc;

use futures::{
    StreamExt, TryFutureExt, TryStreamExt,
    stream::{self, BoxStream, SelectAll},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use crate::{
    api::{NextManyRequest, NextManyResponse, sequencer_client::SequencerClient},
    error::Error,
    server_pool::ServerPool,
};

/// An event on a stream.
pub enum StreamEvent {
    /// The server accepted the stream: it can be reached, and is of the cluster.
    Opened,
    /// The server answered a batch.
    Answer(NextManyResponse),
    /// The server lets the client open no stream, because of its identity or the lack of one. It has read no message.
    Refused(Status),
    /// The stream ended, or could not be opened.
    Ended(Status),
}

/// A `NextMany` to one server, on which batches are sent.
pub struct BatchStream {
    /// The id of the stream within this client.
    pub id: u64,
    /// The address of the server.
    pub server: Arc<str>,
    /// Where to put messages. They wait until the server accepts the stream.
    pub messages: mpsc::Sender<NextManyRequest>,
}

/// A server whose address is invalid, and the error that says so.
pub type Invalid = (Arc<str>, Error);

/// The streams of a client.
pub struct Streams {
    servers: Arc<ServerPool>,
    /// How many messages a stream may have in flight.
    messages_max: usize,
    last_id: u64,
    /// The stream on which batches are sent.
    current: Option<BatchStream>,
    /// A stream to the leader, which replaces `current` once the leader has accepted it.
    to_leader: Option<BatchStream>,
    events: SelectAll<BoxStream<'static, (u64, StreamEvent)>>,
}

impl Streams {
    /// No stream yet. Each will have up to `messages_max` messages in flight.
    pub fn new(servers: Arc<ServerPool>, messages_max: usize) -> Streams {
        Streams {
            servers,
            messages_max,
            last_id: 0,
            current: None,
            to_leader: None,
            events: SelectAll::new(),
        }
    }

    /// The next event, and the id of its stream; `None` if there is no stream.
    pub async fn next_event(&mut self) -> Option<(u64, StreamEvent)> {
        self.events.next().await
    }

    /// The stream on which batches are sent.
    pub fn current(&self) -> Option<&BatchStream> {
        self.current.as_ref()
    }

    /// True if batches are sent on the stream with this id.
    pub fn is_current(&self, id: u64) -> bool {
        self.current.as_ref().is_some_and(|current| current.id == id)
    }

    /// Sends batches on a stream to the leader, or to the server to ask next.
    ///
    /// # Errors
    /// If that server's address is invalid.
    pub fn renew(&mut self) -> Result<(), Invalid> {
        // The leader's stream even before the leader has accepted it: there is no other.
        self.current = Some(match self.to_leader.take() {
            Some(leader) => leader,
            None => {
                let server = self.servers.members().current().clone();
                self.open(server)?
            }
        });
        Ok(())
    }

    /// Opens a stream to the leader, unless there is one.
    ///
    /// # Errors
    /// If the leader's address is invalid.
    pub fn follow(&mut self, leader: Arc<str>) -> Result<(), Invalid> {
        let leads = |stream: &BatchStream| stream.server == leader;
        if self.current.as_ref().is_some_and(leads) {
            self.to_leader = None;
        } else if !self.to_leader.as_ref().is_some_and(leads) {
            self.to_leader = None;
            self.to_leader = Some(self.open(leader)?);
        }
        Ok(())
    }

    /// A server has accepted a stream. True if it is the leader's: batches go there from now on.
    pub fn accepted(&mut self, id: u64) -> bool {
        let leader = self.to_leader.take_if(|stream| stream.id == id);
        let moves = leader.is_some();
        if moves {
            self.current = leader;
        }
        moves
    }

    /// Takes out a stream that has ended: that of batches, and that to the leader.
    pub fn ended(&mut self, id: u64) -> [Option<BatchStream>; 2] {
        [&mut self.current, &mut self.to_leader]
            .map(|stream| stream.take_if(|stream| stream.id == id))
    }

    /// Sends no further batch to `server`.
    pub fn leave(&mut self, server: &str) {
        self.current.take_if(|stream| *stream.server == *server);
    }

    /// Opens a stream. The last of its events is [`StreamEvent::Ended`].
    fn open(&mut self, server: Arc<str>) -> Result<BatchStream, Invalid> {
        let (servers, asked) = (self.servers.clone(), server.clone());
        let pool = servers.clone();
        let connection = servers.connection(&server).map_err(|error| (server.clone(), error))?;
        let (messages, outgoing) = mpsc::channel(self.messages_max);
        let opening = async move {
            let mut client = SequencerClient::new(connection);
            let answers = client.next_many(ReceiverStream::new(outgoing)).await;
            let answers = answers.map_err(|status| servers.judge(&asked, status))?;
            servers.hear(&asked, answers.metadata())?;
            let answers = answers.into_inner().map_ok(StreamEvent::Answer);
            Ok::<_, Status>(stream::iter([Ok(StreamEvent::Opened)]).chain(answers))
        };
        let heard = opening.try_flatten_stream();
        let mut is_open = false;
        let heard = heard.map(move |heard| match heard {
            Ok(event) => {
                is_open = true;
                event
            }
            Err(status) if !is_open && is_of_caller(&status) => StreamEvent::Refused(status),
            Err(status) => StreamEvent::Ended(pool.unbroken(status)),
        });
        let end = StreamEvent::Ended(Status::unavailable("the server ended the stream"));
        let heard = heard.chain(stream::iter([end]));
        self.last_id += 1;
        let id = self.last_id;
        self.events.push(heard.map(move |heard| (id, heard)).boxed());
        Ok(BatchStream { id, server, messages })
    }
}

/// True if a call is refused because of its caller: no other server would let it in.
fn is_of_caller(status: &Status) -> bool {
    matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied)
}

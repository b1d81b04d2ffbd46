//! A `NextMany` to one server, on which batches are sent.

use std::sync::Arc;

use futures::{
    StreamExt, TryFutureExt, TryStreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::{
    api::{NextManyRequest, NextManyResponse, sequencer_client::SequencerClient},
    error::Error,
    server_pool::ServerPool,
};

/// An event on a stream.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all events are answers, and a box would cost an allocation each"
)]
pub enum StreamEvent {
    /// The server accepted the stream: it can be reached, and is of the cluster.
    Opened,
    /// The server answered a batch.
    Answer(NextManyResponse),
    /// The stream ended, or could not be opened.
    Ended(Status),
}

/// A `NextMany` to one server.
pub struct BatchStream {
    /// The id of the stream within this client.
    pub id: u64,
    /// The address of the server.
    pub server: Arc<str>,
    /// Where to put messages. They wait until the server accepts the stream.
    pub messages: mpsc::Sender<NextManyRequest>,
}

impl BatchStream {
    /// Opens a stream to `server` of `servers`, for up to `messages_max` messages in flight. Also returns its events,
    /// tagged with its id; the last one is [`StreamEvent::Ended`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if the server's address is none.
    pub fn open(
        id: u64, servers: Arc<ServerPool>, server: Arc<str>, messages_max: usize,
    ) -> Result<(BatchStream, BoxStream<'static, (u64, StreamEvent)>), Error> {
        let connection = servers.connection(&server)?;
        let (messages, outgoing) = mpsc::channel(messages_max);
        let asked = server.clone();
        let opening = async move {
            let mut client = SequencerClient::new(connection);
            let answers = client.next_many(ReceiverStream::new(outgoing)).await;
            let answers = answers.map_err(|status| servers.judge(&asked, status))?;
            servers.hear(&asked, answers.metadata())?;
            let answers = answers.into_inner().map_ok(StreamEvent::Answer);
            Ok::<_, Status>(stream::iter([Ok(StreamEvent::Opened)]).chain(answers))
        };
        let heard = opening.try_flatten_stream();
        let heard = heard.map(|heard| heard.unwrap_or_else(StreamEvent::Ended));
        let end = StreamEvent::Ended(Status::unavailable("the server ended the stream"));
        let heard = heard.chain(stream::iter([end]));
        let stream = BatchStream { id, server, messages };
        Ok((stream, heard.map(move |heard| (id, heard)).boxed()))
    }
}

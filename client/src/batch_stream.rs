//! A `NextMany` to one server, on which batches are sent.

use std::sync::Arc;

use futures::{
    StreamExt, TryFutureExt, TryStreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, transport::Channel};

use crate::api::{NextManyRequest, NextManyResponse, sequencer_client::SequencerClient};

/// An event on a stream.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all events are answers, and a box would cost an allocation each"
)]
pub enum StreamEvent {
    /// The server accepted the stream: it can be reached.
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
    /// Opens a stream to `server` for up to `messages_max` messages in flight. Also returns its events,
    /// tagged with its id; the last one is [`StreamEvent::Ended`].
    pub fn open(
        id: u64, server: Arc<str>, channel: Channel, messages_max: usize,
    ) -> (BatchStream, BoxStream<'static, (u64, StreamEvent)>) {
        let (messages, outgoing) = mpsc::channel(messages_max);
        let opening = async move {
            let mut client = SequencerClient::new(channel);
            let answers = client.next_many(ReceiverStream::new(outgoing)).await?;
            let answers = answers.into_inner().map_ok(StreamEvent::Answer);
            Ok::<_, Status>(stream::iter([Ok(StreamEvent::Opened)]).chain(answers))
        };
        let heard = opening.try_flatten_stream();
        let heard = heard.map(|heard| heard.unwrap_or_else(StreamEvent::Ended));
        let end = StreamEvent::Ended(Status::unavailable("the server ended the stream"));
        let heard = heard.chain(stream::iter([end]));
        let stream = BatchStream { id, server, messages };
        (stream, heard.map(move |heard| (id, heard)).boxed())
    }
}

//! A stream to a server, to send messages on.

use std::sync::Arc;

use futures::{
    StreamExt, TryFutureExt, TryStreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, transport::Channel};

use crate::api::{NextStreamRequest, NextStreamResponse, sequencer_client::SequencerClient};

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

//! A stream over which appends go to a peer. A call for each would cost several times as much as the append itself, and an idle
//! leader sends each follower one in each heartbeat interval.
//!
//! Invariant: an append is under way alone on its stream, and its answer has its number. An error or another answer ends the
//! stream. So does a caller that waits no more, because it drops this value. So no append gets a late answer to another one.

use std::future;

use futures::{FutureExt, StreamExt, stream};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Streaming, transport::Channel};

use crate::proto::{
    Refusal,
    peer::{RaftMessage, RaftReply, peer_client::PeerClient},
    refuse,
};

/// A stream that carried a larger message is not used again: at both ends the gRPC library keeps as much memory as the largest
/// message had, for as long as the stream lasts.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A stream whose last append was answered.
#[derive(Debug)]
pub struct AppendStream {
    appends: mpsc::Sender<RaftMessage>,
    answers: Streaming<RaftReply>,
    /// The number of the last append.
    last: u64,
}

impl AppendStream {
    /// Opens a stream to the peer of `client` with its first append. Returns the answer, and the stream if it can be used
    /// again.
    ///
    /// # Errors
    /// Why the stream could not be opened, or ended before the answer.
    pub async fn open(
        mut client: PeerClient<Channel>, first: RaftMessage,
    ) -> Result<(Option<Self>, RaftReply), Refusal> {
        let first = RaftMessage { number: 1, ..first };
        let bytes = first.encoded_len();
        let (appends, following) = mpsc::channel(1);
        // The first one goes with the call, and not a way to the peer and back later.
        let first = stream::once(future::ready(first));
        let opened = client.append(first.chain(ReceiverStream::new(following))).await?;
        let stream = AppendStream { appends, answers: opened.into_inner(), last: 1 };
        stream.answered(bytes).await
    }

    /// Sends an append, and waits for the answer. Returns it, and the stream if it can be used again.
    ///
    /// # Errors
    /// Why the stream ended before the answer.
    pub async fn exchange(
        mut self, append: RaftMessage,
    ) -> Result<(Option<Self>, RaftReply), Refusal> {
        self.last += 1;
        let append = RaftMessage { number: self.last, ..append };
        let bytes = append.encoded_len();
        // This fails only if the stream has ended. Then an error comes instead of the answer, and says why.
        let _ = self.appends.send(append).await;
        self.answered(bytes).await
    }

    /// The stream, unless it has ended since the last answer, as when the peer stops.
    pub fn unless_ended(mut self) -> Option<Self> {
        self.answers.message().now_or_never().is_none().then_some(self)
    }

    /// Waits for the answer to the last append, which has so many bytes.
    async fn answered(mut self, bytes: usize) -> Result<(Option<Self>, RaftReply), Refusal> {
        match self.answers.message().await? {
            Some(answer) if answer.number == self.last => {
                Ok(((bytes <= KEPT_BYTES_MAX).then_some(self), answer))
            }
            Some(RaftReply { number, .. }) => {
                refuse!(
                    Internal,
                    "append {} of a stream is answered with number {number}",
                    self.last
                )
            }
            None => refuse!(NodeStopping, "the peer ended the stream of appends"),
        }
    }
}

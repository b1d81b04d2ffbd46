//! `NextStream`: the answers to a stream of messages, as a stream.
//!
//! A message that can be answered at once is answered where it is read. One that must wait goes on as a
//! task of the node's: nobody polls this stream while the caller does not read, and what has taken
//! numbers must not wait for that.
//!
//! Invariant: no more than [`UNANSWERED_MAX`] messages wait at a time, and none is read while their
//! caller does not read answers: HTTP/2's flow control holds back whoever sends more.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{FutureExt, Stream, StreamExt, stream::FuturesUnordered};
use tokio::time::Instant;
use tokio_util::{
    sync::{ReusableBoxFuture, WaitForCancellationFutureOwned},
    task::AbortOnDropHandle,
};
use tonic::Status;

use super::{
    deadline::budget,
    errors::{count_response_errors, count_stream_error, to_client},
};
use crate::{
    node::{Failure, NextMany, Origin, Reservation, Shared},
    proto::v1::{NextStreamRequest, NextStreamResponse},
};

/// How many messages of one stream wait for their answers at a time, and how many keys they have when no
/// further one is read.
const UNANSWERED_MAX: usize = 64;
const UNANSWERED_KEYS_MAX: usize = 1 << 17;

/// How long so many messages took that were answered at once is told to the metrics together.
const IMMEDIATE_MAX: u64 = 32;

/// An answer in the making.
type ReplyFuture = ReusableBoxFuture<'static, Reply>;

/// An answer, and what is to be known of its message.
struct Reply {
    answer: NextStreamResponse,
    keys: usize,
    /// The answer's memory, until it is sent.
    reservation: Option<Reservation>,
}

/// What the messages of one stream share; counted apart from what streams share.
struct NodeRef {
    shared: Arc<Shared>,
}

/// The answers to `requests`.
pub struct ResponseStream<R> {
    requests: R,
    node: Arc<NodeRef>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    /// When the first message arrived of those that were answered at once and are not told to the
    /// metrics yet, and how many they are.
    immediate_since: Option<Instant>,
    immediate: u64,
    /// Where a message is answered that need not wait: set aside once for all of them.
    reply: ReplyFuture,
    /// They end with the stream: nobody wants the answers of a caller who is gone.
    waiting: FuturesUnordered<AbortOnDropHandle<Reply>>,
    /// How many keys those have.
    waiting_keys: usize,
    /// The memory of the answer that was given last: it is sent once the next one is asked for.
    unsent: Option<Reservation>,
    ended: bool,
}

impl<R: Stream<Item = Result<NextStreamRequest, Status>> + Unpin> ResponseStream<R> {
    /// Answers `requests` until they end or `stop` does.
    pub fn new(shared: Arc<Shared>, stop: WaitForCancellationFutureOwned, requests: R) -> Self {
        shared.metrics.streams.inc();
        ResponseStream {
            requests,
            node: Arc::new(NodeRef { shared }),
            stop: Box::pin(stop),
            immediate_since: None,
            immediate: 0,
            reply: ReusableBoxFuture::new(std::future::pending()),
            waiting: FuturesUnordered::new(),
            waiting_keys: 0,
            unsent: None,
            ended: false,
        }
    }

    /// Tells how long the messages took that were read together and answered at once.
    fn observe_immediate(&mut self) {
        if let Some(arrived) = self.immediate_since.take() {
            let spans = &self.node.shared.metrics.request_seconds;
            spans.observe(arrived.elapsed(), mem::take(&mut self.immediate));
        }
    }

    /// The next answer that could not be given at once; `None` while there is none to be given.
    fn poll_waiting(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<NextStreamResponse, Status>>> {
        let answered = ready!(self.waiting.poll_next_unpin(cx));
        Poll::Ready(answered.map(|answered| {
            // The task panicked, or the node's runtime ends.
            let answered = answered.map_err(|error| {
                let status = Status::internal(error.to_string());
                count_stream_error(&self.node.shared.metrics, &status);
                status
            })?;
            self.waiting_keys -= answered.keys;
            self.unsent = answered.reservation;
            Ok(answered.answer)
        }))
    }

    /// Reads messages until one is answered, none is there, or too many wait.
    fn poll_requests(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<NextStreamResponse, Status>>> {
        while self.waiting.len() < UNANSWERED_MAX && self.waiting_keys < UNANSWERED_KEYS_MAX {
            // Looked at once in a while: a caller who never pauses is not to keep the node from stopping.
            if self.immediate == 0 && self.stop.poll_unpin(cx).is_ready() {
                return Poll::Ready(None);
            }
            let request = match self.requests.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(request))) => request,
                Poll::Ready(Some(Err(status))) => return Poll::Ready(Some(Err(status))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    self.observe_immediate();
                    break;
                }
            };
            let arrived = Instant::now();
            let keys = request.ids.len() + request.names.len();
            self.reply.set(answer(self.node.clone(), request, arrived));
            if let Poll::Ready(Reply {
                answer,
                reservation,
                ..
            }) = self.reply.poll(cx)
            {
                self.unsent = reservation;
                self.immediate_since.get_or_insert(arrived);
                self.immediate += 1;
                if self.immediate == IMMEDIATE_MAX {
                    self.observe_immediate();
                }
                return Poll::Ready(Some(Ok(answer)));
            }
            self.waiting_keys += keys;
            let unused = ReusableBoxFuture::new(std::future::pending());
            let reply = mem::replace(&mut self.reply, unused);
            let node = self.node.clone();
            let task = tokio::spawn(async move {
                let answered = reply.await;
                let spans = &node.shared.metrics.request_seconds;
                spans.observe(arrived.elapsed(), 1);
                answered
            });
            self.waiting.push(AbortOnDropHandle::new(task));
        }
        Poll::Pending
    }
}

impl<R> Drop for ResponseStream<R> {
    fn drop(&mut self) {
        self.node.shared.metrics.streams.dec();
    }
}

impl<R: Stream<Item = Result<NextStreamRequest, Status>> + Unpin> Stream for ResponseStream<R> {
    type Item = Result<NextStreamResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        stream.unsent = None;
        // First, or a caller who never pauses would keep them waiting.
        if let Poll::Ready(Some(answer)) = stream.poll_waiting(cx) {
            return Poll::Ready(Some(answer));
        }
        if !stream.ended {
            match stream.poll_requests(cx) {
                Poll::Ready(Some(Ok(answer))) => return Poll::Ready(Some(Ok(answer))),
                Poll::Ready(Some(Err(status))) => {
                    stream.ended = true;
                    count_stream_error(&stream.node.shared.metrics, &status);
                    return Poll::Ready(Some(Err(status)));
                }
                Poll::Ready(None) => stream.ended = true,
                Poll::Pending => {}
            }
        }
        // Once more: those that were just read have not asked to be woken from in there.
        match ready!(stream.poll_waiting(cx)) {
            Some(answer) => Poll::Ready(Some(answer)),
            None if stream.ended => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

async fn answer(node: Arc<NodeRef>, request: NextStreamRequest, arrived: Instant) -> Reply {
    let (id, shared) = (request.id, &node.shared);
    let keys = request.ids.len() + request.names.len();
    let patience = match request.timeout_ms {
        0 => None,
        millis => Some(Duration::from_millis(millis)),
    };
    let deadline = arrived + budget(patience, &shared.config);
    let failed = |failure| NextStreamResponse {
        failure: Some((&to_client(failure)).into()),
        ..NextStreamResponse::default()
    };
    let (answered, reservation) = serve(shared, request, keys, deadline).await;
    let mut answer = answered.unwrap_or_else(failed);
    answer.id = id;
    count_response_errors(&shared.metrics, &answer);
    Reply {
        answer,
        keys,
        reservation,
    }
}

/// Serves the request that a message of `keys` keys stands for; and the memory that the answer needs until
/// it is sent.
async fn serve(
    shared: &Arc<Shared>,
    message: NextStreamRequest,
    keys: usize,
    deadline: Instant,
) -> (Result<NextStreamResponse, Failure>, Option<Reservation>) {
    let request = match NextMany::try_from(message) {
        Ok(request) => request,
        Err(status) => return (Err(status.into()), None),
    };
    match shared.request_memory.reserve_for_answer(keys) {
        Ok(reservation) => {
            let answer = shared.serve(request, Origin::Client, deadline).await;
            (answer.map(NextStreamResponse::from), reservation)
        }
        Err(status) => (Err(status.into()), None),
    }
}

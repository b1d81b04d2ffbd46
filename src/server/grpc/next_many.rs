//! `NextMany`: turns a stream of requests into the stream of their responses.
//!
//! A request that can be answered at once is answered where it is read. One that has to wait continues in a
//! task of its own: this stream is not polled while the caller does not read, and numbers that were taken must
//! not wait for that.
//!
//! A message of many keys takes some thousandths of a second, in which the thread serves nobody else. So the stream gives
//! it back after [`KEYS_AT_ONCE`] keys. Messages of one stream that are under way together may get their numbers in any
//! order: only who sends a message after the answer to another one is promised greater ones.
//!
//! Invariant: at most [`UNANSWERED_MAX`] requests wait at a time, and none is read while the caller does not
//! read responses. HTTP/2's flow control then holds back the sender. Whatever ends the stream, all requests that were read are
//! answered before.

use std::{
    future::poll_fn,
    iter, mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{FutureExt, Stream, StreamExt, stream::FuturesUnordered};
use tokio::time::Instant;
use tokio_util::{sync::WaitForCancellationFutureOwned, task::AbortOnDropHandle};
use tonic::Status;

use super::errors::{count_response_errors, count_stream_error};
use crate::{
    allocator::KEYS_AT_ONCE,
    metrics::Interface,
    node::{
        Asker, Caller, CheckedRequest, NodeContext, Origin, Reservation, TraceContext, Unanswered,
        time_to_answer,
    },
    proto::{
        Refusal,
        v1::{NextManyRequest, NextManyResponse},
    },
    server::grpc,
};

/// How many requests of one stream may wait at a time. No further one is read either while those that wait
/// have [`UNANSWERED_KEYS_MAX`] keys.
const UNANSWERED_MAX: usize = 64;
const UNANSWERED_KEYS_MAX: usize = 1 << 17;

/// How many requests that were answered at once share one entry in the metrics: their duration is measured from
/// the first one's arrival, once for all of them.
const IMMEDIATE_MAX: u64 = 32;

/// The response to one request, and what it counts against the limits.
struct MeteredResponse {
    answer: NextManyResponse,
    /// How many keys the request has.
    keys: usize,
    /// The memory reserved for the response until it is sent.
    reservation: Option<Reservation>,
}

/// One stream's reference to the node. Each request clones an `Arc` of this instead of the node's own, whose
/// counter all streams share: cores would contend for it.
struct NodeRef {
    context: Arc<NodeContext>,
    /// The caller.
    by: Asker,
    /// The trace that the stream belongs to, as its caller says it. A message may belong to another one.
    trace: Option<TraceContext>,
}

/// The responses to a stream of requests.
pub struct ResponseStream<R> {
    requests: R,
    node: Arc<NodeRef>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Requests that were answered at once and are not in the metrics yet: when the first arrived, and how many
    /// there are.
    immediate_since: Option<Instant>,
    immediate: u64,
    /// Answers the request that was read last. Its memory is reused for the next one.
    answering: Box<dyn SerialAnswers>,
    /// The requests that wait, each in a task. The tasks are aborted with the stream: its caller is gone.
    waiting: FuturesUnordered<AbortOnDropHandle<MeteredResponse>>,
    /// How many keys the requests in `waiting` have.
    waiting_keys: usize,
    /// How many keys were read in this turn, which lasts until the stream gives the thread back.
    turn_keys: usize,
    /// The memory reserved for the last response. Once the next one is polled for, little of that is unsent (`CallBody`).
    unsent: Option<Reservation>,
    ended: bool,
    /// The failure that the stream ends with, once all requests that were read are answered.
    failure: Option<Status>,
}

impl<R: Stream<Item = Result<NextManyRequest, Status>> + Unpin> ResponseStream<R> {
    /// Answers the `requests` of a caller until they end or `stop` does. Each is a call of its own in the caller's trace.
    pub fn new(
        context: Arc<NodeContext>, (by, trace): (Asker, Option<TraceContext>),
        stop: WaitForCancellationFutureOwned, requests: R,
    ) -> Self {
        context.metrics.streams.inc();
        ResponseStream {
            requests,
            node: Arc::new(NodeRef { context, by, trace }),
            stop: Box::pin(stop),
            immediate_since: None,
            immediate: 0,
            answering: answering(),
            waiting: FuturesUnordered::new(),
            waiting_keys: 0,
            turn_keys: 0,
            unsent: None,
            ended: false,
            failure: None,
        }
    }

    /// Records how long the requests took that were answered at once.
    fn observe_immediate(&mut self) {
        if let Some(arrived) = self.immediate_since.take() {
            let seconds = self.node.context.metrics.request_seconds.of(Interface::grpc);
            seconds.observe(arrived.elapsed(), mem::take(&mut self.immediate));
        }
    }

    /// Polls the requests that wait; `None` if none does.
    fn poll_waiting(
        &mut self, cx: &mut Context<'_>,
    ) -> Poll<Option<Result<NextManyResponse, Status>>> {
        let answered = ready!(self.waiting.poll_next_unpin(cx));
        Poll::Ready(answered.map(|answered| {
            // The task panicked, or the runtime shuts down.
            let answered = answered.map_err(|error| {
                let status = Status::internal(error.to_string());
                count_stream_error(&self.node.context.metrics, &status);
                status
            })?;
            self.waiting_keys -= answered.keys;
            self.unsent = answered.reservation;
            Ok(answered.answer)
        }))
    }

    /// Ends the turn. If it is used up, the stream is polled again once others had theirs, and the sockets were looked at.
    fn end_turn(&mut self, cx: &mut Context<'_>) {
        if mem::take(&mut self.turn_keys) >= KEYS_AT_ONCE {
            self.observe_immediate();
            // Polled once and dropped: that alone makes the runtime wake this stream, after other tasks and the sockets had
            // their turn.
            let _ = pin!(tokio::task::yield_now()).poll(cx);
        }
    }

    /// Reads requests until one is answered at once, none has arrived, too many wait, or the turn is used up.
    fn poll_requests(
        &mut self, cx: &mut Context<'_>,
    ) -> Poll<Option<Result<NextManyResponse, Status>>> {
        use Poll::*;
        while self.waiting.len() < UNANSWERED_MAX
            && self.waiting_keys < UNANSWERED_KEYS_MAX
            && self.turn_keys < KEYS_AT_ONCE
        {
            // Checked at least once in IMMEDIATE_MAX requests: a caller that never pauses must not keep the
            // node from stopping.
            if self.immediate == 0 && self.stop.poll_unpin(cx).is_ready() {
                return Ready(None);
            }
            let request = match self.requests.poll_next_unpin(cx) {
                Ready(Some(Ok(request))) => request,
                Ready(Some(Err(status))) => return Ready(Some(Err(status))),
                Ready(None) => return Ready(None),
                Pending => {
                    self.observe_immediate();
                    break;
                }
            };
            let arrived = Instant::now();
            let keys = request.ids.len() + request.names.len();
            self.turn_keys += keys.max(1);
            self.answering.begin(self.node.clone(), request, arrived);
            if let Ready(MeteredResponse { answer, reservation, .. }) =
                self.answering.poll_response(cx)
            {
                self.unsent = reservation;
                self.immediate_since.get_or_insert(arrived);
                self.immediate += 1;
                if self.immediate == IMMEDIATE_MAX {
                    self.observe_immediate();
                }
                return Ready(Some(Ok(answer)));
            }
            self.waiting_keys += keys;
            let mut begun = mem::replace(&mut self.answering, answering());
            let node = self.node.clone();
            let task = tokio::spawn(Caller::go_on(async move {
                let answered = poll_fn(|cx| begun.poll_response(cx)).await;
                let seconds = node.context.metrics.request_seconds.of(Interface::grpc);
                seconds.observe(arrived.elapsed(), 1);
                answered
            }));
            self.waiting.push(AbortOnDropHandle::new(task));
            assert!(self.waiting.len() <= UNANSWERED_MAX);
        }
        Pending
    }
}

impl<R> Drop for ResponseStream<R> {
    fn drop(&mut self) {
        self.node.context.metrics.streams.dec();
    }
}

impl<R: Stream<Item = Result<NextManyRequest, Status>> + Unpin> Stream for ResponseStream<R> {
    type Item = Result<NextManyResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        use Poll::*;
        let stream = &mut *self;
        stream.unsent = None;
        // The last answer used the turn up. Nothing is polled now: `end_turn` has the stream polled again, and `Pending`
        // has the answers so far sent.
        if stream.turn_keys >= KEYS_AT_ONCE {
            stream.end_turn(cx);
            return Pending;
        }
        // Before new requests: otherwise a caller that never pauses would keep the old ones waiting.
        if let Ready(Some(answer)) = stream.poll_waiting(cx) {
            return Ready(Some(answer));
        }
        if !stream.ended {
            match stream.poll_requests(cx) {
                Ready(Some(Ok(answer))) => return Ready(Some(Ok(answer))),
                Ready(Some(Err(status))) => {
                    stream.ended = true;
                    count_stream_error(&stream.node.context.metrics, &status);
                    stream.failure = Some(status);
                }
                Ready(None) => stream.ended = true,
                Pending => {}
            }
        }
        // Again: the requests that were just read have no waker registered yet.
        match stream.poll_waiting(cx) {
            Ready(Some(answer)) => Ready(Some(answer)),
            Ready(None) if stream.ended => Ready(stream.failure.take().map(Err)),
            Ready(None) | Pending => {
                stream.end_turn(cx);
                Pending
            }
        }
    }
}

/// Answers one request at a time. Its future is made where it stays: it is large, and most requests are answered at once.
trait SerialAnswers: Send {
    /// Begins to answer a request, which came at the time `arrived`. The one before it is over.
    fn begin(&mut self, node: Arc<NodeRef>, request: NextManyRequest, arrived: Instant);

    /// The response, once it is there.
    ///
    /// # Panics
    /// If nothing was begun.
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<MeteredResponse>;
}

/// Answers requests with the futures that it makes.
struct SerialAnswersBy<M, F> {
    make: M,
    /// `None` before the first request: a stream that says nothing holds no memory for it.
    future: Option<Pin<Box<Option<F>>>>,
}

impl<M, F> SerialAnswers for SerialAnswersBy<M, F>
where
    M: Fn(Arc<NodeRef>, NextManyRequest, Instant) -> F + Send,
    F: Future<Output = MeteredResponse> + Send,
{
    fn begin(&mut self, node: Arc<NodeRef>, request: NextManyRequest, arrived: Instant) {
        let future = self.future.get_or_insert_with(|| Box::pin(None));
        future.set(Some((self.make)(node, request, arrived)));
    }

    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<MeteredResponse> {
        let future = self.future.as_mut().and_then(|future| future.as_mut().as_pin_mut());
        future.expect("a request that was begun").poll(cx)
    }
}

fn answering() -> Box<dyn SerialAnswers> {
    Box::new(SerialAnswersBy { make: answer, future: None })
}

/// Answers one request, which came at the time `arrived`. A failure becomes a response with the request's id.
#[inline]
fn answer(
    node: Arc<NodeRef>, mut request: NextManyRequest, arrived: Instant,
) -> impl Future<Output = MeteredResponse> {
    let keys = request.ids.len() + request.names.len();
    // These two belong to the stream: a message that is forwarded has its own.
    let (id, timeout_ms) = (mem::take(&mut request.id), mem::take(&mut request.timeout_ms));
    let patience = match timeout_ms {
        0 => None,
        millis => Some(Duration::from_millis(millis)),
    };
    let deadline = arrived + time_to_answer(patience, &node.context.config);
    let trace = trace_of(&node, &mut request);
    let (by, traces) = (node.by.clone(), &node.context.traces);
    let asked = CheckedRequest::of_caller(request, by, traces, trace);
    async move {
        let context = &node.context;
        let answered = pin!(grpc::answer(context, &asked, Origin::Client, deadline)).await;
        let (mut answer, reservation) =
            answered.unwrap_or_else(|unanswered| (failed(unanswered), None));
        answer.id = id;
        count_response_errors(&context.metrics, Interface::grpc, &answer);
        MeteredResponse { answer, keys, reservation }
    }
}

/// The trace that a message belongs to: its own one, or else that of its stream.
fn trace_of(node: &NodeRef, request: &mut NextManyRequest) -> Option<TraceContext> {
    match request.traceparent.take() {
        None => node.trace.clone(),
        Some(_) if !node.context.traces.are_on() => None,
        Some(parent) => TraceContext::read(iter::once(parent.as_bytes()), iter::empty()),
    }
}

fn failed(unanswered: Unanswered) -> NextManyResponse {
    let failure = Some(Refusal::from(unanswered).into());
    NextManyResponse { failure, ..NextManyResponse::default() }
}

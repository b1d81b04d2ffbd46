//! What any node answers over gRPC: ids, which it makes, and operations, whose bytes it passes on.

use std::{
    sync::Arc,
    task::{Poll, ready},
};

use axum::{Router, body::Body, routing::post};
use bytes::{Buf, BufMut, Bytes};
use futures::{
    StreamExt, TryStreamExt, poll,
    stream::{BoxStream, poll_fn},
};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tonic::{
    Request, Response, Status, Streaming,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::Grpc,
};
use tower::service_fn;

use super::{Services, count_stream_error};
use crate::{
    metrics::Interface,
    node::{
        Caller, IdList, MadeIds, NodeContext, OPERATIONS, Origin, Principal, Reservation, Served,
        budget,
    },
    proto::{
        Refusal, refusal,
        v1::{NextIdsRequest, NextIdsResponse, ids_server::Ids},
    },
    server::{
        connections::{calls::response, unfinished::CLIENT_MESSAGE_BYTES_MAX},
        metadata::budget_of,
    },
};

#[tonic::async_trait]
impl Ids for Services {
    async fn next(
        &self, request: Request<NextIdsRequest>,
    ) -> Result<Response<NextIdsResponse>, Status> {
        let deadline = Instant::now() + budget_of(&request, &self.context.config);
        let by = Services::asker(&request);
        let making = make(&self.context, (request.into_inner(), &by), deadline);
        let (answer, reserved) = making.await?;
        Ok(response(answer, Some(reserved)))
    }

    type NextManyStream = BoxStream<'static, Result<NextIdsResponse, Status>>;

    // No message is read before the one before is answered, and none after the stop.
    async fn next_many(
        &self, messages: Request<Streaming<NextIdsRequest>>,
    ) -> Result<Response<Self::NextManyStream>, Status> {
        let (context, metrics) = (self.context.clone(), self.context.metrics.clone());
        let (end, by) = (self.end_of(&messages), Services::asker(&messages));
        let messages = messages.into_inner().take_until(end);
        let answers = messages.then(move |message| {
            let (context, by) = (context.clone(), by.clone());
            async move {
                let deadline = Instant::now() + budget(None, &context.config);
                let (message, making) = (message?, context.clone());
                let making = async move { make(&making, (message, &by), deadline).await };
                let made = unheld(making).await;
                let made = made.map(|(answer, reserved)| (answer, Some(reserved)));
                Ok::<_, Status>(made.unwrap_or_else(|refusal| {
                    let errors = context.metrics.errors.of(Interface::grpc);
                    errors.add(refusal.code(), 1);
                    let error = Some(refusal.into());
                    (NextIdsResponse { error, ..NextIdsResponse::default() }, None)
                }))
            }
        });
        let mut answers = answers.boxed();
        // The memory of the last answer, until the next one is asked for. By then little of it is unsent (`CallBody`).
        let mut unsent = None;
        let answers = poll_fn(move |cx| {
            drop(unsent.take());
            let next = ready!(answers.poll_next_unpin(cx)).transpose()?;
            Poll::Ready(next.map(|(answer, reserved)| {
                unsent = reserved;
                Ok::<_, Status>(answer)
            }))
        });
        let answers = answers.inspect_err(move |status| count_stream_error(&metrics, status));
        Ok(Response::new(answers.boxed()))
    }
}

/// Has `making` go on in a task of its own unless it is done at once: a caller that does not read polls nothing, and what it
/// holds, such as a place in the term, nobody else may wait for.
async fn unheld<T: Send + 'static>(
    making: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refusal> {
    let mut making = Box::pin(making);
    match poll!(&mut making) {
        Poll::Ready(made) => made,
        Poll::Pending => {
            let task = AbortOnDropHandle::new(tokio::spawn(Caller::go_on(making)));
            // The task panicked, or the runtime shuts down.
            task.await.unwrap_or_else(|error| Err(refusal!(Internal, "{error}")))
        }
    }
}

async fn make(
    context: &Arc<NodeContext>, (message, by): (NextIdsRequest, &Principal), deadline: Instant,
) -> Result<(NextIdsResponse, Reservation), Refusal> {
    let arrived = Instant::now();
    let made = context.ids.next(&message, by, deadline).await;
    let spans = context.metrics.request_seconds.of(Interface::grpc);
    spans.observe(arrived.elapsed(), 1);
    let (made, reserved) = made?;
    Ok((answer(made, message.as_text), reserved))
}

/// Ids that fit 64 bits are numbers, unless the caller wants them as text.
pub fn answer(made: MadeIds, as_text: bool) -> NextIdsResponse {
    match made.ids {
        IdList::Short(numbers) if !as_text => {
            NextIdsResponse { numbers, ..NextIdsResponse::default() }
        }
        _ => NextIdsResponse { texts: made.texts().collect(), ..NextIdsResponse::default() },
    }
}

// Operations over gRPC: the bytes of a message come, and the node answers them. Nothing here knows their fields.

/// The package whose operations clients may ask for.
const PUBLIC: &str = "ratchet.v1.";

/// The routes of the operations of the public API.
pub fn routes(context: &Arc<NodeContext>) -> Router {
    let public = OPERATIONS.iter().filter(|operation| operation.method.starts_with(PUBLIC));
    public.fold(Router::new(), |routes, operation| {
        let context = context.clone();
        let serving = move |call: axum::extract::Request<Body>| {
            let context = context.clone();
            let service = service_fn(move |call| answer_bytes(context.clone(), operation, call));
            let grpc = Grpc::new(Raw);
            let mut grpc = grpc.apply_max_message_size_config(Some(CLIENT_MESSAGE_BYTES_MAX), None);
            async move { grpc.unary(service, call).await }
        };
        routes.route(&format!("/{}", operation.method), post(serving))
    })
}

async fn answer_bytes(
    context: Arc<NodeContext>, operation: &'static Served, call: tonic::Request<Bytes>,
) -> Result<Response<Bytes>, Status> {
    let deadline = Instant::now() + budget_of(&call, &context.config);
    let by = Services::asker(&call);
    let asked = (call.into_inner(), &by);
    let calling = context.operations.call(operation, asked, Origin::Client, deadline);
    let (answer, mut reserved) = calling.await?;
    if let Some(reserved) = &mut reserved {
        // With the copy that is sent.
        reserved.resize(2 * answer.len());
    }
    Ok(response(answer, reserved))
}

/// The codec of a caller or a server that leaves messages as they are: bytes.
#[derive(Debug, Clone, Copy)]
pub struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

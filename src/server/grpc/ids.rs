//! Ids over gRPC, which any node makes.

use std::{
    sync::Arc,
    task::{Poll, ready},
};

use futures::{
    StreamExt, TryStreamExt, poll,
    stream::{BoxStream, poll_fn},
};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status, Streaming};

use super::{Services, errors::count_stream_error};
use crate::{
    metrics::Interface,
    node::{
        Asker, Caller, IdList, MadeIds, NEXT_IDS, NodeContext, Reservation, TraceContext,
        time_to_answer,
    },
    proto::{
        Refusal, refusal,
        v1::{NextIdsRequest, NextIdsResponse, ids_server::Ids},
    },
    server::{
        connections::answer_memory::response, metadata::time_of_call, trace_headers::trace_in,
    },
};

#[tonic::async_trait]
impl Ids for Services {
    async fn next(
        &self, request: Request<NextIdsRequest>,
    ) -> Result<Response<NextIdsResponse>, Status> {
        let deadline = Instant::now() + time_of_call(&request, &self.context.config);
        let by = Services::asker(&request);
        let trace = trace_in(&self.context, request.metadata().as_ref());
        let making = make(&self.context, (request.into_inner(), &by, trace), deadline);
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
        let trace = trace_in(&self.context, messages.metadata().as_ref());
        let messages = messages.into_inner().take_until(end);
        let answers = messages.then(move |message| {
            let (context, by, trace) = (context.clone(), by.clone(), trace.clone());
            async move {
                let deadline = Instant::now() + time_to_answer(None, &context.config);
                let (message, making) = (message?, context.clone());
                let making = async move { make(&making, (message, &by, trace), deadline).await };
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
    context: &Arc<NodeContext>,
    (message, by, trace): (NextIdsRequest, &Asker, Option<TraceContext>), deadline: Instant,
) -> Result<(NextIdsResponse, Reservation), Refusal> {
    let arrived = Instant::now();
    let span = context.traces.of_caller(NEXT_IDS, trace);
    let made = context.ids.next(&message, (by, span.as_deref()), deadline).await;
    let seconds = context.metrics.request_seconds.of(Interface::grpc);
    seconds.observe(arrived.elapsed(), 1);
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

//! `Next` and `NextMany` of `ratchet.v1.Ids`: ids, as messages.

use std::{
    sync::Arc,
    task::{Poll, ready},
};

use futures::{
    StreamExt,
    stream::{BoxStream, poll_fn},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::{
    deadline::{budget, budget_of},
    held::response,
};
use crate::{
    metrics::Door,
    node::{IdList, MadeIds, NodeContext, Reservation},
    proto::{
        Refusal,
        v1::{NextIdsRequest, NextIdsResponse},
    },
};

/// Answers of a stream, in the order of its messages.
pub type Answers = BoxStream<'static, Result<NextIdsResponse, Status>>;

/// Makes the ids that a call asks for. The memory of the answer is held until it is sent.
///
/// # Errors
/// Those of `Ids::next`.
pub async fn next(
    context: &Arc<NodeContext>, request: Request<NextIdsRequest>,
) -> Result<Response<NextIdsResponse>, Status> {
    let deadline = Instant::now() + budget_of(&request, &context.config);
    let (answer, reserved) = make(context, request.into_inner(), deadline).await?;
    Ok(response(answer, Some(reserved)))
}

/// Makes the ids that the messages of a stream ask for. None is read before the one before is answered, and none after
/// `stop`.
pub fn next_many(
    context: Arc<NodeContext>, stop: CancellationToken, messages: Streaming<NextIdsRequest>,
) -> Answers {
    let messages = messages.take_until(stop.cancelled_owned());
    let answers = messages.then(move |message| {
        let context = context.clone();
        async move {
            let deadline = Instant::now() + budget(None, &context.config);
            let made = make(&context, message?, deadline).await;
            let made = made.map(|(answer, reserved)| (answer, Some(reserved)));
            Ok::<_, Status>(made.unwrap_or_else(|refusal| {
                let errors = context.metrics.errors.of(Door::grpc);
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
            Ok(answer)
        }))
    });
    answers.boxed()
}

async fn make(
    context: &Arc<NodeContext>, message: NextIdsRequest, deadline: Instant,
) -> Result<(NextIdsResponse, Reservation), Refusal> {
    let arrived = Instant::now();
    let made = context.ids.next(&message, deadline).await;
    let spans = context.metrics.request_seconds.of(Door::grpc);
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

//! The services of gRPC: what they share.
//!
//! `sequencer.rs` and `next_many.rs` answer requests for numbers, `ids.rs` those for ids, and `operations.rs` all others.
//! `errors.rs` says how failures are told and counted, and `health.rs` whether the node is ready.

pub(super) mod errors;
mod health;
pub(super) mod ids;
mod next_many;
pub(super) mod operations;
mod sequencer;

use std::{pin::pin, sync::Arc, task::Poll, time::Duration};

use futures::{
    FutureExt, Stream, StreamExt,
    stream::{self, BoxStream},
};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Request, Status};

use self::errors::count_stream_error;
use crate::{
    node::{
        Asker, Attempt, Caller, CheckedRequest, NodeContext, Origin, Reservation, SequenceRequest,
    },
    proto::Refusal,
    sequence::Wanted,
    server::connections::{TooOld, owner::Owner},
};

/// The services of a node for its callers.
#[derive(Clone)]
pub struct Services {
    /// The node.
    pub context: Arc<NodeContext>,
    /// Cancelled when the node stops: streams end then.
    pub stop: CancellationToken,
}

impl Services {
    /// The asker of a call. Without a connection, in a simulation, nobody is known.
    fn asker<T>(call: &Request<T>) -> Asker {
        let by = call.extensions().get().cloned();
        by.unwrap_or_else(|| Owner::nobody().asker())
    }

    /// The end of a call that is a stream: the node stops, or its connection is too old.
    fn end_of<T>(&self, call: &Request<T>) -> WaitForCancellationFutureOwned {
        let too_old = call.extensions().get();
        let end = too_old.map_or(&self.stop, |TooOld(end)| end);
        end.clone().cancelled_owned()
    }

    /// The stream `told`, until its caller may not hear it any more: nothing else looks at that while it hears.
    fn while_known<T: Send + 'static>(
        &self, by: Asker, told: impl Stream<Item = T> + Send + 'static,
    ) -> impl Stream<Item = Result<T, Status>> + Send + 'static {
        let access = self.context.services.access.clone();
        let refused = async move { access.until_refused(&by, Wanted::Anything).await };
        let told = told.boxed().take_until(refused.boxed());
        stream::unfold(Some(told), async |told| {
            let mut told = told?;
            match told.next().await {
                Some(told_now) => Some((Ok(told_now), Some(told))),
                None => told.take_result().map(|refusal| (Err(refusal.into()), None)),
            }
        })
    }

    /// The stream `told` for a caller that watches something, until `end`, or until nothing was told for as long as a
    /// connection may be idle and another call needs the place.
    fn watched<T: Send + 'static>(
        &self, told: impl Stream<Item = Result<T, Status>> + Send + 'static,
        end: WaitForCancellationFutureOwned,
    ) -> BoxStream<'static, Result<T, Status>> {
        let idle = Duration::from_millis(self.context.config.connection_idle_ms);
        let (mut silence, metrics) = (Caller::silence(idle), self.context.metrics.clone());
        let mut told = told.take_until(end).boxed();
        let mut has_ended = false;
        let told = stream::poll_fn(move |cx| {
            if has_ended {
                return Poll::Ready(None);
            }
            match (&mut silence, told.poll_next_unpin(cx)) {
                (Some(silence), Poll::Pending) => silence.poll_too_long(cx).map(|refusal| {
                    has_ended = true;
                    let status = Status::from(refusal);
                    count_stream_error(&metrics, &status);
                    Some(Err(status))
                }),
                (Some(silence), next) => {
                    silence.end();
                    next
                }
                (None, next) => next,
            }
        });
        told.boxed()
    }
}

/// The answer to a message, if that could be checked. Also returns the memory that is reserved for it. Only borrows the
/// message: a future that is given a value holds it twice.
///
/// # Errors
/// [`Unanswered`](crate::node::Unanswered): a refusal if the message is malformed or the request fails, or that another node
/// is to be asked.
pub async fn answer<Q: SequenceRequest>(
    context: &Arc<NodeContext>, asked: &Result<CheckedRequest<Q>, Refusal>, origin: Origin,
    deadline: Instant,
) -> Attempt<(Q::Answer, Option<Reservation>)> {
    let asked = asked.as_ref().map_err(Refusal::clone)?;
    // A number for each key.
    let reserved = context.request_memory.reserve_if_many(size_of::<u64>() * asked.keys());
    let reserved = reserved.inspect_err(|refusal| asked.refused(refusal))?;
    let answer = pin!(context.numbers.serve(asked, origin, deadline)).await?;
    Ok((answer, reserved))
}

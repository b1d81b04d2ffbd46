//! The services of gRPC: what they share, how their failures are told, and the node's health.

pub(super) mod ids;
mod next_many;
mod sequencer;

use std::{sync::Arc, task::Poll, time::Duration};

use futures::{
    FutureExt, Stream, StreamExt,
    stream::{self, BoxStream},
};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_server::Health,
};
use tower::util::MapResponseLayer;

use crate::{
    metrics::{Interface, Metrics},
    node::{
        Asked, Attempt, Caller, NodeContext, Origin, Principal, Reservation, SequenceRequest,
        Unanswered,
    },
    proto::{Refusal, v1::NextManyResponse},
    sequence::Wanted,
    server::connections::{TooOld, owner::Owner},
};

/// The services of a node.
#[derive(Clone)]
pub struct Services {
    /// The node.
    pub context: Arc<NodeContext>,
    /// Ports end at this.
    pub stop: CancellationToken,
}

impl Services {
    /// Who asks in a call. Without a connection, in a simulation, nobody is known.
    fn asker<T>(call: &Request<T>) -> Principal {
        let by = call.extensions().get().cloned();
        by.unwrap_or_else(|| Owner::nobody().principal())
    }

    /// What ends a call that is a stream: the node stops, or its connection is too old.
    fn end_of<T>(&self, call: &Request<T>) -> WaitForCancellationFutureOwned {
        let too_old = call.extensions().get();
        let end = too_old.map_or(&self.stop, |TooOld(end)| end);
        end.clone().cancelled_owned()
    }

    /// What is `told`, until its caller may not hear it any more: nothing else looks at that while it hears.
    fn while_known<T: Send + 'static>(
        &self, by: Principal, told: impl Stream<Item = T> + Send + 'static,
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

    /// What is `told` to who watches something, until `end`, or nothing was told for so long as a connection may be idle and
    /// another call needs the place.
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
/// [`Unanswered`]: a refusal if the message is malformed or the request fails, or that another node is to be asked.
pub async fn answer<Q: SequenceRequest>(
    context: &Arc<NodeContext>, asked: &Result<Asked<Q>, Refusal>, origin: Origin,
    deadline: Instant,
) -> Attempt<(Q::Answer, Option<Reservation>)> {
    let asked = asked.as_ref().map_err(Refusal::clone)?;
    // A number for each key.
    let reserved = context.request_memory.reserve_if_many(size_of::<u64>() * asked.keys());
    let reserved = reserved.inspect_err(|refusal| asked.refused(refusal))?;
    let answer = context.numbers.serve(asked, origin, deadline).await?;
    Ok((answer, reserved))
}

// The errors that clients get: their gRPC status, and their count.
//
// Invariant: each error is counted once, by the node that sends it to the client. A node that a request was
// forwarded to does not count it.

impl From<Unanswered> for Status {
    fn from(unanswered: Unanswered) -> Self {
        Refusal::from(unanswered).into()
    }
}

/// A layer that counts the calls that fail before a response begins, whether a service or a layer below
/// this one refused them.
pub fn counting<B>(
    metrics: Arc<Metrics>,
) -> MapResponseLayer<impl Fn(hyper::Response<B>) -> hyper::Response<B> + Clone> {
    MapResponseLayer::new(move |response: hyper::Response<B>| {
        // One that is an error consists of headers alone, and the code is in them.
        if let Some(code) = response.headers().get("grpc-status") {
            count(&metrics, Interface::grpc, Code::from_bytes(code.as_bytes()), 1);
        }
        response
    })
}

/// Counts the error that ends a stream after its headers were sent: [`counting`] does not see it.
pub fn count_stream_error(metrics: &Metrics, status: &Status) {
    count(metrics, Interface::grpc, status.code(), 1);
}

/// Counts the errors inside one response of a stream: that of the whole request, and one for each key that is exhausted
/// or refused.
pub fn count_response_errors(metrics: &Metrics, interface: Interface, answer: &NextManyResponse) {
    if let Some(failure) = &answer.failure {
        count(metrics, interface, Code::from_i32(failure.code), 1);
    }
    if let Some(exhausted) = &answer.exhausted {
        let keys = exhausted.places.len() as u64;
        count(metrics, interface, Code::OutOfRange, keys);
    }
    for refused in &answer.refused {
        let code = refused.failure.as_ref().map_or(0, |failure| failure.code);
        count(metrics, interface, Code::from_i32(code), refused.places.len() as u64);
    }
}

fn count(metrics: &Metrics, interface: Interface, code: Code, n: u64) {
    if code != Code::Ok {
        metrics.errors.of(interface).add(code, n);
    }
}

// `grpc.health.v1.Health`: the node's readiness over gRPC.

/// The services whose health can be asked for. The empty name means the whole node. They share one state: all
/// are ready, or none.
const SERVICES: [&str; 4] = ["", "ratchet.v1.Sequencer", "ratchet.v1.Admin", "ratchet.v1.Ids"];

#[tonic::async_trait]
impl Health for Services {
    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn check(
        &self, request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        check_service(&request.get_ref().service)?;
        Ok(Response::new(serving(self.context.readiness.check().is_ok())))
    }

    async fn watch(
        &self, request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        check_service(&request.get_ref().service)?;
        let ready = self.context.readiness.watch();
        // Anybody may ask for the health. Who shows a token or a certificate is told for as long as that is good.
        let by = Services::asker(&request);
        let is_known = self.context.services.access.id_of(&by).is_some();
        // The state is what was said last: only a change is said.
        let said = stream::unfold((ready, None), |(mut ready, last)| async move {
            let fits = |now: &bool| Some(*now) != last;
            let now = ready.wait_for(fits).await.ok()?;
            Some((serving(now), (ready, Some(now))))
        });
        let said = match is_known {
            true => self.while_known(by, said).boxed(),
            false => said.map(Ok).boxed(),
        };
        Ok(Response::new(self.watched(said, self.end_of(&request))))
    }
}

fn serving(is_ready: bool) -> HealthCheckResponse {
    let status = match is_ready {
        true => ServingStatus::Serving,
        false => ServingStatus::NotServing,
    };
    HealthCheckResponse { status: status.into() }
}

fn check_service(name: &str) -> Result<(), Status> {
    if SERVICES.contains(&name) {
        return Ok(());
    }
    Err(Status::not_found(format!(
        "there is no service {name:?} on this port; ask for one of {SERVICES:?}"
    )))
}

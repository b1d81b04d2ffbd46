//! Counts the calls in progress on one connection, so that an idle connection can be closed.
//!
//! Invariant: a call counts from when its headers have arrived until its answer is sent, or dropped because
//! the caller is gone.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper::{
    Request, Response,
    body::{Frame, Incoming, SizeHint},
};
use tonic::{body::Body, codegen::Service};

/// How long the other end of a connection without calls may take to close it, once it was told to.
pub const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(1);

/// What answers the calls of a port. It must always be ready: `poll_ready` is not called.
pub trait Answering:
    Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S> Answering for S where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// The calls of one connection, counted as they begin and end.
#[derive(Debug, Default)]
pub struct Calls {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Calls {
    /// Counts a call as begun. It ends when the returned value is dropped.
    pub fn begin(self: &Arc<Self>) -> Call {
        self.begun.fetch_add(1, Relaxed);
        Call(self.clone())
    }

    /// Waits until no call has been in progress for `span`, or for up to twice as long: the counters are
    /// compared once in a `span`, and no timer is reset by each call.
    pub async fn idle_for(&self, span: Duration) {
        let mut before = None;
        loop {
            let ended = self.ended.load(Relaxed);
            let begun = self.begun.load(Relaxed);
            if begun == ended && before == Some(begun) {
                return;
            }
            before = (begun == ended).then_some(begun);
            tokio::time::sleep(span).await;
        }
    }
}

/// A call in progress. It ends when this is dropped.
pub struct Call(Arc<Calls>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Relaxed);
    }
}

/// The answer to `call`, whose body keeps the call in progress.
pub async fn answered(
    call: Call,
    answering: impl Future<Output = Result<Response<Body>, Infallible>>,
) -> Result<Response<CallBody<Body>>, Infallible> {
    let response = answering.await?;
    Ok(response.map(|body| CallBody::new(body, call)))
}

/// The body of an answer. It keeps its call in progress until the body is sent or dropped.
pub struct CallBody<B> {
    body: B,
    _call: Call,
}

impl<B> CallBody<B> {
    /// Ties `body` to the call that it answers.
    pub fn new(body: B, call: Call) -> Self {
        CallBody { body, _call: call }
    }
}

impl<B: hyper::body::Body + Unpin> hyper::body::Body for CallBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

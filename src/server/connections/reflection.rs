//! Calls of the reflection service, which describes the API.
//!
//! The service is the library's own. It does not look who asks, and its streams have no end of their own. So the body of a call
//! lets each message in, and the body of the answer ends the stream. A caller that does not read the answer holds that body up.
//! So a task looks who asks, and the call of such a caller is given up (`unread_answers.rs`). The body of the call ends then,
//! too: the library reads it until its end.
//!
//! Invariant: a caller that is refused is described nothing that it asks for from then on. A stream of such a caller ends, also
//! if nothing is asked over it, or nothing of its answer is read.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::{
    HeaderMap, Response,
    body::{Frame, SizeHint},
};
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::AbortOnDropHandle,
};
use tonic::{Status, body::Body};

use super::answer_body::EndsEarly;
use crate::{
    metrics::{Interface, Metrics},
    node::{Access, Asker},
    proto::{Refusal, refusal},
    sequence::Wanted,
};

/// The beginning of the paths of the service.
pub const REFLECTION: &str = "/grpc.reflection.";

/// The asker over a stream, and the refusal that has ended it. The body of the call has it among the request's extensions.
pub struct ReflectionCaller {
    access: Arc<Access>,
    by: Asker,
    /// Why the stream ends, once it does.
    why: OnceLock<Refusal>,
    /// Cancelled then.
    ended: CancellationToken,
    /// Cancelled once nothing more is answered.
    is_answered: CancellationToken,
}

impl ReflectionCaller {
    /// The caller `by`, whose stream has not ended.
    pub fn new(access: Arc<Access>, by: Asker) -> ReflectionCaller {
        let [ended, is_answered] = [(); 2].map(|()| CancellationToken::new());
        ReflectionCaller { access, by, why: OnceLock::new(), ended, is_answered }
    }

    /// Sees that what has come over the stream may be asked. If it may not, the stream ends.
    ///
    /// # Errors
    /// UNAUTHENTICATED, PERMISSION_DENIED or UNAVAILABLE: [`Access::check`] says when.
    pub fn let_in(&self) -> Result<(), Refusal> {
        let let_in = self.access.let_in(&self.by, Wanted::Anything);
        let_in.inspect_err(|refusal| self.end(refusal.clone()))
    }

    /// Ends with the reason for which nothing more is to be read of the call.
    pub async fn until_ended(self: Arc<Self>) -> Status {
        tokio::select! {
            biased;
            () = self.ended.cancelled() => {}
            () = self.is_answered.cancelled() => {}
        }
        let over = || Status::cancelled("the answer has ended");
        self.why.get().map_or_else(over, |why| why.clone().into())
    }

    /// Ends the stream at `stop`, or once its caller is refused.
    async fn look(self: Arc<Self>, stop: CancellationToken) {
        let why = tokio::select! {
            biased;
            () = stop.cancelled() => refusal!(NodeStopping, "the node stops; ask another one"),
            refusal = self.access.until_refused(&self.by, Wanted::Anything) => refusal,
        };
        self.end(why);
    }

    /// Ends the stream for this reason, unless it has ended for another one.
    fn end(&self, why: Refusal) {
        self.why.get_or_init(|| why);
        self.ended.cancel();
    }
}

/// The library's `answer` to a call of `caller`. It ends at `stop`, or once the caller is refused, and says why. `metrics`
/// count that as an error.
pub fn described(
    answer: Response<Body>, caller: Arc<ReflectionCaller>, metrics: Arc<Metrics>,
    stop: CancellationToken,
) -> Response<Body> {
    let ended = caller.ended.clone();
    let mut described = answer.map(|answer| {
        let ended = Box::pin(ended.clone().cancelled_owned());
        let looking = AbortOnDropHandle::new(tokio::spawn(caller.clone().look(stop)));
        let is_over = false;
        Body::new(Described { answer, caller, ended, is_over, metrics, _looking: looking })
    });
    described.extensions_mut().insert(EndsEarly(ended));
    described
}

/// The body of an answer.
struct Described {
    answer: Body,
    caller: Arc<ReflectionCaller>,
    /// Ready once the stream ends.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Whether its last frame says why it has ended.
    is_over: bool,
    metrics: Arc<Metrics>,
    _looking: AbortOnDropHandle<()>,
}

impl Drop for Described {
    fn drop(&mut self) {
        self.caller.is_answered.cancel();
    }
}

impl Described {
    /// The last frame, which says why the stream ends.
    fn last_frame(&self, why: Refusal) -> Frame<Bytes> {
        let (status, mut said) = (Status::from(why), HeaderMap::new());
        // A text that no header can hold leaves the code alone.
        let _ = status.add_header(&mut said);
        self.metrics.errors.of(Interface::grpc).add(status.code(), 1);
        Frame::trailers(said)
    }
}

/// Whether an answer ends with what was `polled` of its body.
fn is_last(polled: &Poll<Option<Result<Frame<Bytes>, Status>>>) -> bool {
    match polled {
        Poll::Pending => false,
        Poll::Ready(None | Some(Err(_))) => true,
        Poll::Ready(Some(Ok(frame))) => frame.is_trailers(),
    }
}

impl hyper::body::Body for Described {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if self.ended.as_mut().poll(cx).is_pending() {
            let polled = Pin::new(&mut self.answer).poll_frame(cx);
            // The stream may have ended since the look above. Then the library, which has read so from the call's body, ends
            // its answer as if all was well.
            if !is_last(&polled) || self.caller.why.get().is_none() {
                return polled;
            }
        }
        self.is_over = true;
        let why = self.caller.why.get().cloned();
        Poll::Ready(why.map(|why| Ok(self.last_frame(why))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.size_hint()
    }
}

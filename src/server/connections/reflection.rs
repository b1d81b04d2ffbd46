//! Calls of the reflection service, which describes the API.
//!
//! The service is the library's own. It does not look who asks, and its streams have no end of their own. So the body of a call
//! looks, and ends the stream. Then the library ends the answer as if all were well, and the body of the answer says why.
//!
//! Invariant: a caller that is refused is described nothing that it asks for from then on. A stream of such a caller ends, also
//! if nothing is asked over it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, Fuse},
};
use hyper::{
    HeaderMap,
    body::{Frame, SizeHint},
    http::Extensions,
};
use tokio_util::sync::CancellationToken;
use tonic::{Status, body::Body};

use super::owner::Owner;
use crate::{
    metrics::Interface,
    node::{Access, NodeContext, Principal},
    proto::{Refusal, refusal},
    sequence::Wanted,
};

/// The beginning of the paths of the service.
pub const REFLECTION: &str = "/grpc.reflection.";

/// The caller that asks over a stream, and the end of the stream.
pub struct Asker {
    access: Arc<Access>,
    by: Principal,
    end: Fuse<BoxFuture<'static, Refusal>>,
}

impl Asker {
    /// The caller of a call with these extensions. Its stream ends at `stop`, or once `access` refuses the caller.
    pub fn new(extensions: &Extensions, access: Arc<Access>, stop: CancellationToken) -> Asker {
        let by: Option<Principal> = extensions.get().cloned();
        let by = by.unwrap_or_else(|| Owner::nobody().principal());
        let (known_by, caller) = (access.clone(), by.clone());
        let end = async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => refusal!(NodeStopping, "the node stops; ask another one"),
                refusal = known_by.until_refused(&caller, Wanted::Anything) => refusal,
            }
        };
        Asker { access, by, end: end.boxed().fuse() }
    }

    /// Sees that what has come over the stream may be asked.
    ///
    /// # Errors
    /// As [`Access::let_in`].
    pub fn let_in(&self) -> Result<(), Refusal> {
        self.access.let_in(&self.by, Wanted::Anything)
    }

    /// Ready, once, with why the stream ends.
    pub fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Refusal> {
        self.end.poll_unpin(cx)
    }
}

/// The answer to a call. Its end tells a caller that is refused by then so.
pub struct Described {
    answer: Body,
    by: Principal,
    context: Arc<NodeContext>,
}

impl Described {
    /// The library's answer to `by`.
    pub fn new(answer: Body, by: Principal, context: Arc<NodeContext>) -> Described {
        Described { answer, by, context }
    }

    /// The last frame, with what the library says at the end of the answer.
    fn end(&self, mut said: HeaderMap) -> Frame<Bytes> {
        if let Err(refusal) = self.context.services.access.check(&self.by, Wanted::Anything) {
            let status = Status::from(refusal);
            // A text that no header can hold leaves the code alone.
            let _ = status.add_header(&mut said);
            self.context.metrics.errors.of(Interface::grpc).add(status.code(), 1);
        }
        Frame::trailers(said)
    }
}

impl hyper::body::Body for Described {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.answer).poll_frame(cx)).transpose()?;
        let frame = frame.map(|frame| match frame.into_trailers() {
            Ok(said) => self.end(said),
            Err(data) => data,
        });
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.size_hint()
    }
}

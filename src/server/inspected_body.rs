//! A request's body that is inspected while it arrives, before the gRPC library sees a whole message.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tonic::Status;

/// Looks at what a call brings.
pub trait Inspect: Unpin {
    /// Looks at data that has arrived.
    ///
    /// # Errors
    /// Why the call ends.
    fn look(&mut self, data: &[u8]) -> Result<(), Status>;

    /// More is waited for. Ready with why the call ends, if it ends for that.
    fn wait(&mut self, _cx: &mut Context<'_>) -> Poll<Status> {
        Poll::Pending
    }
}

/// The body of one call's request.
pub struct InspectedBody<I> {
    body: Incoming,
    inspect: I,
}

impl<I: Inspect> InspectedBody<I> {
    /// A body whose data `inspect` sees.
    pub fn new(body: Incoming, inspect: I) -> Self {
        InspectedBody { body, inspect }
    }
}

impl<I: Inspect> Body for InspectedBody<I> {
    type Data = Bytes;
    type Error = tonic::codegen::StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return self.inspect.wait(cx).map(|why| Some(Err(why.into())));
        };
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(status) = self.inspect.look(data)
        {
            return Poll::Ready(Some(Err(status.into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

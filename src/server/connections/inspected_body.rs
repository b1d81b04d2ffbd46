//! A request's body that is inspected while it arrives, before the gRPC library sees a whole message.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::{
    Request,
    body::{Body, Frame, Incoming, SizeHint},
};
use tonic::{Status, codegen::Service, service::Routes};

/// Looks at the body of a call.
pub trait Inspect: Unpin {
    /// Looks at data that has arrived. Returns the data that the gRPC library may see now.
    ///
    /// # Errors
    /// The reason for the end of the call.
    fn look(&mut self, data: Bytes) -> Result<Bytes, Status>;

    /// Whether data that was looked at waits until the gRPC library may see it. No more is read before.
    fn has_held_back(&self) -> bool {
        false
    }

    /// The data that waits, once the library may see it, or the reason for the end of the call; `None` if none waits.
    fn poll_held_back(&mut self, _cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        Poll::Ready(None)
    }

    /// The call waits for more. Ready with the reason for its end, if it ends for that.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Status>;
}

/// Routes that answer calls whose bodies are inspected.
#[derive(Clone)]
pub struct InspectedRoutes<F> {
    routes: Routes,
    inspector: F,
}

impl<F> InspectedRoutes<F> {
    /// Has `routes`, which are prepared, answer. `inspector` makes the inspector of a call's body.
    pub fn new(routes: Routes, inspector: F) -> Self {
        InspectedRoutes { routes, inspector }
    }
}

impl<I: Inspect + Send + 'static, F: Fn(&mut Request<Incoming>) -> I> Service<Request<Incoming>>
    for InspectedRoutes<F>
{
    type Response = <Routes as Service<Request<Incoming>>>::Response;
    type Error = <Routes as Service<Request<Incoming>>>::Error;
    type Future = <Routes as Service<Request<Incoming>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<Incoming>>::poll_ready(&mut self.routes, cx)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        let inspect = (self.inspector)(&mut request);
        self.routes.call(request.map(|body| InspectedBody { body, inspect }))
    }
}

/// The body of one call's request.
struct InspectedBody<I> {
    body: Incoming,
    inspect: I,
}

impl<I: Inspect> Body for InspectedBody<I> {
    type Data = Bytes;
    type Error = tonic::codegen::StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(data) = ready!(self.inspect.poll_held_back(cx)) {
            return Poll::Ready(Some(Ok(Frame::data(data?))));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return self.inspect.wait(cx).map(|why| Some(Err(why.into())));
        };
        Poll::Ready(frame.map(|frame| match frame?.into_data() {
            Ok(data) => Ok(Frame::data(self.inspect.look(data)?)),
            Err(trailers) => Ok(trailers),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && !self.inspect.has_held_back()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! The services that answer calls.

use std::convert::Infallible;

use hyper::{Request, Response, body::Incoming};
use tonic::{body::Body, codegen::Service};

/// The service that answers the calls of a port. It must always be ready: `poll_ready` is not called.
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

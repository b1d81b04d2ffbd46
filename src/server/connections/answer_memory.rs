//! The memory that an answer holds until it is sent: services say how much, and the answer's body has it (`answer_body.rs`).

use std::sync::Arc;

use hyper::Response;
use tonic::{Status, body::Body, codegen::http::Extensions};
use tower::util::MapResponseLayer;

use crate::node::{RequestMemory, Reservation};

/// Memory that an answer holds until it is sent. A service puts it among the response's extensions, and the connection's body
/// takes it from there.
#[derive(Clone)]
pub struct AnswerMemory(#[allow(dead_code)] Arc<Reservation>);

/// Has the answer with these extensions hold the memory until it is sent, or dropped because its caller is gone.
pub fn until_sent(extensions: &mut Extensions, reservation: Option<Reservation>) {
    if let Some(reservation) = reservation {
        extensions.insert(AnswerMemory(Arc::new(reservation)));
    }
}

/// The response with a message, which holds the memory until it is sent.
pub fn response<T>(message: T, reservation: Option<Reservation>) -> tonic::Response<T> {
    let mut response = tonic::Response::new(message);
    until_sent(response.extensions_mut(), reservation);
    response
}

/// A layer that has each answer of a service hold `bytes` bytes, because the answer may have as many.
pub fn holding(
    memory: Arc<RequestMemory>, bytes: usize,
) -> MapResponseLayer<impl Fn(Response<Body>) -> Response<Body> + Clone> {
    MapResponseLayer::new(move |mut response: Response<Body>| match memory.reserve(bytes) {
        Ok(reserved) => {
            until_sent(response.extensions_mut(), Some(reserved));
            response
        }
        Err(refusal) => Status::from(refusal).into_http(),
    })
}

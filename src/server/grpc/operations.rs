//! Operations over gRPC: the bytes of a message come, and the node answers them. Nothing here knows their fields.

use std::sync::Arc;

use axum::{Router, body::Body, routing::post};
use bytes::{Buf, BufMut, Bytes};
use tokio::time::Instant;
use tonic::{
    Response, Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::Grpc,
};
use tower::service_fn;

use super::Services;
use crate::{
    node::{NodeContext, OPERATIONS, Origin, ServedOperation},
    server::{
        connections::{answer_memory::response, unfinished::CLIENT_MESSAGE_BYTES_MAX},
        metadata::time_of_call,
        trace_headers::trace_in,
    },
};

/// The package whose operations clients may ask for.
const PUBLIC: &str = "ratchet.v1.";

/// The routes of the operations of the public API.
pub fn routes(context: &Arc<NodeContext>) -> Router {
    let public = OPERATIONS.iter().filter(|operation| operation.method.starts_with(PUBLIC));
    public.fold(Router::new(), |routes, operation| {
        let context = context.clone();
        let serving = move |call: axum::extract::Request<Body>| {
            let context = context.clone();
            let service = service_fn(move |call| answer_bytes(context.clone(), operation, call));
            let grpc = Grpc::new(Raw);
            let mut grpc = grpc.apply_max_message_size_config(Some(CLIENT_MESSAGE_BYTES_MAX), None);
            async move { grpc.unary(service, call).await }
        };
        routes.route(&format!("/{}", operation.method), post(serving))
    })
}

async fn answer_bytes(
    context: Arc<NodeContext>, operation: &'static ServedOperation, call: tonic::Request<Bytes>,
) -> Result<Response<Bytes>, Status> {
    let deadline = Instant::now() + time_of_call(&call, &context.config);
    let by = Services::asker(&call);
    let trace = trace_in(&context, call.metadata().as_ref());
    let span = context.traces.of_caller(operation.method, trace);
    let (asked, from) = ((call.into_inner(), &by), (Origin::Client, span.as_deref()));
    let calling = context.operations.call(operation, asked, from, deadline);
    let (answer, mut reserved) = calling.await?;
    if let Some(reserved) = &mut reserved {
        // With the copy that is sent.
        reserved.resize(2 * answer.len());
    }
    Ok(response(answer, reserved))
}

/// The codec of a caller or a server that leaves messages as they are: bytes.
#[derive(Debug, Clone, Copy)]
pub struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

//! Calls one method of a gRPC server, without generated code.

use tonic::{codegen::http::uri::PathAndQuery, transport::Channel};

/// Calls the method at `path`.
///
/// # Errors
/// The text of the failure, if the server refuses the call or does not answer.
pub async fn call<Q, A>(
    client: &mut tonic::client::Grpc<Channel>, request: Q, path: &'static str,
) -> Result<A, String>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
{
    client.ready().await.map_err(|error| error.to_string())?;
    let codec = tonic_prost::ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(path);
    let answer = client.unary(tonic::Request::new(request), path, codec).await;
    answer.map(tonic::Response::into_inner).map_err(|status| status.message().to_owned())
}

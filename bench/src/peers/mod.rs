//! Peers to compare with: what hands out numbers where it is installed.

mod etcd;
mod redis;
mod tsoracle;

use std::path::PathBuf;

use tonic::{codegen::http::uri::PathAndQuery, transport::Channel};

pub use etcd::{Etcd, start as etcd};
pub use redis::{Redis, start as redis};
pub use tsoracle::{TsOracle, start as tsoracle};

use super::{Failed, child::Process};

/// A program of this name on the path.
fn installed(name: &str, how: &str) -> Result<PathBuf, Failed> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|dir| dir.join(name));
    places.find(|place| place.is_file()).ok_or_else(|| {
        Failed::other(format!(
            "{name} is not installed (no such program in PATH); install it with: {how}"
        ))
    })
}

/// Tries until a server lets us in.
async fn until_up<T>(
    process: &Process,
    mut attempt: impl AsyncFnMut() -> Option<T>,
) -> Result<T, Failed> {
    for _ in 0..300 {
        if let Some(done) = attempt().await {
            return Ok(done);
        }
        // It says nothing when it is ready: the one thing here that cannot be awaited.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    Err(process.complaint())
}

/// Calls one method of a gRPC server of which no more than that is known.
async fn call<Q, A>(
    client: &mut tonic::client::Grpc<Channel>,
    request: Q,
    path: &'static str,
) -> Result<A, String>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
{
    client.ready().await.map_err(|error| error.to_string())?;
    let codec = tonic_prost::ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(path);
    let answer = client
        .unary(tonic::Request::new(request), path, codec)
        .await;
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| status.message().to_owned())
}

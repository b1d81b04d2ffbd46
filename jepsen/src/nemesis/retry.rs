//! Administrative calls that are tried until they succeed.

use std::time::Duration;

use tonic::Status;

/// How long a change of the cluster may take.
pub(super) const CHANGE_MAX: Duration = Duration::from_secs(15);
/// The pause between two tries.
pub(super) const RETRY_EVERY: Duration = Duration::from_millis(100);

/// Tries until `call` succeeds.
///
/// # Errors
/// It did not succeed within [`CHANGE_MAX`]. The text names `goal` and the last error.
pub(super) async fn retry<F>(goal: &str, mut call: impl FnMut() -> F) -> Result<(), String>
where
    F: Future<Output = Result<(), Status>>,
{
    let mut last = String::new();
    let trying = async {
        while let Err(status) = call().await {
            last = format!("{:?}: {}", status.code(), status.message());
            tokio::time::sleep(RETRY_EVERY).await;
        }
    };
    tokio::time::timeout(CHANGE_MAX, trying).await.map_err(|_| {
        let limit = CHANGE_MAX.as_secs();
        format!("{goal} did not succeed within {limit} s; the last error was {last}")
    })
}

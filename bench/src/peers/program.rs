//! The program of a peer: where it is, and when it is up.

use std::path::PathBuf;

use crate::{child::Process, failed::Failed};

/// A program of this name on the path.
pub fn installed(name: &str, how: &str) -> Result<PathBuf, Failed> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|dir| dir.join(name));
    places.find(|place| place.is_file()).ok_or_else(|| {
        Failed::other(format!(
            "{name} is not installed (no such program in PATH); install it with: {how}"
        ))
    })
}

/// Tries until a server lets us in.
pub async fn until_up<T>(
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

//! The program of a peer: finds it, and waits until it is up.

use std::path::PathBuf;

use crate::{child::Process, error::Error};

/// Finds a program in PATH.
///
/// # Errors
/// If it is not installed; the text says `how` to install it.
pub fn installed(name: &str, how: &str) -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|dir| dir.join(name));
    places.find(|place| place.is_file()).ok_or_else(|| {
        Error::other(format!(
            "{name} is not installed (no such program in PATH); install it with: {how}"
        ))
    })
}

/// Repeats `attempt` until it succeeds, for up to 30 s.
///
/// # Errors
/// If it never succeeds; with the end of the log of `process`.
pub async fn until_up<T>(
    process: &Process, mut attempt: impl AsyncFnMut() -> Option<T>,
) -> Result<T, Error> {
    for _ in 0..300 {
        if let Some(done) = attempt().await {
            return Ok(done);
        }
        // The server does not report when it is ready, so there is no event to wait for.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    Err(process.complaint("does not answer"))
}

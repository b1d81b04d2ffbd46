//! How a command runs and ends.

use std::process::ExitCode;

use ratchet_jepsen::verdict::{Verdict, VerdictKind};

/// Prints an error of the harness; returns its exit code.
pub fn failed(error: impl std::fmt::Display) -> ExitCode {
    eprintln!("{}", Verdict::HarnessError(error.to_string()));
    VerdictKind::HarnessError.into()
}

/// Runs to the end on a runtime of its own.
///
/// # Errors
/// The runtime cannot be started.
pub fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(runtime.block_on(work))
}

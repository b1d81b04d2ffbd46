//! How a command ends.

use std::process::ExitCode;

use ratchet_jepsen::judge::Verdict;

pub fn failed(error: impl std::fmt::Display) -> ExitCode {
    let verdict = Verdict::HarnessError(error.to_string());
    eprintln!("{verdict}");
    verdict.exit()
}

pub fn runtime<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(work))
}

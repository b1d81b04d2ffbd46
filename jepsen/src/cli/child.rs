//! A run in a process, and namespaces, of its own.

use std::{
    env, fs, io,
    path::Path,
    process::{Command, Stdio},
};

use ratchet_jepsen::verdict::VerdictKind;
use serde_json::Value;

/// Executes a subcommand, such as `run`, with these arguments. Everything it writes goes to `out`. Returns its
/// verdict and its summary, which is null if it wrote none.
///
/// # Errors
/// The directory cannot be written, or the process cannot be started.
pub fn run(subcommand: &str, arguments: &[String], out: &Path) -> io::Result<(VerdictKind, Value)> {
    fs::create_dir_all(out)?;
    let status = Command::new(env::current_exe()?)
        .arg(subcommand)
        .args(arguments)
        .arg(format!("--out={}", out.display()))
        .stdin(Stdio::null())
        .stdout(fs::File::create(out.join("verdict.txt"))?)
        .stderr(fs::File::create(out.join("progress.log"))?)
        .status()?;
    let summary = fs::read(out.join("summary.json")).ok();
    let summary = summary.and_then(|text| serde_json::from_slice(&text).ok());
    let verdict = VerdictKind::from_exit_code(status.code());
    Ok((verdict, summary.unwrap_or_default()))
}

/// The output of a run: its verdict, and its progress with the errors of the harness.
pub fn output(out: &Path) -> String {
    let files = ["verdict.txt", "progress.log"].map(|name| {
        let path = out.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| format!("{}: {error}", path.display()))
    });
    files.concat()
}

//! A run in a process of its own.

use std::{
    env, fs, io,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

/// One run's arguments, and where it writes.
pub fn run(arguments: &[String], out: &Path) -> io::Result<(u8, Value)> {
    fs::create_dir_all(out)?;
    let log = fs::File::create(out.join("progress.log"))?;
    let status = Command::new(env::current_exe()?)
        .arg("run")
        .args(arguments)
        .arg(format!("--out={}", out.display()))
        .stdin(Stdio::null())
        .stdout(fs::File::create(out.join("verdict.txt"))?)
        .stderr(log)
        .status()?;
    let summary = fs::read(out.join("summary.json")).ok();
    let summary = summary.and_then(|text| serde_json::from_slice(&text).ok());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok((code.unwrap_or(u8::MAX), summary.unwrap_or_default()))
}

pub const UNKNOWN: u8 = 3;

pub fn word(code: u8) -> &'static str {
    match code {
        0 => "pass",
        1 => "VIOLATION",
        UNKNOWN => "unknown",
        _ => "harness error",
    }
}

/// What a run said: its verdict, and its progress with the errors of the harness.
pub fn account(out: &Path) -> String {
    let files = ["verdict.txt", "progress.log"].map(|name| {
        let path = out.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| format!("{}: {error}", path.display()))
    });
    files.concat()
}

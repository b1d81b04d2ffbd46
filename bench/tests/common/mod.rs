//! The common helpers of the subcommands' tests.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// The benchmark, without the environment of this process.
pub fn command(dir: &Path, subcommand: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet-bench"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("TMPDIR", dir).env("PATH", path);
    command.arg(subcommand).stdin(Stdio::null());
    command
}

/// Runs a subcommand, whose files go to `dir`.
pub fn bench(dir: &Path, subcommand: &str, args: &[&str]) -> Output {
    command(dir, subcommand).args(args).output().expect("it runs")
}

/// The node's program, in the directory of the benchmark's.
pub fn node() -> PathBuf {
    let node = Path::new(env!("CARGO_BIN_EXE_ratchet-bench")).with_file_name("ratchet");
    assert!(node.is_file(), "first: cargo build --bin ratchet");
    node
}

/// The report of a run that succeeded.
pub fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The processes whose command line or environment names `dir`.
pub fn processes_of(dir: &Path) -> BTreeSet<u32> {
    let named = |id: &u32| {
        let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        let dir = dir.to_str().expect("a path");
        [command, environment].iter().any(|text| String::from_utf8_lossy(text).contains(dir))
    };
    let all = std::fs::read_dir("/proc").expect("/proc");
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(named).collect()
}

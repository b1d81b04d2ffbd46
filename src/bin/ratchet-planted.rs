//! The `ratchet` command with bugs that can be planted: for testing the tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    ratchet::cli::run()
}

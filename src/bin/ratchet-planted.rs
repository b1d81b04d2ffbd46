//! The `ratchet` command of a test build. Bugs can be planted in it, to show that the tests notice them.

use std::process::ExitCode;

fn main() -> ExitCode {
    ratchet::cli::run()
}

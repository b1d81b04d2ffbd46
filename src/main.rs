//! The `ratchet` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ratchet::cli::run()
}

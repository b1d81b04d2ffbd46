//! The `ratchet` command.

use std::process::ExitCode;

/// RocksDB uses it as well. The C library's allocator kept 707 MB where this one keeps 416 (`ratchet-bench memory`). Its
/// settings are in `.cargo/config.toml`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    ratchet::cli::run()
}

//! Which release this is.
//!
//! Invariant: a build says the same everywhere: on the command line, to its peers, in its metrics.

/// The version, as in Cargo.toml.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that it was built from, in hexadecimal; "unknown" where the sources came without their
/// history. (The build script finds it out.)
pub const COMMIT: &str = env!("RATCHET_COMMIT");

/// Both.
pub const LONG: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("RATCHET_COMMIT"), ")");

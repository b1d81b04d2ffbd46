//! The release and the commit of this build.
//!
//! Invariant: a build tells the same release and commit on the command line, to its peers and in its
//! metrics.

/// The release: the version in Cargo.toml.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that was built, in hexadecimal; "unknown" if the sources came without their history. The
/// build script sets it.
pub const COMMIT: &str = env!("RATCHET_COMMIT");

/// Release and commit.
pub const LONG: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("RATCHET_COMMIT"), ")");

/// The features of this build that others of the same commit may not have: the memory allocator of releases, and debug
/// assertions, with which it has planted bugs.
const FEATURES: &str = match (cfg!(feature = "jemalloc"), cfg!(debug_assertions)) {
    (true, false) => "jemalloc",
    (true, true) => "jemalloc, debug-assertions",
    (false, true) => "debug-assertions",
    (false, false) => "none",
};

/// Release and commit, and on a line of its own the features.
pub fn with_features() -> String {
    format!("{LONG}\nfeatures: {FEATURES}")
}

//! What the command lines of the subcommands have in common.

use clap::ValueEnum;

/// The fence of the nodes that are started for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fence {
    /// The lease of the leader
    Lease,
    /// The confirmation of a majority before each answer
    Quorum,
}

impl Fence {
    /// The value of `--fence` on the command line of a node.
    pub fn name(self) -> &'static str {
        match self {
            Fence::Lease => "lease",
            Fence::Quorum => "quorum",
        }
    }
}

/// How numbers are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Door {
    /// One gRPC call per number
    Unary,
    /// One bidirectional gRPC stream per connection
    Stream,
    /// The Rust client library
    Client,
}

/// The node that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// The leader
    Leader,
    /// A follower, which forwards to the leader
    Follower,
}

/// Parses a number of seconds.
///
/// # Errors
/// If it is not a number, or below 0.5 or above a day.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.5..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!(
            "{text} is not a number of seconds from 0.5 to 86400"
        )),
    }
}

//! Why a run failed, and its exit code.

use std::process::ExitCode;

use serde_json::json;

/// Why a run failed.
#[derive(Debug)]
pub struct Error {
    exit: u8,
    message: String,
}

impl Error {
    /// A failure during the run: exit code 1.
    pub fn other(message: impl Into<String>) -> Self {
        Error { exit: 1, message: message.into() }
    }

    /// Options that cannot be carried out: exit code 78.
    pub fn config(message: impl Into<String>) -> Self {
        Error { exit: 78, message: message.into() }
    }

    /// The error with where it happened before its text.
    pub fn within(self, place: &str) -> Self {
        Error { message: format!("{place}: {}", self.message), ..self }
    }

    /// Prints the error, and returns the exit code.
    pub fn report(&self, json: bool) -> ExitCode {
        if json {
            eprintln!("{}", json!({"error": {"message": self.message}}));
        } else {
            eprintln!("error: {}", self.message);
        }
        ExitCode::from(self.exit)
    }
}

impl From<ratchet_client::Error> for Error {
    fn from(error: ratchet_client::Error) -> Self {
        Error::other(error.to_string())
    }
}

//! Why a run failed, and the exit code for it.

use std::process::ExitCode;

use serde_json::json;

/// Why a run failed.
#[derive(Debug)]
pub struct Failed {
    exit: u8,
    message: String,
}

impl Failed {
    /// A failure on the way: exit code 1.
    pub fn other(message: impl Into<String>) -> Self {
        Failed {
            exit: 1,
            message: message.into(),
        }
    }

    /// What was asked for cannot be measured: exit code 78.
    pub fn config(message: impl Into<String>) -> Self {
        Failed {
            exit: 78,
            message: message.into(),
        }
    }

    /// Tells the user, and the shell.
    pub fn report(&self, json: bool) -> ExitCode {
        if json {
            eprintln!("{}", json!({"error": {"message": self.message}}));
        } else {
            eprintln!("error: {}", self.message);
        }
        ExitCode::from(self.exit)
    }
}

impl From<ratchet_client::Error> for Failed {
    fn from(error: ratchet_client::Error) -> Self {
        Failed::other(error.to_string())
    }
}

//! Exit codes that scripts can use.

use std::process::ExitCode;

use serde_json::json;
use tonic::Code;

use crate::{client::ClientError, node::StartError, tasks::Fault};

/// The exit codes, for `--help`.
pub const HELP: &str = "\
Exit codes:
   0  done
   1  failed in another way than those below
   2  the command line is wrong
   3  not found (a namespace, a node)
   4  refused: an argument outside its limits, it exists already, numbers used up
   5  no server or no leader answers, too much waits, or a membership change goes on: look again
   6  the deadline passed
   7  status: a voter is missing; the others go on
  70  start: a part of the node panicked, which is a bug
  71  start: an address cannot be listened on
  74  start, recover: the data directory or its disk cannot be used or trusted, the margin does not
      fit it, or the node had to stop; the message says which
  78  start, bench: the configuration cannot work";

const OTHER: u8 = 1;
const NOT_FOUND: u8 = 3;
const REFUSED: u8 = 4;
const UNAVAILABLE: u8 = 5;
const DEADLINE: u8 = 6;
const PANIC: u8 = 70;
const VOTER_MISSING: u8 = 7;
const LISTEN: u8 = 71;
const STORE: u8 = 74;
const CONFIG: u8 = 78;

/// Why the command failed.
#[derive(Debug)]
pub struct Failed {
    exit: u8,
    code: String,
    message: String,
}

impl Failed {
    /// A failure of no special kind.
    pub fn other(message: impl Into<String>) -> Self {
        Failed {
            exit: OTHER,
            code: "FAILED".to_owned(),
            message: message.into(),
        }
    }

    /// A cluster that hands out no numbers for now.
    pub fn no_leader(message: impl Into<String>) -> Self {
        Failed {
            exit: UNAVAILABLE,
            code: grpc_name(Code::Unavailable),
            message: message.into(),
        }
    }

    /// A cluster that does without some of its voters for now.
    pub fn voter_missing(message: impl Into<String>) -> Self {
        Failed {
            exit: VOTER_MISSING,
            code: "VOTER_MISSING".to_owned(),
            message: message.into(),
        }
    }

    /// A configuration that cannot work.
    pub fn config(message: impl Into<String>) -> Self {
        Failed {
            exit: CONFIG,
            code: "CONFIGURATION".to_owned(),
            message: message.into(),
        }
    }

    /// Tells the user, and the shell.
    pub fn report(&self, json: bool) -> ExitCode {
        self.tell(json);
        ExitCode::from(self.exit)
    }

    /// Tells the user.
    pub fn tell(&self, json: bool) {
        if json {
            let error = json!({"error": {"code": self.code, "message": self.message}});
            eprintln!("{error}");
        } else {
            eprintln!("error: {}", self.message);
        }
    }
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Self {
        let (exit, code) = match &error {
            ClientError::Server(_) => (REFUSED, "INVALID_ARGUMENT".to_owned()),
            ClientError::Status { status, .. } => {
                let exit = match status.code() {
                    Code::NotFound => NOT_FOUND,
                    Code::InvalidArgument
                    | Code::OutOfRange
                    | Code::AlreadyExists
                    | Code::FailedPrecondition => REFUSED,
                    Code::Unavailable | Code::ResourceExhausted => UNAVAILABLE,
                    Code::DeadlineExceeded | Code::Cancelled => DEADLINE,
                    _ => OTHER,
                };
                (exit, grpc_name(status.code()))
            }
            ClientError::Disorder { .. } => (OTHER, grpc_name(Code::DataLoss)),
            ClientError::Gone => (OTHER, grpc_name(Code::Internal)),
        };
        Failed {
            exit,
            code,
            message: error.to_string(),
        }
    }
}

/// A status code as gRPC spells it: NotFound is NOT_FOUND.
fn grpc_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

impl From<StartError> for Failed {
    fn from(error: StartError) -> Self {
        let (exit, code) = match &error {
            StartError::Config(_) => (CONFIG, "CONFIGURATION"),
            StartError::Listen { .. } => (LISTEN, "LISTEN"),
            StartError::Store(_) => (STORE, "DATA_DIRECTORY"),
            StartError::Stopped(Fault::Panic { .. }) => (PANIC, "PANIC"),
            StartError::Stopped(Fault::Founding(_)) => (CONFIG, "CONFIGURATION"),
            StartError::Stopped(Fault::Other(_)) => (STORE, "STOPPED"),
            StartError::Internal(_) => (OTHER, "FAILED"),
        };
        Failed {
            exit,
            code: code.to_owned(),
            message: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Status;

    #[test]
    fn each_kind_of_failure_has_its_exit_code() {
        let exit = |status: Status| {
            Failed::from(ClientError::Status {
                server: "a:1".into(),
                status: Box::new(status),
            })
        };
        let not_found = exit(Status::not_found("x"));
        assert_eq!((not_found.exit, not_found.code.as_str()), (3, "NOT_FOUND"));
        assert_eq!(exit(Status::invalid_argument("x")).exit, 4);
        assert_eq!(exit(Status::unavailable("x")).exit, 5);
        assert_eq!(exit(Status::resource_exhausted("x")).exit, 5);
        assert_eq!(exit(Status::deadline_exceeded("x")).exit, 6);
        assert_eq!(exit(Status::internal("x")).exit, 1);
        let stopped = |reason| Failed::from(StartError::Stopped(reason)).exit;
        assert_eq!(stopped(Fault::Other("x".into())), 74);
        assert_eq!(stopped(Fault::Founding("x".into())), 78);
    }
}

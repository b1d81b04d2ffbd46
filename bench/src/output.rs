//! Prints the report of a subcommand.

use std::io::{ErrorKind, Write};

use serde_json::Value;

use crate::error::Error;

/// A report, in both forms.
pub struct Printed {
    pub json: Value,
    pub text: String,
}

/// Waits for the report, and prints it. SIGINT ends the measurement.
///
/// # Errors
/// The errors of `report`; also if the run is interrupted, or if standard output cannot be written.
pub async fn print(
    json: bool, report: impl Future<Output = Result<Printed, Error>>,
) -> Result<(), Error> {
    let interrupt = tokio::signal::unix::SignalKind::interrupt();
    let mut interrupt = tokio::signal::unix::signal(interrupt)
        .map_err(|error| Error::other(format!("cannot watch for SIGINT: {error}")))?;
    let report = tokio::select! {
        report = report => report?,
        _ = interrupt.recv() => return Err(Error::other("interrupted")),
    };
    let text = match json {
        true => report.json.to_string(),
        false => report.text,
    };
    match writeln!(std::io::stdout(), "{text}") {
        // The reader of the report has gone.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written
            .map_err(|error| Error::other(format!("cannot write to standard output: {error}"))),
    }
}

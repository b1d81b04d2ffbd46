//! How a command tells its result: a line, a table or JSON on standard output, with warnings beside it on standard error; and
//! times as people write them.

use std::io::{self, ErrorKind, Write};

use ratchet_ids::{DateTime, Offset};
use serde::Serialize;

use super::command_error::CommandError;

/// Writes bytes.
///
/// # Errors
/// If standard output cannot be written for another reason than that its reader has closed it.
pub fn write(bytes: &[u8]) -> Result<(), CommandError> {
    write_if_read(bytes).map(drop)
}

/// Writes bytes. Returns false if the reader has closed standard output.
///
/// # Errors
/// If standard output cannot be written for another reason.
pub fn write_if_read(bytes: &[u8]) -> Result<bool, CommandError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CommandError::other(format!("cannot write to standard output: {error}"))),
    }
}

/// Writes a line.
///
/// # Errors
/// If standard output cannot be written for another reason than that its reader has closed it.
pub fn line(text: &str) -> Result<(), CommandError> {
    write(format!("{text}\n").as_bytes())
}

/// Writes a command's result: `value` as one line of JSON if `json`, otherwise `text`.
///
/// # Errors
/// If standard output cannot be written for another reason than that its reader has closed it.
pub fn result(json: bool, value: &impl Serialize, text: &str) -> Result<(), CommandError> {
    match json {
        true => write(self::json(value)?.as_bytes()),
        false => line(text),
    }
}

/// Tells on standard error what is to be looked at, and does not end the command. If that is closed, nobody is there to be
/// told.
pub fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "warning: {text}");
}

/// A value as one line of JSON.
///
/// # Errors
/// If it cannot be written so.
pub fn json(value: &impl Serialize) -> Result<String, CommandError> {
    let written = serde_json::to_string(value);
    let written =
        written.map_err(|error| CommandError::other(format!("cannot write JSON: {error}")));
    Ok(written? + "\n")
}

/// Lays out a table. Each column is as wide as its widest cell; two spaces separate columns.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let cells = row.iter().zip(&widths);
            let padded: Vec<String> =
                cells.map(|(cell, &width)| format!("{cell:width$}")).collect();
            padded.join("  ").trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

/// The date and the time of a moment, in milliseconds since 1970, in UTC, as people write it: "2026-03-01 14:05:09".
pub fn date_and_time(ms: u64) -> String {
    let written = DateTime::new(ms, Offset::default()).to_string();
    // Without the thousandths.
    written.split('.').next().unwrap_or_default().replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_of_a_table_is_as_wide_as_its_widest_cell() {
        let row = |cells: &[&str]| cells.iter().map(|c| (*c).to_owned()).collect();
        let text = table(&[row(&["NODE", "ROLE"]), row(&["1", "leader"]), row(&["10", ""])]);
        assert_eq!(text, "NODE  ROLE\n1     leader\n10");
    }

    #[test]
    fn a_moment_has_its_date_and_its_time_to_the_second() {
        assert_eq!(date_and_time(0), "1970-01-01 00:00:00");
        assert_eq!(date_and_time(1_772_373_909_999), "2026-03-01 14:05:09");
        assert!(date_and_time(u64::MAX).starts_with("262142-12-31 "));
    }
}

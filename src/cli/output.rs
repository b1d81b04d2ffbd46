//! Writes to standard output. A reader that closes it early (as `head` does) is no error.

use std::io::{ErrorKind, Write};

use serde::Serialize;

use super::exit::CommandError;

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
/// As [`write()`].
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
/// As [`write()`].
pub fn line(text: &str) -> Result<(), CommandError> {
    write(format!("{text}\n").as_bytes())
}

/// Writes a command's result: `value` as one line of JSON if `json`, otherwise `text`.
///
/// # Errors
/// As [`write()`].
pub fn result(json: bool, value: &impl Serialize, text: &str) -> Result<(), CommandError> {
    match json {
        true => write(self::json(value)?.as_bytes()),
        false => line(text),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_of_a_table_is_as_wide_as_its_widest_cell() {
        let row = |cells: &[&str]| cells.iter().map(|c| (*c).to_owned()).collect();
        let text = table(&[row(&["NODE", "ROLE"]), row(&["1", "leader"]), row(&["10", ""])]);
        assert_eq!(text, "NODE  ROLE\n1     leader\n10");
    }
}

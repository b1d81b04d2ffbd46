//! Rows of CSV: a key and a number.

use std::io::{self, Read};

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use super::rows::{BadRow, Expected, MaybeRow};

/// The row that may come first.
const HEADER: [&[u8]; 2] = [b"key", b"number"];

/// Reads rows.
pub struct CsvRows<R> {
    reader: Reader<R>,
    record: ByteRecord,
    is_first: bool,
}

impl<R: Read> CsvRows<R> {
    /// The rows of `input`.
    pub fn new(input: R) -> Self {
        CsvRows {
            reader: ReaderBuilder::new()
                .has_headers(false)
                .flexible(true)
                .buffer_capacity(1 << 18)
                .from_reader(input),
            record: ByteRecord::new(),
            is_first: true,
        }
    }

    /// The next row; `None` after the last one.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub fn next(&mut self, expected: &Expected) -> io::Result<Option<MaybeRow>> {
        loop {
            match self.reader.read_byte_record(&mut self.record) {
                Ok(false) => return Ok(None),
                Ok(true) => {}
                Err(error) => match error.into_kind() {
                    ErrorKind::Io(error) => return Err(error),
                    other => return Err(io::Error::other(format!("{other:?}"))),
                },
            }
            let line = self.record.position().map_or(0, csv::Position::line);
            let is_header = std::mem::take(&mut self.is_first) && self.record.iter().eq(HEADER);
            if is_header {
                continue;
            }
            return Ok(Some(match (self.record.get(0), self.record.get(1)) {
                (Some(key), Some(number)) if self.record.len() == 2 => {
                    expected.row(line, key, number)
                }
                _ => Err(BadRow {
                    line,
                    why: format!(
                        "the row has {} fields; a row is key,number",
                        self.record.len()
                    ),
                }),
            }));
        }
    }
}

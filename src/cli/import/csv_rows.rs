//! Rows of CSV: a key and a number, or the first and the last of some ids, with a hyphen between them, and a number.

use std::io::{self, Read};

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use super::rows::{BadRow, Expected, MaybeRow};

/// The rows that may come first.
const HEADER: [&[u8]; 2] = [b"key", b"number"];
const HEADER_OF_RANGES: [&[u8]; 2] = [b"ids", b"number"];

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
            if std::mem::take(&mut self.is_first) {
                let is_header = |header: [&[u8]; 2]| self.record.iter().eq(header);
                if is_header(HEADER_OF_RANGES) {
                    match expected.check_ranges() {
                        Ok(()) => continue,
                        Err(why) => return Ok(Some(Err(BadRow { line, why }))),
                    }
                }
                if is_header(HEADER) {
                    continue;
                }
            }
            return Ok(Some(match (self.record.get(0), self.record.get(1)) {
                (Some(key), Some(number)) if self.record.len() == 2 => {
                    expected.row_or_range(line, key, number)
                }
                _ => Err(BadRow {
                    line,
                    why: format!(
                        "the row has {} fields; a row is {}",
                        self.record.len(),
                        match expected.check_ranges() {
                            Ok(()) => "key,number or first-last,number",
                            Err(_) => "key,number",
                        }
                    ),
                }),
            }));
        }
    }
}

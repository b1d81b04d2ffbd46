//! Reads the rows of a file, whatever it is; those of CSV here.

use std::io::{self, BufReader, Read};

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use super::{
    rows::{BadRow, Expected, Format, MaybeRow},
    table_rows::{self, LEAF, TINYID},
};

/// Hands the rows of `input`, in their order, to `take`, which says whether to go on.
///
/// # Errors
/// If the input cannot be read.
pub fn read(
    input: impl Read, format: Format, expected: &Expected, mut take: impl FnMut(MaybeRow) -> bool,
) -> io::Result<()> {
    match format {
        Format::Csv => {
            let mut rows = CsvRows::new(input);
            while let Some(row) = rows.next(expected)? {
                if !take(row) {
                    return Ok(());
                }
            }
            Ok(())
        }
        Format::Leaf => table_rows::read(BufReader::new(input), &LEAF, expected, take),
        Format::Tinyid => table_rows::read(BufReader::new(input), &TINYID, expected, take),
    }
}

// Rows of CSV: a key and a number, or the first and the last of some ids, with a hyphen between them, and a number. Or
// a key and an order number, as ids have it, if the first row says so.

/// The rows that may come first.
const HEADER: [&[u8]; 2] = [b"key", b"number"];
const HEADER_OF_RANGES: [&[u8]; 2] = [b"ids", b"number"];
const HEADER_OF_ORDERS: [&[u8]; 2] = [b"key", b"order"];

/// Reads rows.
pub struct CsvRows<R> {
    reader: Reader<R>,
    record: ByteRecord,
    is_first: bool,
    /// Whether the numbers are order numbers, as ids have them.
    are_orders: bool,
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
            are_orders: false,
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
                match self.first(expected) {
                    Ok(First::Header) => continue,
                    Ok(First::Row) => {}
                    Err(why) => return Ok(Some(Err(BadRow { line, why }))),
                }
            }
            if let Some(row) = self.row(line, expected) {
                return Ok(Some(row));
            }
        }
    }

    /// What the first row is.
    fn first(&mut self, expected: &Expected) -> Result<First, String> {
        let is = |header: [&[u8]; 2]| self.record.iter().eq(header);
        let (ranges, numbers, orders) = (is(HEADER_OF_RANGES), is(HEADER), is(HEADER_OF_ORDERS));
        expected.check_orders((numbers || ranges || orders).then_some(orders))?;
        if ranges {
            expected.check_ranges()?;
        }
        self.are_orders = orders;
        Ok(if ranges || numbers || orders { First::Header } else { First::Row })
    }

    /// The row that was read last. `None` if there is nothing to raise.
    fn row(&self, line: u64, expected: &Expected) -> Option<MaybeRow> {
        match (self.record.get(0), self.record.get(1)) {
            (Some(key), Some(order)) if self.record.len() == 2 && self.are_orders => {
                expected.row_of_order(line, key, order)
            }
            (Some(key), Some(number)) if self.record.len() == 2 => {
                Some(expected.row_or_range(line, key, number))
            }
            _ => {
                let and_ranges = match expected.check_ranges() {
                    Ok(()) => " or first-last,number",
                    Err(_) => "",
                };
                let fields = self.record.len();
                let why = format!("the row has {fields} fields; a row is key,number{and_ranges}");
                Some(Err(BadRow { line, why }))
            }
        }
    }
}

/// What the first row is.
enum First {
    /// It says what the others are.
    Header,
    /// A row as the others.
    Row,
}

//! Rows of CSV: a key and a number, or the first and the last of some ids, with a hyphen between them, and a number. Or
//! a key and an order number, as ids have it, if the first row says so.

use std::{
    io::{self, Read},
    mem,
};

use csv::{ByteRecord, Position, ReaderBuilder};

use super::rows::{BadRow, Expected, MaybeRow};

/// The rows that may come first.
const HEADER: [&[u8]; 2] = [b"key", b"number"];
const HEADER_OF_RANGES: [&[u8]; 2] = [b"ids", b"number"];
const HEADER_OF_ORDERS: [&[u8]; 2] = [b"key", b"order"];

/// Hands the rows of CSV to `take`.
pub(super) fn read_csv(
    input: impl Read, expected: &Expected, mut take: impl FnMut(MaybeRow) -> bool,
) -> io::Result<()> {
    let mut reader = ReaderBuilder::new();
    reader.has_headers(false).flexible(true).buffer_capacity(1 << 18);
    let mut reader = reader.from_reader(input);
    let (mut record, mut is_first, mut are_orders) = (ByteRecord::new(), true, false);
    while reader.read_byte_record(&mut record)? {
        let line = record.position().map_or(0, Position::line);
        let header = match mem::take(&mut is_first) {
            true => header(&record, expected),
            false => Ok(None),
        };
        let row = match header {
            Ok(Some(orders)) => {
                are_orders = orders;
                None
            }
            Ok(None) => row(&record, line, are_orders, expected),
            Err(why) => Some(Err(BadRow { line, why })),
        };
        if let Some(row) = row
            && !take(row)
        {
            break;
        }
    }
    Ok(())
}

/// Whether the numbers of the rows after this first one are order numbers, as ids have them. `None` if it is a row as they are.
fn header(first: &ByteRecord, expected: &Expected) -> Result<Option<bool>, String> {
    let is = |header: [&[u8]; 2]| first.iter().eq(header);
    let (ranges, orders) = (is(HEADER_OF_RANGES), is(HEADER_OF_ORDERS));
    let are_orders = (ranges || orders || is(HEADER)).then_some(orders);
    expected.check_orders(are_orders)?;
    if ranges {
        expected.check_ranges()?;
    }
    Ok(are_orders)
}

/// The row of a record. `None` if there is nothing to raise.
fn row(record: &ByteRecord, line: u64, are_orders: bool, expected: &Expected) -> Option<MaybeRow> {
    match (record.get(0), record.get(1)) {
        (Some(key), Some(order)) if record.len() == 2 && are_orders => {
            expected.row_of_order(line, key, order)
        }
        (Some(key), Some(number)) if record.len() == 2 => expected.row_or_range(line, key, number),
        _ => {
            let and_ranges = match expected.check_ranges() {
                Ok(()) => " or first-last,number",
                Err(_) => "",
            };
            let fields = record.len();
            let why = format!("the row has {fields} fields; a row is key,number{and_ranges}");
            Some(Err(BadRow { line, why }))
        }
    }
}

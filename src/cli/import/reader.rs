//! Reads the rows of a file, whatever it is.

use std::io::{self, BufReader, Read};

use super::{
    csv_rows::CsvRows,
    rows::{Expected, Format, MaybeRow},
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

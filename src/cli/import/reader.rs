//! Reads the rows of a file, whatever it is.

use std::io::{self, BufReader, Read};

use super::{
    csv_rows::CsvRows,
    dump,
    rows::{Expected, Format, MaybeRow},
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
        Format::Leaf => dump::read(BufReader::new(input), &dump::LEAF, expected, take),
        Format::Tinyid => dump::read(BufReader::new(input), &dump::TINYID, expected, take),
    }
}
